"""Run folders as commands are given them: a new one to write, an old one to read."""

from __future__ import annotations

from pathlib import Path

from sandbox.errors import CacheUnusable, UsageError
from sandbox.evidence.cell import RunRecord
from sandbox.evidence.folder import read_run

RESULTS = Path("results")
"""Where runs are kept when nobody says another place."""


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
