"""Reads Hermes' SQLite database from a copy: the evidence itself is never opened.

The database is in WAL mode, and a killed harness leaves most of it in ``-wal``. Opening a database
writes to it, so both files are copied first. Its full-text indexes are never touched: SQLite may
lack that extension here.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from sandbox.evidence.records import Gap
from sandbox.harnesses.native import json_value, unparseable

Seconds = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]

_STEP = 100_000
_MOST_STEPS = 1_000  # 10**8 instructions: a million rows, or two seconds
_SUFFIXES = ("", "-wal")  # SQLite makes -shm again, and a stale one would only mislead it


class Row(BaseModel):
    """A row of a foreign table: only the columns of use."""

    model_config = ConfigDict(frozen=True, extra="forbid")


RowT = TypeVar("RowT", bound=Row)


class SessionRow(Row):
    """One session; a subagent has a parent."""

    id: str
    parent_session_id: str | None = None
    started_at: Seconds | None = None
    end_reason: str | None = None


class MessageRow(Row):
    """One message. ``compacted``: a compaction took it out of the model's view."""

    id: int
    session_id: str
    role: str
    content: str | None = None
    tool_call_id: str | None = None
    tool_calls: str | None = None
    tool_name: str | None = None
    timestamp: Seconds | None = None
    finish_reason: str | None = None
    reasoning_content: str | None = None
    active: bool | None = None
    compacted: bool | None = None

    def calls(self) -> list[dict[str, JsonValue]]:
        """Return the tool calls of an answer.

        Raises:
            TypeError, ValueError, RecursionError: the column holds something else.
        """
        if not self.tool_calls:
            return []
        value = json_value(self.tool_calls)
        if not isinstance(value, list):
            raise TypeError("the tool calls are no list")
        calls = [call for call in value if isinstance(call, dict)]
        if len(calls) < len(value):
            raise TypeError("a tool call is no object")
        return calls


@dataclass
class Database:
    """Everything of use in the database, in the order in which it was made."""

    sessions: list[SessionRow] = field(default_factory=list)
    messages: list[MessageRow] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)


def read_database(path: Path, *, most_steps: int = _MOST_STEPS) -> Database:
    """Read a database; what cannot be read is a gap, never an error.

    Args:
        path: the database; its log is beside it.
        most_steps: give up after so many times 100,000 instructions.
    """
    found = Database()
    with _copied(path) as copy:
        try:
            with closing(sqlite3.connect(f"{copy.as_uri()}?mode=rw", uri=True)) as connection:
                _distrust(connection, most_steps)
                _read(connection, found, "sessions", SessionRow, found.sessions)
                _read(connection, found, "messages", MessageRow, found.messages)
        except sqlite3.Error as error:
            found.gaps.append(unparseable(f"{path.name}: {error}"))
    return found


@contextmanager
def _copied(path: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sandbox-sqlite-") as folder:
        copy = Path(folder) / "copy.db"
        for suffix in _SUFFIXES:
            source = path.with_name(path.name + suffix)
            if source.is_file() and not source.is_symlink():
                shutil.copyfile(source, copy.with_name(copy.name + suffix))
        yield copy


def _distrust(connection: sqlite3.Connection, most_steps: int) -> None:
    """Keep a database that a tool wrote from running code or running for ever."""
    steps = count()
    connection.set_progress_handler(lambda: next(steps) >= most_steps, _STEP)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")


def _read(
    connection: sqlite3.Connection, found: Database, table: str, model: type[RowT], rows: list[RowT]
) -> None:
    columns = tuple(model.model_fields)
    # Table and columns are constants of this module, never a value.
    query = f'SELECT {", ".join(columns)} FROM "{table}" ORDER BY rowid'  # noqa: S608
    try:
        for values in connection.execute(query):
            _add(found, rows, model, table, dict(zip(columns, values, strict=True)))
    except sqlite3.Error as error:
        found.gaps.append(unparseable(f"table {table}: {error}"))


def _add(
    found: Database, rows: list[RowT], model: type[RowT], table: str, values: dict[str, object]
) -> None:
    try:
        rows.append(model.model_validate(values))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, problem["loc"]))
        where = f"{table} {values.get('id')}"
        found.gaps.append(unparseable(f"{where}: {place}: {problem['msg']}"))
