"""Run folders as commands are given them: a new one to write, an old one to read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from sandbox.errors import (
    CacheUnusable,
    CouldNotFindOut,
    NothingSelected,
    UsageError,
)
from sandbox.evidence.cell import RunRecord
from sandbox.evidence.folder import CellFiles, attempt_folders, find_cells, read_cell, read_run

RESULTS = Path("results")
"""Where runs are kept when nobody says another place."""
SIDES = ("ours", "defaults")
"""The two runs of `sandbox egress`, in the folder that it was given."""


def new_folder(folder: Path) -> Path:
    """Make the results folder; results are never mixed with earlier ones."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        raise UsageError(
            f"the results folder {folder} exists already", cure="give a new --output"
        ) from error
    except OSError as error:
        raise CacheUnusable(
            f"the results folder {folder} cannot be made: {error.strerror}",
            cure="give an --output on a disk with space that you may write to",
        ) from error
    return folder.resolve()


def record_of(folder: Path) -> RunRecord:
    """Return the record of a run folder; raises UsageError when it is none."""
    record = read_run(folder) if folder.is_dir() else None
    if record is None:
        raise UsageError(f"{folder} is no run folder", cure="give the folder that --output named")
    return record


def cells_in(folders: Sequence[Path]) -> Iterator[CellFiles]:
    """Give the readable cells of runs with their repetitions, or single ones; the judge tells more.

    Raises:
        NothingSelected: there is none.
    """
    runs = [run for folder in folders for run in (folder, *(folder / side for side in SIDES))]
    found = _readable(
        cell for run in runs for part in attempt_folders(run) for cell in find_cells(part)
    )
    first = next(found, None)
    if first is None:
        places = " and ".join(map(str, folders))
        raise NothingSelected(
            f"there is no cell in {places}", cure="give the folder that --output named"
        )
    yield first
    yield from found


def _readable(folders: Iterable[Path]) -> Iterator[CellFiles]:
    for folder in folders:
        try:
            yield read_cell(folder)
        except CouldNotFindOut:
            continue
