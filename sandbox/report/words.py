"""Words that all reports share: a cell in one word, a run in one line, findings in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sandbox.evidence.cell import CellRecord
from sandbox.evidence.checks import CHECKS
from sandbox.evidence.foretold import Foretold
from sandbox.evidence.results import CellResult, CellState, RunOutcome
from sandbox.evidence.verdict import CELL_RUN, Status, Verdict

CHECK_ORDER = (CELL_RUN, *CHECKS)
"""The checks that a cell's letters stand for."""

_DISAGREEMENTS = 20
"""Cells that ended otherwise than foretold and are told one by one."""

_LETTERS = {
    Status.PASS: "P",
    Status.FAIL: "F",
    Status.ERROR: "E",
    Status.NOT_APPLICABLE: "N",
}


@dataclass(frozen=True)
class Finding:
    """One non-pass, or a pass that took more than one attempt: its cell, and the verdict."""

    cell_id: str
    verdict: Verdict

    @property
    def label(self) -> str:
        """``known``, ``flaky``, ``FAIL`` or ``error``."""
        if self.verdict.known is not None:
            return "known"
        if self.verdict.flaky is not None:
            return "flaky"
        return "FAIL" if self.verdict.status is Status.FAIL else "error"

    @property
    def reason(self) -> str:
        """The verdict's reason, with how often it failed in front when that is not always."""
        flaky = self.verdict.flaky
        return f"{flaky}: {self.verdict.reason}" if flaky else self.verdict.reason


def cell_label(cell: CellResult) -> str:
    """Say a cell in one word, with the number of its failures where it has any."""
    open_failures = len(cell.unknown_failures)
    match cell.state:
        case CellState.FAIL:
            return f"FAIL ({open_failures})"
        case CellState.FLAKY:
            return f"flaky ({open_failures})" if open_failures else "flaky"
        case CellState.KNOWN:
            return f"known ({len(cell.non_passes)})"
        case CellState.REFUSED:
            return "refused" if open_failures else "refused (known)"
        case _:
            return cell.state.value


def letters(cell: CellResult) -> str:
    """Say each verdict of a cell in a letter, in the order of ``CHECK_ORDER``.

    ``P`` pass, ``F`` fail, ``E`` error, ``N`` not applicable, ``K`` known, ``Y`` flaky, ``.`` none.
    """
    found = {verdict.check: _letter(verdict) for verdict in cell.verdicts}
    return "".join(found.get(name, ".") for name in CHECK_ORDER)


def _letter(verdict: Verdict) -> str:
    if verdict.known is not None:
        return "K"
    return "Y" if verdict.flaky is not None else _LETTERS[verdict.status]


def findings(cell: CellResult) -> Iterator[Finding]:
    """Yield every non-pass of a cell, and what was retried."""
    for verdict in (*cell.non_passes, *cell.retried):
        yield Finding(cell.cell_id, verdict)


def lacking(cells: Iterable[CellRecord | None]) -> tuple[str, ...]:
    """Return the promises that did not hold where these cells ran, or that nobody could tell."""
    promises = (one for cell in cells if cell is not None for one in cell.guarantees)
    return tuple(
        dict.fromkeys(
            f"{one.name}{' (not known)' if one.holds is None else ''}: {one.reason}"
            for one in promises
            if one.holds is not True
        )
    )


def totals(run: RunOutcome) -> str:
    """Say the run in one line."""
    states = ", ".join(f"{n} {state}" for state, n in run.summary.cells.items() if n)
    tiers = ", ".join(f"{tier} {score}" for tier, score in run.summary.tiers.items())
    count = run.summary.stale
    stale = f"; {count} stale baseline entr{'y' if count == 1 else 'ies'}" if count else ""
    cells = sum(run.summary.cells.values())
    return f"{cells} cells: {states}; checks passed: {tiers}{stale}"


def foretold_lines(told: Foretold | None) -> Iterator[str]:
    """Say in a line how preflight and cells agree, then each disagreement; nothing without one."""
    if told is None:
        return
    more = "".join(
        f", {number} cell(s) {word}"
        for word, number in (("undecided", told.undecided), ("not foretold", told.unforetold))
        if number
    )
    yield (
        f"preflight: {told.forecasts} predictions, {told.cells} cells, {told.refusals} refused as "
        f"foretold{more}; disagreements between preflight and cells: {told.disagreeing}"
    )
    shown = told.disagreements[:_DISAGREEMENTS]
    for one in shown:
        yield f"foretold otherwise: {one.cell_id}: {one.foretold}, but {one.ended}: {one.reason}"
    if told.disagreeing > len(shown):
        yield f"foretold otherwise: {told.disagreeing - len(shown)} more cell(s)"
