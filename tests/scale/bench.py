"""``make bench-scale``: time and memory of a large run per number of cells, and how they grow.

    python -m tests.scale.bench [--sizes 25000 50000 100000] [--keep DIR]

Runs of each size go through the same stages. Each stage is a process of its own on one core: its
CPU seconds hardly depend on what else the machine does, and its memory is all that judging takes.
It ends with 1 when the CPU time of a cell grows with their number, or memory is above what is
stated here. Nothing is left on disk, also when it is interrupted or terminated.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.scale.stages import STAGES

SIZES = (25_000, 50_000, 100_000)
NEAR_LINEAR = 1.3
"""CPU time per cell of the largest run over that of the smallest: above this it is not linear."""
SOME_S = 2.0
"""CPU seconds below which starting Python is too much of them for a ratio to say something."""
MEMORY_MIB = 100.0
MEMORY_KIB_PER_CELL = 1.5
"""What the largest process of any stage may take: so much, and so much more for each cell."""
_REPORTS = ("results.json", "junit.xml", "ctrf.json", "report.html", "summary.md", "timings.json")
_END_S = 10.0
_UNMEASURED = "make"
"""The stage that is no part of the tool."""


@dataclass(frozen=True)
class Measured:
    """One stage of so many cells: CPU and wall-clock seconds, MiB of the largest process."""

    cells: int
    cpu_s: float
    wall_s: float
    peak_mib: float

    @property
    def cell_ms(self) -> float:
        """CPU milliseconds for each cell of the run."""
        return self.cpu_s / self.cells * 1000


@dataclass(frozen=True)
class OnDisk:
    """What a folder takes: MiB, and inodes, each counted once whatever its names."""

    mib: float
    inodes: int


def faults(found: Mapping[str, Sequence[Measured]]) -> list[str]:
    """Say what grows faster than the number of cells, and what takes more memory than stated."""
    said = []
    for stage, runs in found.items():
        if stage == _UNMEASURED:
            continue
        growth = growth_of(runs)
        if growth is not None and growth > NEAR_LINEAR:
            said.append(f"{stage}: CPU time per cell grows by {growth:.2f} (most {NEAR_LINEAR})")
        for one in runs:
            most = stated_mib(one.cells)
            if one.peak_mib > most:
                said.append(
                    f"{stage} of {one.cells} cells: {one.peak_mib:.0f} MiB (most {most:.0f})"
                )
    return said


def growth_of(runs: Sequence[Measured]) -> float | None:
    """Return a cell's CPU time in the largest run over that in the smallest that says something.

    None: there are no two such runs.
    """
    telling = [one for one in runs if one.cpu_s >= SOME_S]
    if len(telling) < 2:
        return None
    return telling[-1].cell_ms / telling[0].cell_ms


def stated_mib(cells: int) -> float:
    """Return the memory that a process may take for a run of that many cells."""
    return MEMORY_MIB + MEMORY_KIB_PER_CELL * cells / 1024


def on_disk(folder: Path) -> OnDisk:
    """Count what is below a folder."""
    size, inodes, linked = 0, 0, set[int]()
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            found = os.lstat(f"{parent}/{name}")
            if found.st_nlink > 1 and name in files:
                if found.st_ino in linked:
                    continue
                linked.add(found.st_ino)
            size += found.st_blocks * 512
            inodes += 1
    return OnDisk(size / 2**20, inodes)


def measure(stage: str, folder: Path, cells: int, *, one_core: bool = True) -> Measured:
    """Run a stage in a process of its own, which does not outlive this call."""
    words = [sys.executable, "-m", "tests.scale.stages", stage, str(folder), str(cells)]
    cores = os.sched_getaffinity(0)
    started = time.monotonic()
    os.sched_setaffinity(0, {min(cores)} if one_core else cores)  # the stage inherits it
    with subprocess.Popen(words, start_new_session=True) as process:
        try:
            os.sched_setaffinity(0, cores)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        except BaseException:
            _end(process)
            raise
    if process.returncode != 0:
        raise SystemExit(f"{stage} of {cells} cells failed")
    return Measured(
        cells=cells,
        cpu_s=used.ru_utime + used.ru_stime,
        wall_s=time.monotonic() - started,
        peak_mib=used.ru_maxrss / 1024,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a stage and the processes that judge for it, and wait until none writes any more."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + _END_S
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)
            time.sleep(0.01)


def main() -> int:
    """Measure, print, and say by the exit code whether all is within what is stated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="CELLS")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the runs in this folder")
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _terminated)
    found: dict[str, list[Measured]] = {stage: [] for stage in STAGES}
    print("stage          cells    CPU s  ms a cell   wall s   MiB  most")
    for cells in sorted(arguments.sizes):
        with _folder(arguments.keep) as folder:
            _measure_all(folder, cells, found)
    for stage, runs in found.items():
        growth = growth_of(runs)
        if growth is not None and stage != _UNMEASURED:
            print(f"{stage}: CPU time per cell x{growth:.2f} (near linear: at most {NEAR_LINEAR})")
    said = faults(found)
    print(*(said or ["all within what is stated"]), sep="\n")
    return 1 if said else 0


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="scale-", dir=keep))
    try:
        yield folder
    finally:
        if keep is None:
            shutil.rmtree(folder)


def _terminated(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def _measure_all(folder: Path, cells: int, found: dict[str, list[Measured]]) -> None:
    for stage, runs in found.items():
        runs.append(measure(stage, folder, cells))
        _line(stage, runs[-1])
    _line("part, all", measure("part", folder, cells, one_core=False))
    sizes = ((folder / "merged" / name).stat().st_size for name in _REPORTS)
    said = (f"{name} {size / 2**20:.1f}" for name, size in zip(_REPORTS, sizes, strict=True))
    taken = on_disk(folder)
    print(f"  reports in MiB: {', '.join(said)}")
    print(f"  on disk: {taken.mib:.0f} MiB in {taken.inodes} inodes", flush=True)


def _line(stage: str, one: Measured) -> None:
    print(
        f"{stage:<12}{one.cells:>8}{one.cpu_s:>9.1f}{one.cell_ms:>11.3f}{one.wall_s:>9.1f}"
        f"{one.peak_mib:>6.0f}{stated_mib(one.cells):>6.0f}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
