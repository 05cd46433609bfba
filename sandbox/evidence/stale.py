"""Stale baseline entries: what a run shows not to fail any more, with the near miss named."""

from __future__ import annotations

import datetime as dt
import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from sandbox.evidence.baseline import Baseline, KnownFailure
from sandbox.evidence.results import CellResult, CellState, StaleEntry
from sandbox.evidence.verdict import CELL_RUN, Status


@dataclass(frozen=True)
class Marks:
    """What one cell says of the baseline's entries, which are numbered as they stand.

    ``failing`` and ``fine`` are the entries about a verdict of the cell that does or does not fail,
    ``here`` those whose glob matches a cell with open failures, ``open`` the checks of these.
    """

    failing: tuple[int, ...] = ()
    fine: tuple[int, ...] = ()
    here: tuple[int, ...] = ()
    open: tuple[str, ...] = ()


def marks(baseline: Baseline, cell: CellResult) -> Marks:
    """Return what a cell says of the entries: everything that ``Staleness`` needs of it.

    An entry about cells that were not run or never got its check is left alone: the run says
    nothing about it.
    """
    bad: dict[str, bool] = {}
    for verdict in cell.verdicts:
        fails = verdict.status in (Status.FAIL, Status.ERROR)
        bad[verdict.check] = bad.get(verdict.check, False) or fails
    if CELL_RUN not in bad and cell.state not in (CellState.REFUSED, CellState.ERROR):
        bad[CELL_RUN] = False
    opened = tuple(dict.fromkeys(verdict.check for verdict in cell.unknown_failures))
    failing, fine, here = list[int](), list[int](), list[int]()
    for number, entry in enumerate(baseline.known):
        if not (opened or entry.check in bad) or not fnmatchcase(cell.cell_id, entry.cell):
            continue
        if entry.check in bad:
            (failing if bad[entry.check] else fine).append(number)
        if opened:
            here.append(number)
    return Marks(tuple(failing), tuple(fine), tuple(here), opened)


class Staleness:
    """Gathers the marks of a run's cells; its size depends on the baseline and checks alone."""

    def __init__(self, baseline: Baseline) -> None:
        self._known = baseline.known
        self._fine: set[int] = set()
        self._failing: set[int] = set()
        self._here: dict[int, dict[str, None]] = {}
        self._first: dict[str, str] = {}

    def add(self, cell_id: str, found: Marks) -> None:
        """Take what one cell says."""
        self._fine.update(found.fine)
        self._failing.update(found.failing)
        for check in found.open:
            self._first.setdefault(check, cell_id)
        for number in found.here:
            self._here.setdefault(number, {}).update(dict.fromkeys(found.open))

    def entries(self, today: dt.date) -> tuple[StaleEntry, ...]:
        """Return the entries about verdicts of which none fails or is an error.

        What fails only sometimes is none of them.
        """
        return tuple(
            self._stale(number, entry, today)
            for number, entry in enumerate(self._known)
            if number in self._fine and number not in self._failing and not entry.sometimes
        )

    def _stale(self, number: int, entry: KnownFailure, today: dt.date) -> StaleEntry:
        reason = entry.reason
        if entry.is_expired(today):
            reason = f"{reason} (expired on {entry.expires})"
        return StaleEntry(
            cell=entry.cell,
            check=entry.check,
            reason=reason,
            near=self._near(number, entry),
            link=entry.link,
        )

    def _near(self, number: int, entry: KnownFailure) -> str | None:
        """Name an uncovered failure that the entry may have meant."""
        first = self._first.get(entry.check)
        if first is not None:
            return f"{entry.check} fails in {first}, which the glob {entry.cell!r} does not match"
        here = list(self._here.get(number, ()))
        if here:
            close = difflib.get_close_matches(entry.check, here, n=1, cutoff=0.0)[0]
            return f"{close} fails in a cell that {entry.cell!r} matches"
        return None


def stale_entries(
    baseline: Baseline, cells: Iterable[CellResult], today: dt.date
) -> tuple[StaleEntry, ...]:
    """Return the stale entries of judged cells."""
    gathered = Staleness(baseline)
    for cell in cells:
        gathered.add(cell.cell_id, marks(baseline, cell))
    return gathered.entries(today)
