"""Stale baseline entries: what a run shows not to fail any more, with the near miss named."""

from __future__ import annotations

import datetime as dt
import difflib
from collections.abc import Sequence
from fnmatch import fnmatchcase

from sandbox.evidence.baseline import Baseline, KnownFailure
from sandbox.evidence.results import CellResult, CellState, StaleEntry
from sandbox.evidence.verdict import CELL_RUN, Status, Tier, Verdict


def stale_entries(
    baseline: Baseline, cells: Sequence[CellResult], today: dt.date
) -> tuple[StaleEntry, ...]:
    """Return the entries that match judged verdicts of which none fails or is an error.

    An entry whose cells are not in the run, were not run or never got this check is left alone:
    the run says nothing about it.
    """
    stale = []
    for entry in baseline.known:
        matched = [verdict for cell in cells for verdict in _about(entry, cell)]
        if matched and not any(v.status in (Status.FAIL, Status.ERROR) for v in matched):
            stale.append(_stale(entry, cells, today))
    return tuple(stale)


def _about(entry: KnownFailure, cell: CellResult) -> list[Verdict]:
    found = [v for v in cell.verdicts if entry.covers(cell.cell_id, v.check)]
    if not found and entry.covers(cell.cell_id, CELL_RUN) and _was_run(cell):
        return [_ran()]
    return found


def _was_run(cell: CellResult) -> bool:
    return cell.state not in (CellState.REFUSED, CellState.ERROR)


def _ran() -> Verdict:
    return Verdict(check=CELL_RUN, tier=Tier.P0, kind="health", group="run", status=Status.PASS)


def _stale(entry: KnownFailure, cells: Sequence[CellResult], today: dt.date) -> StaleEntry:
    reason = entry.reason
    if entry.is_expired(today):
        reason = f"{reason} (expired on {entry.expires})"
    return StaleEntry(
        cell=entry.cell,
        check=entry.check,
        reason=reason,
        near=_near(entry, cells),
        link=entry.link,
    )


def _near(entry: KnownFailure, cells: Sequence[CellResult]) -> str | None:
    """Name an uncovered failure that the entry may have meant."""
    open_failures = [
        (cell.cell_id, verdict.check) for cell in cells for verdict in cell.unknown_failures
    ]
    for cell_id, check in open_failures:
        if check == entry.check:
            return f"{check} fails in {cell_id}, which the glob {entry.cell!r} does not match"
    here = [check for cell_id, check in open_failures if fnmatchcase(cell_id, entry.cell)]
    if here:
        close = difflib.get_close_matches(entry.check, here, n=1, cutoff=0.0)[0]
        return f"{close} fails in a cell that {entry.cell!r} matches"
    return None
