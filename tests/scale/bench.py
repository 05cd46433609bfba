"""``make bench-scale``: time and memory of a large run per number of cells, and how they grow.

    python -m tests.scale.bench [--cells 100000] [--keep DIR]

Runs of a quarter, a half and all of the cells go through the same stages. Each stage is a process
of its own on one core: its CPU seconds do not depend on what else the machine does, and its memory
is all that judging takes. The last judging is done once more with all cores, by the clock.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.scale.stages import STAGES

NEAR_LINEAR = 2.4
"""t(2n) / t(n) that is still called near linear."""
SOME_S = 2.0
"""CPU seconds below which a ratio says nothing."""
_REPORTS = ("results.json", "junit.xml", "ctrf.json", "report.html", "summary.md", "timings.json")


@dataclass(frozen=True)
class Measured:
    """One stage: CPU and wall-clock seconds, and MiB of the largest process."""

    cpu_s: float
    wall_s: float
    peak_mib: float


def measure(stage: str, folder: Path, cells: int, *, one_core: bool = True) -> Measured:
    """Run a stage in a process of its own."""
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        if one_core:
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        words = [sys.executable, "-m", "tests.scale.stages", stage, str(folder), str(cells)]
        os.execv(sys.executable, words)
    _, status, used = os.wait4(pid, 0)
    if status != 0:
        raise SystemExit(f"{stage} of {cells} cells failed")
    return Measured(
        cpu_s=used.ru_utime + used.ru_stime,
        wall_s=time.monotonic() - started,
        peak_mib=used.ru_maxrss / 1024,
    )


def main() -> int:
    """Measure, print, and say by the exit code whether all grows near linearly."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=100_000, metavar="N")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the runs in this folder")
    arguments = parser.parse_args()
    sizes = (arguments.cells // 4, arguments.cells // 2, arguments.cells)
    found: dict[str, list[Measured]] = {stage: [] for stage in STAGES}
    print(f"{'stage':<10}{'cells':>9}{'CPU s':>10}{'wall s':>10}{'MiB':>8}{'t(2n)/t(n)':>12}")
    for cells in sizes:
        folder = Path(tempfile.mkdtemp(prefix="scale-", dir=arguments.keep))
        try:
            _measure_all(folder, cells, found, last=cells == sizes[-1])
        finally:
            if arguments.keep is None:
                shutil.rmtree(folder)
    worst = max(
        (ratio for stage, runs in found.items() if stage != "make" for ratio in _ratios(runs)),
        default=0.0,
    )
    print(f"largest ratio: {worst:.2f} (near linear: at most {NEAR_LINEAR})")
    return 0 if worst <= NEAR_LINEAR else 1


def _measure_all(folder: Path, cells: int, found: dict[str, list[Measured]], *, last: bool) -> None:
    for stage, runs in found.items():
        runs.append(measure(stage, folder, cells))
        ratio = f"{_ratio(runs[-2], runs[-1]):.2f}" if len(runs) > 1 else ""
        _line(stage, cells, runs[-1], ratio)
    if last:
        _line("judge, all", cells, measure("judge", folder, cells, one_core=False), "")
    sizes = ((folder / "merged" / name).stat().st_size for name in _REPORTS)
    said = (f"{name} {size / 2**20:.1f}" for name, size in zip(_REPORTS, sizes, strict=True))
    print(f"  reports in MiB: {', '.join(said)}", flush=True)


def _line(stage: str, cells: int, one: Measured, ratio: str) -> None:
    print(
        f"{stage:<10}{cells:>9}{one.cpu_s:>10.1f}{one.wall_s:>10.1f}{one.peak_mib:>8.0f}{ratio:>12}",
        flush=True,
    )


def _ratio(before: Measured, after: Measured) -> float:
    return after.cpu_s / before.cpu_s


def _ratios(runs: list[Measured]) -> list[float]:
    """Return the ratios that are of enough seconds to say something."""
    return [_ratio(one, two) for one, two in itertools.pairwise(runs) if one.cpu_s >= SOME_S]


if __name__ == "__main__":
    sys.exit(main())
