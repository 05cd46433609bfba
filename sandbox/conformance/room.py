"""How many cells fit on the machine: processors for the number of jobs, memory for each start.

Sources of the formats: proc(5) for ``/proc/meminfo``, the kernel's cgroup-v2.rst and
cgroup-v1/memory.rst for the limits of the control group that this process is in.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.engine.client import EngineInfo

CLIENT_MIB = 80
CLIENT_PER_CELL_MIB = 3
"""What this process takes itself, and more for each cell that runs."""
_KEPT_FREE = 0.1
"""Part of the memory that cells never get: figures of earlier runs are no promises."""

Free = Callable[[], float | None]


@dataclass(frozen=True)
class Room:
    """Memory for cells in MiB.

    ``budget_mib`` is what all cells together may take (None: nobody knows), ``free`` tells what is
    free at the moment, others' use taken off.
    """

    budget_mib: float | None
    free: Free

    def fits(self, need_mib: float, running_mib: Sequence[float]) -> bool:
        """Whether a cell may begin beside those that run; the only one always may."""
        if not running_mib or self.budget_mib is None:
            return True
        if sum(running_mib) + need_mib > self.budget_mib:
            return False
        free = self.free()
        return free is None or need_mib <= free


def room_for(info: EngineInfo, *, jobs: int, free: Free | None = None) -> Room:
    """Return the room where the engine's sandboxes run: on this machine, or on the engine's own."""
    if not info.is_local:
        total = info.memory_mib
        budget = None if total is None else total * (1 - _KEPT_FREE)
        return Room(budget, lambda: None)
    ask = free or free_mib
    now = ask()
    own = CLIENT_MIB + CLIENT_PER_CELL_MIB * jobs
    return Room(None if now is None else max(0.0, now * (1 - _KEPT_FREE) - own), ask)


def default_jobs(info: EngineInfo, peaks_mib: Sequence[float], *, free: Free | None = None) -> int:
    """Return how many cells run at a time when nobody says: one at the least.

    Twice the processors and one, since half of the cells may only wait; fewer where memory has no
    room for as many of the lightest.
    """
    processors = len(os.sched_getaffinity(0)) if info.is_local else info.processors or 1
    most = 2 * processors + 1
    budget = room_for(info, jobs=most, free=free).budget_mib
    if budget is None or not peaks_mib:
        return most
    return max(1, min(most, int(budget // max(1.0, min(peaks_mib)))))


def free_mib(root: Path = Path("/")) -> float | None:
    """Return how much memory this process and its containers may still take, in MiB.

    The least of what the machine has available and what the control group leaves. None: the kernel
    does not say.
    """
    found = [_available(root / "proc/meminfo"), *_left_of_groups(root / "sys/fs/cgroup")]
    known = [mib for mib in found if mib is not None]
    return min(known) if known else None


def _available(meminfo: Path) -> float | None:
    try:
        rows = meminfo.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for row in rows:
        if row.startswith("MemAvailable:"):
            return int(row.split()[1]) / 1024
    return None


def _left_of_groups(root: Path) -> list[float | None]:
    """Return what the limits of both versions leave; file cache that can go counts as free."""
    return [
        _left(root, "memory.max", "memory.current", "inactive_file"),
        _left(
            root / "memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "total_inactive_file",
        ),
    ]


def _left(folder: Path, limit: str, usage: str, cache: str) -> float | None:
    try:
        most, used = (folder / limit).read_text().strip(), (folder / usage).read_text().strip()
        rows = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return None
    if not most.isdecimal() or not used.isdecimal():
        return None  # "max"
    idle = next((int(row.split()[1]) for row in rows if row.split()[0] == cache), 0)
    return max(0.0, (int(most) - int(used) + idle) / 2**20)
