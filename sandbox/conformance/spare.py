"""Whether the processors have time for one cell more than the usual number of jobs.

Many cells mostly wait: for a back-off, a silence, a deadline. How many do, nobody knows before;
whether the processors are idle meanwhile, the kernel counts.

Source of the format: proc_stat(5): of each ``cpuN`` line the fourth number is idle time, the fifth
time in which only I/O was waited for, in ticks of ``sysconf(_SC_CLK_TCK)``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from pathlib import Path

_LOOK_S = 2.0
"""So long the processors were idle, and so long ago was the last begin: what starts is seen."""
_IDLE = 0.5
"""The part of the processors that had nothing to do."""


class Spare:
    """Lets cells begin beyond the usual jobs, one by one, while half of the processors idle.

    Args:
        jobs: cells that may run whatever the processors do.
        most: cells that may run at the most.
        processors: how many there are.
        idle_s: seconds that they were idle, all together, since any moment; None: nobody knows.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        *,
        jobs: int,
        most: int,
        processors: int,
        idle_s: Callable[[], float | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.jobs = jobs
        self.most = max(jobs, most)
        self._processors = processors
        self._idle_s = idle_s
        self._clock = clock
        self._since = (clock(), idle_s())

    def has_place(self, running: int) -> bool:
        """Whether one cell more may begin beside so many."""
        if running < self.jobs:
            return True
        if running >= self.most or self._clock() - self._since[0] < _LOOK_S:
            return False
        return self._idled() >= _IDLE * self._processors

    def begun(self) -> None:
        """Say that a cell began: the processors are looked at anew."""
        self._since = (self._clock(), self._idle_s())

    def _idled(self) -> float:
        """Return how many processors were idle since the last look, as a mean; look anew."""
        (then, before), now = self._since, (self._clock(), self._idle_s())
        self._since = now
        if before is None or now[1] is None:
            return 0.0
        return (now[1] - before) / (now[0] - then)


def no_spare(jobs: int) -> Spare:
    """Return that of a run with so many cells at a time and never more."""
    return Spare(jobs=jobs, most=jobs, processors=1, idle_s=lambda: None)


def spare_here(jobs: int) -> Spare:
    """Return that of the processors that this process may use: two cells more for each."""
    mine = os.sched_getaffinity(0)
    return Spare(
        jobs=jobs,
        most=jobs + 2 * len(mine),
        processors=len(mine),
        idle_s=lambda: idle_seconds(mine),
    )


def idle_seconds(processors: Collection[int], stat: Path = Path("/proc/stat")) -> float | None:
    """Return how long these processors had nothing to do since the start, all together."""
    try:
        rows = [row.split() for row in stat.read_text(encoding="ascii").splitlines()]
        names = {f"cpu{number}" for number in processors}
        ticks = [int(row[4]) + int(row[5]) for row in rows if row and row[0] in names]
    except (OSError, ValueError, IndexError):
        return None
    return sum(ticks) / os.sysconf("SC_CLK_TCK") if ticks else None
