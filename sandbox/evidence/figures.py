"""Figures of a run: what each cell used, what it left alive, and how long its end took."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from sandbox.evidence.folder import CellFiles
from sandbox.evidence.footprint import counts, sorted_changes
from sandbox.evidence.records import Record

End = Literal["natural", "deadline", "stopped"]


class CellFigures(Record):
    """One cell; None: not to be seen.

    ``wall_by_phase`` and ``cpu_by_phase`` are seconds. ``disk_mib`` and ``inodes`` are the most
    that lay in the sandbox at the end of a phase. ``alive`` counts processes when the harness had
    ended, ``left`` those after the close. ``ending_s``: from the deadline or the request to stop
    until the last process was gone. ``changes`` counts files by owner (``footprint``).
    """

    cell_id: str
    harness: str
    image: str
    end: End | None
    wall_by_phase: dict[str, float]
    cpu_by_phase: dict[str, float]
    cpu_s: float | None
    peak_memory_mib: float | None
    memory_source: str | None
    disk_mib: float | None
    inodes: int | None
    alive: int | None
    left: int | None
    zombies: int | None
    ending_s: float | None
    without_route: int | None
    changes: dict[str, int]
    secrets: tuple[str, ...] = ()


def figures_of(files: CellFiles) -> CellFigures:
    """Gather a cell's figures from its records."""
    cell, seen, receipt = files.cell, files.witness, files.receipt
    use = () if seen is None else seen.use
    total = None if seen is None else seen.resources
    counters = None if seen is None else seen.network
    left = None if seen is None else seen.survivors
    zombies = None if seen is None else seen.zombies
    return CellFigures(
        cell_id=cell.cell_id,
        harness=cell.harness,
        image=cell.image,
        end=_end(files),
        wall_by_phase=cell.phases,
        cpu_by_phase=_steps([(one.phase, one.cpu_time_s) for one in use]),
        cpu_s=None if total is None else total.cpu_time_s,
        peak_memory_mib=None if total is None else total.peak_memory_mib,
        memory_source=None if total is None else total.source,
        disk_mib=_most(one.disk_mib for one in use),
        inodes=_whole(_most(one.inodes for one in use)),
        alive=next((one.processes for one in use if one.phase == "activate"), None),
        left=None if left is None else len(left),
        zombies=None if zombies is None else len(zombies),
        ending_s=None if receipt is None else receipt.ending_s,
        without_route=None if counters is None else counters.without_route,
        changes=counts(sorted_changes(files)),
        secrets=tuple(
            f"{one.secret}: {one.where} ({one.place})"
            for one in (() if seen is None else seen.secrets or ())
        ),
    )


_COLUMNS = (
    ("CPU s", 1),
    ("peak MiB", 0),
    ("disk MiB", 1),
    ("inodes", 0),
    ("alive after its own end", 0),
    ("after a deadline", 0),
    ("after a stop", 0),
    ("deadline or stop to last process gone, s", 1),
    ("zombies", 0),
    ("unexpected files", 0),
)
"""Name and decimal digits of each value."""

_Values = tuple[float | None, ...]


@dataclass
class _Row:
    most: _Values
    cells: int = 0


class FiguresTable:
    """The most that a cell had, for each harness and image; takes cells as they come."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], _Row] = {}

    def add(self, cell: CellFigures) -> None:
        """Take one execution of a cell."""
        values = _values(cell)
        row = self._rows.setdefault((cell.harness, cell.image), _Row(values))
        row.most = tuple(map(_most, zip(row.most, values, strict=True)))
        row.cells += 1

    def text(self) -> str:
        """Return a table in Markdown; nothing when no cell was added."""
        if not self._rows:
            return ""
        names = ("harness", "image", "cells", *(name for name, _ in _COLUMNS))
        lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
        for key, row in sorted(self._rows.items()):
            told = [
                _told(value, digits) for value, (_, digits) in zip(row.most, _COLUMNS, strict=True)
            ]
            lines.append(f"| {' | '.join((*key, str(row.cells), *told))} |")
        return "\n".join(lines) + "\n"


def figures_table(cells: Iterable[CellFigures]) -> str:
    """Return the table of these cells."""
    table = FiguresTable()
    for cell in cells:
        table.add(cell)
    return table.text()


def _values(cell: CellFigures) -> _Values:
    def left(end: End) -> int | None:
        return cell.left if cell.end == end else None

    return (
        cell.cpu_s,
        cell.peak_memory_mib,
        cell.disk_mib,
        cell.inodes,
        left("natural"),
        left("deadline"),
        left("stopped"),
        cell.ending_s,
        cell.zombies,
        cell.changes.get("unexpected", 0),
    )


def _end(files: CellFiles) -> End | None:
    receipt = files.receipt
    if receipt is None:
        return None
    if receipt.timed_out:
        return "deadline"
    return "stopped" if receipt.stopped else "natural"


def _steps(sums: Sequence[tuple[str, float | None]]) -> dict[str, float]:
    """Return what each phase added to a running sum."""
    steps, before = {}, 0.0
    for name, value in sums:
        if value is not None:
            steps[name] = round(value - before, 4)
            before = value
    return steps


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _told(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
