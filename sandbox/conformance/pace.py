"""How far a run is: cells done, how fast, and how long the rest will take."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable

from sandbox.conformance.estimate import Estimates
from sandbox.conformance.plan import CellSpec
from sandbox.evidence.cell import CellRecord

_LONG_S = 90.0


class Pace:
    """Counts the cells of a run as they end.

    The time left is measured by the expected seconds of the cells, not by their number: the longest
    go first. What a run cannot know before it is judged, it does not say: it counts cells that
    broke or were refused, and attempts that were repeated.

    Args:
        plan: the cells to run.
        estimates: how long they take.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        plan: Iterable[CellSpec],
        estimates: Estimates,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._expected = {cell.cell_id: max(0.1, estimates.seconds(cell)) for cell in plan}
        self._cells = len(self._expected)
        self._all = sum(self._expected.values())
        self._done = 0
        self._done_s = 0.0
        self._ends: Counter[str] = Counter()
        self._started = clock()

    def ended(self, record: CellRecord) -> None:
        """Take a cell that ended."""
        self._done += 1
        self._done_s += self._expected.pop(record.cell_id, 0.0)
        if record.refusal is not None:
            self._ends["broke" if record.refusal.kind == "error" else "refused"] += 1
        elif record.earlier_attempts:
            self._ends["flaky"] += 1

    def __str__(self) -> str:
        """Say it in a line: ``12/50 cells, 1 broke, 8.3 a minute, about 5 min left``."""
        parts = [f"{self._done}/{self._cells} cells"]
        parts += [f"{number} {end}" for end, number in sorted(self._ends.items())]
        passed = self._clock() - self._started
        if self._done and passed > 0:
            parts.append(f"{60 * self._done / passed:.1f} a minute")
            if self._done < self._cells:
                parts.append(f"about {_said(passed * self._left / self._done_s)} left")
        return ", ".join(parts)

    @property
    def _left(self) -> float:
        return self._all - self._done_s


def _said(seconds: float) -> str:
    if seconds < _LONG_S:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min"
