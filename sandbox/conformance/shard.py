"""Shards: a plan cut into n parts of about the same time, always the same ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from heapq import heapreplace

from sandbox.conformance.plan import CellSpec
from sandbox.errors import NothingSelected, UsageError
from sandbox.evidence.records import Record

_LEAST_S = 0.1


class Shard(Record):
    """Part ``number`` of ``count``, from 1."""

    number: int
    count: int

    def __str__(self) -> str:
        """Write it as it is given: ``2/3``."""
        return f"{self.number}/{self.count}"


def parse_shard(text: str) -> Shard:
    """Read ``k/n``.

    Raises:
        UsageError: it is something else, or k is not between 1 and n.
    """
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
    shard = Shard(number=int(found[1]), count=int(found[2])) if found else None
    if shard is None or not 1 <= shard.number <= shard.count:
        raise UsageError(
            f"there is no shard {text!r}", cure="give k/n with k from 1 to n, for instance 1/3"
        )
    return shard


def sharded(
    plan: Sequence[CellSpec], shard: Shard, *, seconds: Callable[[CellSpec], float]
) -> tuple[CellSpec, ...]:
    """Return the cells of one shard in the order of the plan.

    Each cell is in exactly one shard. Which one depends on nothing but the plan's cells and
    ``seconds``, which estimates a cell's duration; so all shards must be cut with the same.

    Raises:
        NothingSelected: there are more shards than cells.
    """
    # of cells that take no time at all one shard would get every one
    times = {cell.cell_id: max(_LEAST_S, seconds(cell)) for cell in plan}
    loads = [(0.0, number) for number in range(1, shard.count + 1)]
    mine = set()
    for name in sorted(times, key=lambda name: (-times[name], name)):
        load, number = loads[0]
        heapreplace(loads, (load + times[name], number))
        if number == shard.number:
            mine.add(name)
    if not mine:
        raise NothingSelected(
            f"shard {shard} is empty: the plan has {len(plan)} cell(s)", cure="use fewer shards"
        )
    return tuple(cell for cell in plan if cell.cell_id in mine)
