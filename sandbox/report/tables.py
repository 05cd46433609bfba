"""The cells of a run arranged: harness and image by scenario, or counts where they are too many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sandbox.evidence.results import CellState
from sandbox.report.share import CellLine

MOST_CELLS = 5_000
"""Cells that a table for people shows one by one; of more it counts the states."""


@dataclass
class Row:
    """The cells of one harness and image by scenario, and the version that ran in them."""

    harness: str
    image: str
    version: str = ""
    cells: dict[str, CellLine] = field(default_factory=dict)


@dataclass(frozen=True)
class Matrix:
    """All cells, in the order of the plan."""

    rows: tuple[Row, ...]
    scenarios: tuple[str, ...]


def matrix(lines: Iterable[CellLine]) -> Matrix:
    """Arrange a run's cells."""
    rows: dict[tuple[str, str], Row] = {}
    scenarios: dict[str, None] = {}
    for line in lines:
        harness, image, scenario = line.path
        row = rows.setdefault((harness, image), Row(harness, image))
        row.cells[scenario] = line
        row.version = row.version or line.version
        scenarios[scenario] = None
    return Matrix(rows=tuple(rows.values()), scenarios=tuple(scenarios))


@dataclass(frozen=True)
class HarnessCount:
    """How many cells of a harness there are in each state, over all images."""

    harness: str
    images: int
    cells: int
    states: Counter[CellState]


def counts(lines: Iterable[CellLine]) -> Sequence[HarnessCount]:
    """Count the cells of each harness."""
    states: dict[str, Counter[CellState]] = {}
    images: dict[str, set[str]] = {}
    for line in lines:
        harness, image, _ = line.path
        states.setdefault(harness, Counter())[line.state] += 1
        images.setdefault(harness, set()).add(image)
    return [
        HarnessCount(harness, len(images[harness]), found.total(), found)
        for harness, found in states.items()
    ]
