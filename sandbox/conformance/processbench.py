"""Our command as a process of its own: how soon it answers, how much memory it takes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from sandbox.conformance.timing import OURS, Clock, Subject, Way, in_turn
from sandbox.errors import EngineFailure, ExitCode
from sandbox.evidence.benches import Measure, Unmeasured

BARE = "python"
CELLS = 1000
START_LIMITS_S = {"sandbox --help": 0.15, "sandbox list": 0.3}
JUDGE_LIMIT_S = 10.0
BASE_MIB, CELL_MIB = 80.0, 3.0
SCENARIOS = ("tool_success", "tool_failure", "retry_500", "run_timeout")
BIG_OUTPUT = "big_output"
_DEADLINE_S = 600.0
_LOOK_S = 0.02


def bench_starts(*, rounds: int) -> Iterator[Measure | Unmeasured]:
    """Measure the commands that people wait for, beside an interpreter that does nothing."""
    for operation, limit in START_LIMITS_S.items():
        words = operation.split()[1:]
        ours: Way = partial(timed, operation, [sys.executable, "-m", "sandbox", *words])
        bare: Way = partial(timed, operation, [sys.executable, "-c", "pass"])
        subject = Subject(part="starts", image="")
        yield from in_turn(
            subject, operation, {OURS: ours, BARE: bare}, rounds=rounds, limits={operation: limit}
        )


def bench_judge(cell: Path, *, rounds: int) -> Iterator[Measure | Unmeasured]:
    """Measure the judging of a thousand cells, all of them copies of a recorded one."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        for number in range(CELLS):
            copy_cell(cell, run, f"copy-{number:04}")
        operation = f"judge {CELLS} cells"
        words = [sys.executable, "-m", "sandbox", "judge", str(run)]
        yield from in_turn(
            Subject(part="starts", image=""),
            operation,
            {OURS: partial(timed, operation, words, codes=(ExitCode.OK, ExitCode.FAILED))},
            rounds=rounds,
            limits={operation: JUDGE_LIMIT_S},
        )


def copy_cell(cell: Path, run: Path, image: str) -> None:
    """Copy a recorded cell into a run, as that of another image."""
    record = json.loads((cell / "cell.json").read_text(encoding="utf-8"))
    record["image"] = image
    record["cell_id"] = f"{record['harness']}/{image}/{record['scenario']}"
    target = run / "cells" / record["cell_id"]
    shutil.copytree(cell, target, symlinks=True)
    (target / "cell.json").write_text(json.dumps(record), encoding="utf-8")


def bench_memory(harness: str, images: Sequence[str]) -> Iterator[Measure | Unmeasured]:
    """Measure the memory of a run of one cell, of one with 20 MB of output, of many at once.

    The peak is of all that ``sandbox conformance`` does, the judging and the reports too.
    """
    yield _memory("1 cell", harness, images[:1], SCENARIOS[:1])
    yield _memory("1 cell with 20 MB of output", harness, images[:1], (BIG_OUTPUT,))
    for cells in (4, 8):
        scenarios = SCENARIOS[: cells // len(images[:2])]
        yield _memory(f"{cells} cells at once", harness, images[:2], scenarios)


def _memory(
    operation: str, harness: str, images: Sequence[str], scenarios: Sequence[str]
) -> Measure | Unmeasured:
    subject = Subject(part="memory", image=images[0] if len(images) == 1 else "")
    cells = len(images) * len(scenarios)
    selection = [
        *("--harness", harness),
        *(word for image in images for word in ("--image", image)),
        *(word for scenario in scenarios for word in ("--scenario", scenario)),
        *("--profile", "full", "--jobs", str(cells)),
    ]
    try:
        peak = _peak_mib(selection)
    except EngineFailure as error:
        return subject.broken(operation, error)
    limit = BASE_MIB + CELL_MIB * cells
    return subject.measure(operation, [peak], {}, limit=limit, unit="MiB")


def _peak_mib(selection: Sequence[str]) -> float:
    """Run a selection in a process of its own and return the most memory that it had."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["conformance", *selection, "--quiet", "--json", "--output", f"{folder}/run"]
        with subprocess.Popen(
            [sys.executable, "-m", "sandbox", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as process:
            try:
                peak = _watched(process)
                _, said = process.communicate(timeout=_DEADLINE_S)
            finally:
                process.terminate()
        if process.returncode not in {ExitCode.OK, ExitCode.FAILED}:
            text = said.decode(errors="replace").strip()[-500:]
            raise EngineFailure(f"sandbox conformance ended with {process.returncode}: {text}")
    return peak


def _watched(process: subprocess.Popen[bytes]) -> float:
    """Follow a process's own peak to its end; the kernel's figure for children has ours in it."""
    peak, until = 0.0, time.monotonic() + _DEADLINE_S
    while process.poll() is None:
        if time.monotonic() > until:
            raise EngineFailure(f"sandbox conformance is not done after {_DEADLINE_S:.0f} s")
        with suppress(OSError):
            peak = max(peak, peak_of(Path(f"/proc/{process.pid}/status").read_text()))
        time.sleep(_LOOK_S)
    return peak


def peak_of(status: str) -> float:
    """Read the peak of resident memory out of /proc/PID/status (proc(5)), in MiB; 0: none."""
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def timed(
    operation: str, argv: Sequence[str], *, codes: Sequence[int] = (ExitCode.OK,)
) -> dict[str, float]:
    """Run a command and give the seconds until its end; raises EngineFailure by another code."""
    with Clock() as clock:
        ended = subprocess.run(
            argv,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
            timeout=_DEADLINE_S,
        )
    if ended.returncode not in codes:
        said = ended.stderr.decode(errors="replace").strip()[-500:]
        raise EngineFailure(f"{operation} ended with {ended.returncode}: {said}")
    return {operation: clock.seconds}
