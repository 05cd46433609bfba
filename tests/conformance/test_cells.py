"""The judge's second face: ``pytest tests/conformance --run DIR``, an item for each cell and check.

The project's baseline is strict xfail: a known failure that is gone fails, as for the judge.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.commands.reporting import baseline
from sandbox.evidence.baseline import Baseline
from sandbox.evidence.judge import judge
from sandbox.evidence.results import CellResult, RunVerdicts
from sandbox.evidence.verdict import CELL_RUN, Status, Tier, Verdict

CASES = "cell_id, verdict"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    folder: Path | None = metafunc.config.getoption("run_folder")
    if folder is None:
        absent = pytest.param(None, None, marks=pytest.mark.skip("give a run folder: --run DIR"))
        metafunc.parametrize(CASES, [absent], ids=["no run"])
        return
    known = baseline()
    run = judge(folder, baseline=known, today=dt.datetime.now(dt.UTC).date())
    metafunc.parametrize(CASES, list(cases(run, known)))


def cases(run: RunVerdicts, known: Baseline) -> Iterator[object]:
    """Yield a case for each verdict; what the baseline covers is expected to fail."""
    stale = {(entry.cell, entry.check) for entry in run.stale}
    for cell in run.cells:
        for verdict in (*cell.verdicts, *_ran(cell, known)):
            entry = known.entry_for(cell.cell_id, verdict.check)
            expected = entry is not None and (
                verdict.known is not None or (entry.cell, entry.check) in stale
            )
            yield pytest.param(
                cell.cell_id,
                verdict,
                id=f"{cell.cell_id}-{verdict.check}",
                marks=[pytest.mark.xfail(reason=entry.reason, strict=True)]
                if entry is not None and expected
                else [],
            )


def _ran(cell: CellResult, known: Baseline) -> Iterator[Verdict]:
    """Yield that a cell ran when the baseline says that it cannot: the entry is stale then."""
    judged = {verdict.check for verdict in cell.verdicts}
    if CELL_RUN not in judged and known.entry_for(cell.cell_id, CELL_RUN) is not None:
        yield Verdict(check=CELL_RUN, tier=Tier.P0, kind="health", group="run", status=Status.PASS)


def test_cell(cell_id: str, verdict: Verdict) -> None:
    if verdict.status is Status.NOT_APPLICABLE:
        pytest.skip(verdict.reason)
    flaky = f"{verdict.flaky}: " if verdict.flaky else ""
    assert verdict.status is Status.PASS, f"{cell_id} ({verdict.tier}): {flaky}{verdict.reason}"
