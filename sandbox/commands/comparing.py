"""Holding the cells of two runs against each other, in this process or several.

Cells have a name, so neither run is held: of each pair that was judged what differs stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sandbox.commands.spread import chunks, in_order
from sandbox.evidence.compare import Pair, Placed, pair
from sandbox.evidence.judge import Judge, Place, Sources


@dataclass(frozen=True)
class Where:
    """A cell of one run: its place in the run's order, and whether it was planned."""

    place: int
    planned: bool


@dataclass(frozen=True)
class Two:
    """A cell to hold against itself; None: that run does not have it."""

    name: str
    before: Where | None
    after: Where | None


@dataclass(frozen=True, kw_only=True)
class Both:
    """What is the same for all cells; it is sent to other processes."""

    judge: Judge
    before: Place
    after: Place


def pairs(
    judge: Judge, before: Sources, after: Sources, *, processes: int | None = None
) -> Iterator[Pair]:
    """Yield the cells of the run before in its order, then those that are only after in theirs.

    Args:
        judge: of both.
        before: the cells of one run, or one cell.
        after: those of the other.
        processes: how many judge (default: one a core, when there are cells enough for them).

    Raises:
        UsageError: two baseline entries contradict each other.
        CouldNotFindOut: a process that judged was killed.
    """
    both = Both(judge=judge, before=before.place, after=after.place)
    old, new = _places(judge, before), _places(judge, after)
    names = [*old, *(name for name in new if name not in old)]

    def twos(chunk: Sequence[str]) -> list[Two]:
        return [Two(name, _where(before, old, name), _where(after, new, name)) for name in chunk]

    calls = (partial(compare_chunk, both, twos(chunk)) for chunk in chunks(names))
    return in_order(calls, cells=len(old) + len(new), module=__name__, processes=processes)


def compare_chunk(both: Both, cells: Sequence[Two]) -> list[Pair]:
    """Judge some cells of both runs and say what differs."""
    return [
        pair(
            cell.name,
            _judged(both.judge, both.before, cell.name, cell.before),
            _judged(both.judge, both.after, cell.name, cell.after),
        )
        for cell in cells
    ]


def _judged(judge: Judge, place: Place, name: str, where: Where | None) -> Placed | None:
    if where is None:
        return None
    return Placed(where.place, judge.cell(name, place.folders(name), planned=where.planned))


def _places(judge: Judge, found: Sources) -> dict[str, int]:
    """Return the places of cells by their ids; one cell's own folder may have any name."""
    names = found.names
    if found.place.single:
        results = [judge.cell(one, found.place.folders(one), planned=False) for one in names]
        names = tuple(result.cell_id for result in results)
    return {name: place for place, name in enumerate(names)}


def _where(found: Sources, places: Mapping[str, int], name: str) -> Where | None:
    place = places.get(name)
    return None if place is None else Where(place, place < found.planned)
