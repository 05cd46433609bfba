"""``timings.json``: what each cell of a run took, for the order and the shards of later runs.

::

    {"schema_version": "1.0", "cells": {
    "codex/debian-12/tool_success": {"seconds": 3.2, "peak_mib": 64},
    ...}}

It is written beside the reports, a line for each cell, so that a project may keep one under version
control: shards that are cut with the same file are the same shards.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from sandbox.errors import CouldNotFindOut, UsageError
from sandbox.evidence.folder import brief, cell_id_of, find_cells, read_cell
from sandbox.evidence.records import Record

NAME = "timings.json"


class CellCost(Record):
    """Wall-clock seconds from a cell's start to its end; MiB of memory at its sandbox's peak."""

    seconds: float = Field(ge=0)
    peak_mib: int | None = Field(default=None, ge=0)


class Costs(Record):
    """The file."""

    schema_version: Literal["1.0"] = "1.0"
    cells: dict[str, CellCost] = Field(default_factory=dict)


def cost_line(cell_id: str, cost: CellCost) -> str:
    """Return the line of one cell."""
    return f"{json.dumps(cell_id)}: {cost.model_dump_json(exclude_none=True)}"


COSTS_FRAME = ('{"schema_version": "1.0", "cells": {\n', "\n}}\n")
"""What stands before and after the lines of the cells, which commas part."""


def read_costs(path: Path) -> dict[str, CellCost]:
    """Read a ``timings.json``, or that of a run folder; of one without it the cells are read.

    Raises:
        UsageError: there is neither a file nor a run there, or it is something else.
    """
    file = path / NAME if path.is_dir() else path
    if not file.is_file():
        return dict(_recorded(path))
    try:
        return Costs.model_validate_json(file.read_bytes()).cells
    except ValidationError as error:
        raise UsageError(
            f"{file} holds no timings: {brief(error)}",
            cure="give a run folder, or its timings.json",
        ) from error


def earlier_costs(results: Path, *, most: int = 8) -> dict[str, CellCost]:
    """Return the newest cost of each cell from the newest runs below a folder of results."""
    files = sorted(results.glob(f"*/{NAME}"), key=lambda path: path.stat().st_mtime, reverse=True)
    found: dict[str, CellCost] = {}
    for file in files[:most]:
        try:
            found = read_costs(file) | found
        except UsageError:  # of another version: it cannot help, and need not
            continue
    return found


def _recorded(run: Path) -> Iterator[tuple[str, CellCost]]:
    if not (run / "run.json").is_file():
        raise UsageError(
            f"{run} holds no timings", cure="give a run folder, or the timings.json of one"
        )
    for folder in find_cells(run):
        try:
            files = read_cell(folder)
        except CouldNotFindOut:
            continue
        used = files.witness.resources if files.witness is not None else None
        yield (
            cell_id_of(run, folder),
            cost(
                files.cell.started_at,
                files.cell.completed_at,
                None if used is None else used.peak_memory_mib,
            ),
        )


def cost(started_at: float, completed_at: float, peak_mib: float | None) -> CellCost:
    """Return what a cell took, in figures that are worth keeping."""
    return CellCost(
        seconds=round(max(0.0, completed_at - started_at), 1),
        peak_mib=None if peak_mib is None else round(peak_mib),
    )
