"""Which cell runs where: slots, lost workers, second attempts, and answers that come late.

No clock, no network: the driver tells what happened, and is told what to begin.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.conformance.plan import CellSpec
from sandbox.evidence.cell import Refusal

ATTEMPTS = 3
"""How many workers may be lost with a cell before it is recorded as an error."""
_FAILURES_IN_A_ROW = 2


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One try of a cell at one worker, after all that was lost before."""

    cell: CellSpec
    number: int
    worker: str
    earlier: tuple[Refusal, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GivenUp:
    """A cell that was lost too often."""

    cell: CellSpec
    earlier: tuple[Refusal, ...]


class Dispatch:
    """The state of a plan on a cluster.

    A cell counts as answered once, by whichever attempt is first; a second answer is refused.

    Args:
        cells: in the order in which they begin.
        attempts: after how many lost ones a cell is given up.
    """

    def __init__(self, cells: Sequence[CellSpec], *, attempts: int = ATTEMPTS) -> None:
        self._waiting = deque(cells)
        self._open = {cell.cell_id: cell for cell in cells}
        self._attempts = attempts
        self._slots: dict[str, int] = {}
        self._running: set[Attempt] = set()
        self._lost: set[Attempt] = set()
        self._earlier: dict[str, tuple[Refusal, ...]] = {}
        self._avoid: dict[str, set[str]] = {}
        self._begun: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._given_up: dict[str, GivenUp] = {}

    @property
    def open(self) -> bool:
        """Whether a cell has neither an answer nor been given up."""
        return len(self._open) > len(self._given_up)

    @property
    def running(self) -> frozenset[Attempt]:
        """The attempts whose answers are waited for."""
        return frozenset(self._running)

    @property
    def workers(self) -> frozenset[str]:
        """The workers that may be given cells."""
        return frozenset(self._slots)

    @property
    def given_up(self) -> tuple[GivenUp, ...]:
        """The cells that were lost too often, and whose late answers did not come either."""
        return tuple(self._given_up.values())

    def is_open(self, cell: CellSpec) -> bool:
        """Whether an answer for the cell is to be written."""
        return cell.cell_id in self._open

    def join(self, worker: str, slots: int) -> None:
        """Have a worker; one that comes back is still busy with what it was thought lost with."""
        self._slots[worker] = slots
        self._failures[worker] = 0

    def leave(self, worker: str, reason: str) -> tuple[Attempt, ...]:
        """Give up a worker; return the attempts that are lost with it."""
        self._slots.pop(worker, None)
        lost = tuple(one for one in self._running if one.worker == worker)
        for attempt in sorted(lost, key=lambda one: one.number):
            self._lose(attempt, reason)
        return lost

    def begin(self) -> tuple[Attempt, ...]:
        """Return the attempts to begin now: every free slot is filled while a cell waits."""
        begun: list[Attempt] = []
        while self._waiting:
            free = self._free()
            if not free:
                break
            cell = self._waiting.popleft()
            avoided = self._avoid.get(cell.cell_id, set())
            worker = min(free, key=lambda one: (one in avoided, -free[one], one))
            self._begun[cell.cell_id] += 1
            attempt = Attempt(
                cell=cell,
                number=self._begun[cell.cell_id],
                worker=worker,
                earlier=self._earlier.get(cell.cell_id, ()),
            )
            self._running.add(attempt)
            begun.append(attempt)
        return tuple(begun)

    def answer(self, attempt: Attempt) -> bool:
        """Take an answer; False: the cell had one already, and this one counts for nothing."""
        self._running.discard(attempt)
        self._lost.discard(attempt)
        self._failures[attempt.worker] = 0
        name = attempt.cell.cell_id
        if self._open.pop(name, None) is None:
            return False
        self._given_up.pop(name, None)
        if attempt.cell in self._waiting:  # thought lost, and waiting for another try
            self._waiting.remove(attempt.cell)
        return True

    def fail(self, attempt: Attempt, reason: str) -> bool:
        """Take the failure of a worker to do an attempt; True: the worker is left out from now.

        One that fails time after time would otherwise be given the whole plan.
        """
        if attempt in self._lost:
            self._lost.discard(attempt)
            return False
        self._lose(attempt, reason)
        self._lost.discard(attempt)
        self._failures[attempt.worker] += 1
        if self._failures[attempt.worker] < _FAILURES_IN_A_ROW:
            return False
        return self._slots.pop(attempt.worker, None) is not None

    def forget(self, worker: str) -> None:
        """Expect no late answer of a worker that is gone for good."""
        self._lost = {one for one in self._lost if one.worker != worker}

    def stop(self) -> None:
        """Begin nothing more."""
        self._waiting.clear()

    def _free(self) -> dict[str, int]:
        busy = Counter(one.worker for one in (*self._running, *self._lost))
        free = {name: slots - busy[name] for name, slots in self._slots.items()}
        return {name: number for name, number in free.items() if number > 0}

    def _lose(self, attempt: Attempt, reason: str) -> None:
        name = attempt.cell.cell_id
        self._running.discard(attempt)
        self._lost.add(attempt)
        if name not in self._open:
            return
        refusal = Refusal(kind="error", reason=reason)
        self._earlier[name] = (*self._earlier.get(name, ()), refusal)
        self._avoid.setdefault(name, set()).add(attempt.worker)
        if len(self._earlier[name]) >= self._attempts:
            self._given_up[name] = GivenUp(cell=attempt.cell, earlier=self._earlier[name])
        else:
            self._waiting.appendleft(attempt.cell)
