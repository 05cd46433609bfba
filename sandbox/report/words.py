"""Words that all reports share: a cell in one word, a run in one line, findings in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sandbox.evidence.results import CellResult, CellState, RunVerdicts, split_id
from sandbox.evidence.verdict import Status, Verdict


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


def findings(run: RunVerdicts) -> Iterator[Finding]:
    """Yield every non-pass: what nobody knew of, what the baseline has; then what was retried."""
    found = [Finding(cell.cell_id, v) for cell in run.cells for v in cell.non_passes]
    yield from (finding for finding in found if finding.verdict.known is None)
    yield from (finding for finding in found if finding.verdict.known is not None)
    yield from (Finding(cell.cell_id, v) for cell in run.cells for v in cell.retried)


def totals(run: RunVerdicts) -> str:
    """Say the run in one line."""
    states = ", ".join(f"{n} {state}" for state, n in run.summary.cells.items() if n)
    tiers = ", ".join(f"{tier} {score}" for tier, score in run.summary.tiers.items())
    count = run.summary.stale
    stale = f"; {count} stale baseline entr{'y' if count == 1 else 'ies'}" if count else ""
    return f"{len(run.cells)} cells: {states}; checks passed: {tiers}{stale}"


@dataclass(frozen=True)
class Matrix:
    """The cells of a run as harness and image by scenario, in the order of the plan."""

    rows: tuple[tuple[str, str], ...]
    scenarios: tuple[str, ...]
    cells: dict[tuple[str, str, str], CellResult]


def matrix(run: RunVerdicts) -> Matrix:
    """Arrange a run's cells."""
    cells = {split_id(cell.cell_id): cell for cell in run.cells}
    return Matrix(
        rows=tuple(dict.fromkeys((harness, image) for harness, image, _ in cells)),
        scenarios=tuple(dict.fromkeys(scenario for _, _, scenario in cells)),
        cells=cells,
    )


def version_of(run: RunVerdicts, harness: str, image: str) -> str:
    """Return the pinned version that ran in these cells, or an empty text when none did."""
    for cell in run.cells:
        pin = cell.record.pin if cell.record is not None else None
        if pin is not None and split_id(cell.cell_id)[:2] == (harness, image):
            return pin.version
    return ""
