"""The order in which a plan's cells begin: the longest first, as far as memory has room."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from sandbox.conformance.estimate import Estimates
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.room import Room
from sandbox.conformance.scenarios import SCENARIOS

_LOOKED_AT = 64
"""Cells from the front of which one is taken that fits, when the first one does not."""


class Queue:
    """The cells that have not begun: those that wait beside those that work.

    A cell whose deadline must expire takes that long on any machine and leaves the processors idle
    meanwhile. Half of the jobs, rounded up, are such cells while there are others, so that the rest
    of the plan is done beside them.

    A cell begins only if its expected peak of memory fits beside those of the cells that run; when
    nothing runs, one always may. Cells that fit go before one that does not, but only so many that
    it does not wait for all of them.
    """

    def __init__(
        self, plan: Sequence[CellSpec], estimates: Estimates, *, jobs: int, room: Room
    ) -> None:
        self._estimates = estimates
        self._room = room
        self._most_waiting = (jobs + 1) // 2
        self._patience = 2 * jobs
        self._passed = 0
        ordered = sorted(plan, key=estimates.seconds, reverse=True)
        self._waiting = deque(cell for cell in ordered if _waits(cell))
        self._working = deque(cell for cell in ordered if not _waits(cell))

    def __len__(self) -> int:
        """Return how many cells have not begun."""
        return len(self._waiting) + len(self._working)

    def next(self, running: Iterable[CellSpec]) -> CellSpec | None:
        """Take the cell to begin beside those that run; None when none is left, or none fits."""
        busy = list(running)
        used = [self._estimates.peak_mib(cell) for cell in busy]
        lanes = list(self._lanes(busy))
        for lane, number, cell in self._candidates(lanes):
            if self._room.fits(self._estimates.peak_mib(cell), used):
                first = lane is lanes[0] and number == 0
                self._passed = 0 if first else self._passed + 1
                del lane[number]
                return cell
        return None

    def _lanes(self, busy: Sequence[CellSpec]) -> Iterator[deque[CellSpec]]:
        full = sum(_waits(cell) for cell in busy) >= self._most_waiting
        if self._waiting and not (full and self._working):
            yield self._waiting
        if self._working:
            yield self._working

    def _candidates(
        self, lanes: Sequence[deque[CellSpec]]
    ) -> Iterator[tuple[deque[CellSpec], int, CellSpec]]:
        """Yield what may begin next; the first alone when enough went before it."""
        most = 1 if self._passed >= self._patience else _LOOKED_AT
        for lane in lanes[:1] if most == 1 else lanes:
            for number, cell in enumerate(list(islice(lane, most))):
                yield lane, number, cell


def _waits(cell: CellSpec) -> bool:
    return SCENARIOS[cell.scenario].expectation.timed_out
