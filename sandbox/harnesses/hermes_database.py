"""Reads Hermes' SQLite database, from a copy.

Its full-text indexes are never touched: SQLite may lack that extension here.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from sandbox.evidence.observations import Gap
from sandbox.harnesses.native import json_value, unparseable
from sandbox.harnesses.sqlite_copy import MOST_STEPS, add_row, opened_copy

Seconds = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]


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


def read_database(path: Path, *, most_steps: int = MOST_STEPS) -> Database:
    """Read a database; what cannot be read is a gap, never an error.

    Args:
        path: the database; its log is beside it.
        most_steps: give up after so many times 100,000 instructions.
    """
    found = Database()
    try:
        with opened_copy(path, most_steps=most_steps) as connection:
            _read(connection, found, "sessions", SessionRow, found.sessions)
            _read(connection, found, "messages", MessageRow, found.messages)
    except sqlite3.Error as error:
        found.gaps.append(unparseable(f"{path.name}: {error}"))
    return found


def _read(
    connection: sqlite3.Connection, found: Database, table: str, model: type[RowT], rows: list[RowT]
) -> None:
    columns = tuple(model.model_fields)
    # Table and columns are constants of this module, never a value.
    query = f'SELECT {", ".join(columns)} FROM "{table}" ORDER BY rowid'  # noqa: S608
    try:
        for values in connection.execute(query):
            row = dict(zip(columns, values, strict=True))
            add_row(rows, found.gaps, model, f"{table} {row['id']}", row)
    except sqlite3.Error as error:
        found.gaps.append(unparseable(f"table {table}: {error}"))
