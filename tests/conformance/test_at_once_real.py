"""Real harnesses: cells that run sixteen at once have the verdicts that they have one by one.

Opt-in, since each cell runs twice: ``make at-once HARNESSES='pi codex' SCENARIOS='tool_*'``. The
fake harness stands for them in every run of the tests (``test_at_once.py``).
"""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from sandbox.evidence.baseline import Baseline
from sandbox.evidence.folder import find_cells, read_cell
from sandbox.evidence.judge import judge
from tests.conformance.cli import start

pytestmark = pytest.mark.docker
AT_ONCE = 16
DEADLINE_S = 3 * 3600
Told = dict[str, dict[str, str]]


def told(folder: Path) -> Told:
    """Give the status of every check of every cell; what is known to fail counts like all else."""
    run = judge(folder, baseline=Baseline(), today=dt.date(2026, 1, 1))
    return {
        cell.cell_id: {"state": cell.state.value}
        | {one.check: one.status.value for one in cell.verdicts}
        for cell in run.cells
    }


def disagreements(alone: Told, together: Told) -> list[str]:
    """Name every check that two runs of the same cells judge otherwise."""
    return [
        f"{cell}: {check}: {alone.get(cell, {}).get(check)} alone, "
        f"{together.get(cell, {}).get(check)} with others"
        for cell in sorted(alone.keys() | together.keys())
        for check in sorted(alone.get(cell, {}).keys() | together.get(cell, {}).keys())
        if alone.get(cell, {}).get(check) != together.get(cell, {}).get(check)
    ]


def most_at_once(spans: Sequence[tuple[float, float]]) -> int:
    """Tell how many of the spans of time lie over each other at most."""
    return max(sum(begin <= moment < end for begin, end in spans) for moment, _ in spans)


def spans(folder: Path) -> list[tuple[float, float]]:
    cells = [read_cell(one).cell for one in find_cells(folder)]
    return [(cell.started_at, cell.completed_at) for cell in cells]


def test_sixteen_at_once_are_judged_as_one_by_one(
    request: pytest.FixtureRequest, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    words = request.config.getoption("at_once")
    if not words:
        pytest.skip("every cell runs twice: make at-once")
    for name, jobs in (("alone", 1), ("together", AT_ONCE)):
        folder = str(tmp_path / name)
        with start(
            "conformance", *shlex.split(words), "--jobs", str(jobs), "--output", folder
        ) as run:
            assert run.wait(DEADLINE_S) in {0, 1, 4}  # cells that broke are told as such
    alone, together = told(tmp_path / "alone"), told(tmp_path / "together")
    checks = sum(len(cell) - 1 for cell in alone.values())
    other = disagreements(alone, together)
    most = most_at_once(spans(tmp_path / "together"))
    figure = f"{len(alone)} cells one by one, and up to {most} at once: {checks} verdicts"
    record_property("figure", f"{figure}, {len(other)} of them different")
    assert other == []


def test_a_verdict_that_differs_is_named() -> None:
    alone = {"a/b/c": {"state": "pass", "x": "pass", "y": "pass"}}
    together = {"a/b/c": {"state": "fail", "x": "pass", "y": "fail"}, "a/b/d": {"state": "pass"}}
    assert disagreements(alone, alone) == []
    assert disagreements(alone, together) == [
        "a/b/c: state: pass alone, fail with others",
        "a/b/c: y: pass alone, fail with others",
        "a/b/d: state: None alone, pass with others",
    ]
    assert most_at_once([(0, 2), (1, 3), (2, 4)]) == 2
