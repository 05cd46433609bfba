"""Reads OpenCode's SQLite database, from a copy."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from sandbox.evidence.observations import Gap
from sandbox.harnesses.native import json_value, seconds, unparseable
from sandbox.harnesses.sqlite_copy import MOST_STEPS, add_row, opened_copy

Milliseconds = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]


class Part(BaseModel):
    """A part of a foreign record: unknown keys are another version's and are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


RowT = TypeVar("RowT", bound=Part)


class SessionRow(Part):
    """One session; a subagent has a parent."""

    id: str
    parent_id: str | None = None
    time_created: Milliseconds | None = None


class Times(Part):
    """When something was made, and when it was done."""

    created: Milliseconds | None = None
    completed: Milliseconds | None = None


class MessageRow(Part):
    """One message; an answer has ``finish`` or ``error`` once it has ended."""

    id: str
    session_id: str
    role: str
    summary: bool | dict[str, JsonValue] | None = None
    finish: str | None = None
    error: dict[str, JsonValue] | None = None
    time: Times = Times()
    tokens: dict[str, JsonValue] = {}


class PartRow(Part):
    """One part of a message: a text, a reasoning, a tool call, a step's border."""

    id: str
    message_id: str
    session_id: str
    type: str
    text: str = ""
    tool: str = ""
    callID: str = ""  # noqa: N815 - the database's name
    state: dict[str, JsonValue] = {}
    ignored: bool = False
    auto: bool | None = None


@dataclass
class Database:
    """Everything of use in the database, in the order in which it was made.

    ``tool_starts`` maps a part's id to the earliest start that its history of events tells: the
    part itself keeps only the time of its last progress.
    """

    sessions: list[SessionRow] = field(default_factory=list)
    messages: list[MessageRow] = field(default_factory=list)
    parts: list[PartRow] = field(default_factory=list)
    tool_starts: dict[str, float] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)


def read_database(path: Path, *, most_steps: int = MOST_STEPS) -> Database:
    """Read a database; what cannot be read is a gap, never an error.

    Args:
        path: the database; its log is beside it.
        most_steps: give up after so many times 100,000 instructions.
    """
    found = Database()
    try:
        with opened_copy(path, most_steps=most_steps) as connection:
            _read(connection, found)
    except sqlite3.Error as error:
        found.gaps.append(unparseable(f"{path.name}: {error}"))
    return found


def _read(connection: sqlite3.Connection, found: Database) -> None:
    for values in _rows(connection, found, "session", ("id", "parent_id", "time_created")):
        add_row(found.sessions, found.gaps, SessionRow, f"session {values['id']}", values)
    for values in _rows(connection, found, "message", ("id", "session_id", "data")):
        _add_data(found, found.messages, MessageRow, "message", values)
    for values in _rows(connection, found, "part", ("id", "message_id", "session_id", "data")):
        _add_data(found, found.parts, PartRow, "part", values)
    _read_starts(connection, found)


def _rows(
    connection: sqlite3.Connection, found: Database, table: str, columns: tuple[str, ...]
) -> Iterator[dict[str, JsonValue]]:
    # Table and columns are constants of this module, never a value.
    query = f'SELECT {", ".join(columns)} FROM "{table}" ORDER BY time_created, id'  # noqa: S608
    try:
        for row in connection.execute(query):
            yield dict(zip(columns, row, strict=True))
    except sqlite3.Error as error:
        found.gaps.append(unparseable(f"table {table}: {error}"))


def _add_data(
    found: Database,
    rows: list[RowT],
    model: type[RowT],
    table: str,
    values: dict[str, JsonValue],
) -> None:
    """Add a row whose facts are a JSON text in its ``data`` column."""
    data = values.pop("data")
    where = f"{table} {values['id']}"
    try:
        facts = json_value(data) if isinstance(data, str) else None
    except (ValueError, RecursionError) as error:
        found.gaps.append(unparseable(f"{where}: {error}"))
        return
    if not isinstance(facts, dict):
        found.gaps.append(unparseable(f"{where}: not a JSON object"))
        return
    add_row(rows, found.gaps, model, where, {**facts, **values})


_STARTS = """
    SELECT json_extract(data, '$.part.id'), min(json_extract(data, '$.part.state.time.start'))
    FROM event
    WHERE type LIKE 'message.part.updated%' AND json_valid(data)
      AND json_extract(data, '$.part.type') = 'tool'
      AND json_extract(data, '$.part.state.status') = 'running'
    GROUP BY 1
"""


def _read_starts(connection: sqlite3.Connection, found: Database) -> None:
    """Read when each tool call began; without events that stays unknown."""
    try:
        starts = connection.execute(_STARTS).fetchall()
    except sqlite3.Error:
        return
    for part_id, start in starts:
        began = seconds(start)
        if isinstance(part_id, str) and began is not None:
            found.tool_starts[part_id] = began
