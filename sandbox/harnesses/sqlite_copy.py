"""Reads a harness's SQLite database from a copy: the evidence itself is never opened.

Such a database is in WAL mode, and a killed harness leaves most of it in ``-wal``. Opening a
database writes to it (the log is applied, ``-shm`` is made), so both files are copied first,
together. A tool of the harness may have written anything into it.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from sandbox.evidence.observations import Gap
from sandbox.harnesses.native import unparseable

MOST_STEPS = 1_000
"""Times 100,000 instructions: a million rows, or two seconds."""

_STEP = 100_000
_SUFFIXES = ("", "-wal")  # SQLite makes -shm again, and a stale one would only mislead it

RowT = TypeVar("RowT", bound=BaseModel)


def copy_database(path: Path, copy: Path) -> None:
    """Copy a database with its log, as far as they are regular files."""
    for suffix in _SUFFIXES:
        source = path.with_name(path.name + suffix)
        if source.is_file() and not source.is_symlink():
            shutil.copyfile(source, copy.with_name(copy.name + suffix))


@contextmanager
def opened_copy(path: Path, *, most_steps: int) -> Iterator[sqlite3.Connection]:
    """Open a copy of a database, see ``distrusting``; it is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="sandbox-sqlite-") as folder:
        copy = Path(folder) / "copy.db"
        copy_database(path, copy)
        with distrusting(copy, most_steps=most_steps) as connection:
            yield connection


@contextmanager
def distrusting(copy: Path, *, most_steps: int = MOST_STEPS) -> Iterator[sqlite3.Connection]:
    """Open a database that may hold anything: it runs no code of its own, and ends.

    Raises:
        sqlite3.Error: it is no database.
    """
    with closing(sqlite3.connect(f"{copy.as_uri()}?mode=rw", uri=True)) as connection:
        steps = count()
        connection.set_progress_handler(lambda: next(steps) >= most_steps, _STEP)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        yield connection


def add_row(
    rows: list[RowT],
    gaps: list[Gap],
    model: type[RowT],
    where: str,
    values: Mapping[str, object],
) -> None:
    """Add a foreign row as a record, or a gap that says what is wrong with it.

    Args:
        rows: where the record goes.
        gaps: where the gap goes.
        model: what a row has to be.
        where: table and id, for the gap.
        values: the row's columns.
    """
    try:
        rows.append(model.model_validate(values))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, problem["loc"]))
        gaps.append(unparseable(f"{where}: {place}: {problem['msg']}"))
