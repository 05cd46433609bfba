"""The stages of a large run, each a process of its own, so that its memory can be measured.

python -m tests.scale.stages STAGE FOLDER CELLS
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from pathlib import Path

from sandbox.cli import main
from sandbox.conformance.estimate import Estimates
from sandbox.conformance.queue import Queue
from sandbox.conformance.room import Room
from sandbox.conformance.shard import Shard, sharded
from sandbox.evidence.costs import CellCost
from tests.scale.synthetic import make_run, parts_of, synthetic_plan

PARTS = 7
"""Not a divisor of what the odd cells recur by: each part has all kinds."""
SHARDS = 16
REPEATED = 50
"""Of so many cells one is in the run of repeated cells, which are all of the first part."""


def make(folder: Path, cells: int) -> None:
    """Write the parts of the run, and the run of repeated cells."""
    plan = synthetic_plan(cells)
    parts = list(parts_of(plan, PARTS))
    for number, part in enumerate(parts):
        make_run(folder / f"part{number}", plan, part, links=folder / "links" / str(number))
    few = parts[0][: max(1, cells // REPEATED)]
    make_run(folder / "repeated", few, few, links=folder / "links" / "repeated", attempts=2)


def plan(folder: Path, cells: int) -> None:
    """Plan, cut into shards by timings, and take every cell from the queue."""
    found = synthetic_plan(cells)
    costs = {
        cell.cell_id: CellCost(seconds=1 + n % 60, peak_mib=100 + n % 500)
        for n, cell in enumerate(found)
    }
    estimates = Estimates(costs, {})
    cut = [
        sharded(found, Shard(number=k, count=SHARDS), seconds=estimates.seconds)
        for k in range(1, SHARDS + 1)
    ]
    assert sum(map(len, cut)) == cells
    queue = Queue(found, estimates, jobs=8, room=Room(4000.0, lambda: None))
    running = []
    while (cell := queue.next(running)) or running:
        if cell is not None:
            running.append(cell)
        if cell is None or len(running) == 8:
            running.pop(0)
    assert len(queue) == 0


def part(folder: Path, cells: int) -> None:
    """Judge one part by itself, as a shard does: a seventh of the cells."""
    _quiet("judge", str(folder / "part0"))


def merge(folder: Path, cells: int) -> None:
    """Merge the parts: link, judge, write all reports."""
    parts = [str(folder / f"part{number}") for number in range(PARTS)]
    _quiet("merge", *parts, "--output", str(folder / "merged"))


def repeats(folder: Path, cells: int) -> None:
    """Judge the run whose cells were repeated."""
    _quiet("judge", str(folder / "repeated"))


def diff(folder: Path, cells: int) -> None:
    """Hold a part and the run of repeated cells against each other."""
    _quiet("diff", str(folder / "part0"), str(folder / "repeated"))


STAGES: dict[str, Callable[[Path, int], None]] = {
    "make": make,
    "plan": plan,
    "part": part,
    "merge": merge,
    "repeats": repeats,
    "diff": diff,
}


def _quiet(*words: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        code = main(list(words))
    assert code in (0, 1, 4), f"{words[0]} ended with {code}"


if __name__ == "__main__":
    STAGES[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
