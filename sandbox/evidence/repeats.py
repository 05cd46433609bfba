"""Repeated cells: several results of one cell become one, and what they disagree about is flaky.

The worst status of a check counts, so a check that failed once in three attempts fails; the verdict
says how often, and the cell is called flaky when nothing of it fails every time.
"""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.evidence.results import CellResult, CellState, passed_state
from sandbox.evidence.verdict import Status, Verdict

_BAD = (Status.ERROR, Status.FAIL)
_ORDER = (Status.ERROR, Status.FAIL, Status.PASS, Status.NOT_APPLICABLE)


def settle(attempts: Sequence[CellResult]) -> CellResult:
    """Return the one result of a cell that was run several times; identity is the first one's."""
    first = attempts[0]
    if len(attempts) == 1:
        return first
    checks = dict.fromkeys(v.check for attempt in attempts for v in attempt.verdicts)
    verdicts = tuple(_settled(check, attempts) for check in checks)
    return CellResult(
        cell_id=first.cell_id,
        record=next((a.record for a in attempts if a.record is not None), None),
        verdicts=verdicts,
        state=_state(attempts, verdicts),
        attempts=tuple(attempts),
    )


def _settled(check: str, attempts: Sequence[CellResult]) -> Verdict:
    found = [v for attempt in attempts for v in attempt.verdicts if v.check == check]
    worst = min(found, key=lambda verdict: _ORDER.index(verdict.status))
    bad = sum(verdict.status in _BAD for verdict in found)
    if bad in (0, len(attempts)):
        return worst
    return worst.model_copy(update={"flaky": f"failed in {bad} of {len(attempts)} attempts"})


def _state(attempts: Sequence[CellResult], verdicts: Sequence[Verdict]) -> CellState:
    bad = [v for v in verdicts if v.status in _BAD]
    if all(attempt.state is CellState.REFUSED for attempt in attempts):
        return CellState.REFUSED
    steady = [v for v in bad if v.known is None and v.flaky is None]
    if any(v.status is Status.ERROR for v in steady):
        return CellState.ERROR
    if steady:
        return CellState.FAIL
    if any(v.known is None for v in bad):
        return CellState.FLAKY
    return CellState.KNOWN if bad else passed_state(verdicts)
