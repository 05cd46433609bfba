"""Reads a Pi session file: one session's entries, in the order in which they were written.

Source of the format: ``docs/session-format.md`` and ``docs/message-types.md`` of the npm package
``@earendil-works/pi-coding-agent`` and files recorded from 1.6.0. The first line is the session's
header, every other line an entry ``{type, id, parentId, timestamp, ...}``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from sandbox.evidence.observations import Gap
from sandbox.harnesses.native import json_lines, unparseable

Milliseconds = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]
Tokens = Annotated[int, Field(ge=0, lt=2**63)]

_READ = {"message", "compaction", "context_edit"}
_WITHOUT_FACTS = {
    "branch_summary",
    "custom",
    "custom_message",
    "label",
    "model_change",
    "session_info",
    "thinking_level_change",
    "usage",
}


class Part(BaseModel):
    """A part of a foreign record: unknown keys are another version's and are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


PartT = TypeVar("PartT", bound=Part)


class ToolCallBlock(Part):
    """The model asked for a tool call; Pi keeps the arguments parsed.

    ``argumentsError`` says why they could not be, and ends with them as they were sent.
    """

    id: str
    name: str
    arguments: JsonValue = None
    argumentsError: str | None = None  # noqa: N815 - Pi's name


class Message(Part):
    """A message of any role; the fields are those of the roles that are read."""

    role: str
    content: str | list[dict[str, JsonValue]] = []
    sections: dict[str, str | None] = {}
    timestamp: Milliseconds | None = None
    # of an answer
    stopReason: str | None = None  # noqa: N815 - Pi's name
    responseId: str | None = None  # noqa: N815
    errorMessage: str | None = None  # noqa: N815
    # of a tool's result; no duration: the tool did not run
    toolCallId: str | None = None  # noqa: N815
    toolName: str | None = None  # noqa: N815
    isError: bool | None = None  # noqa: N815
    durationMs: Milliseconds | None = None  # noqa: N815

    @property
    def text(self) -> str:
        """All text of the message; of a system message its sections."""
        if isinstance(self.content, str):
            texts = [self.content] if self.content else []
        else:
            texts = ["".join(str(p["text"]) for p in self.content if _is(p, "text"))]
        return "\n\n".join([*filter(None, texts), *filter(None, self.sections.values())])


class MessageEntry(Part):
    """A message of the conversation."""

    message: Message


class Compaction(Part):
    """The history was replaced by a summary, which a model call of its own wrote."""

    summary: str | None = None
    firstKeptEntryId: str | None = None  # noqa: N815
    tokensBefore: Tokens | None = None  # noqa: N815


class ContextEdit(Part):
    """A message was taken out of what the model sees (``replacement`` None) or changed."""

    targetId: str  # noqa: N815
    replacement: JsonValue = None


class Entry(Part):
    """One entry; ``number`` is its line, ``raw`` the whole record."""

    number: int
    type: str
    id: str
    timestamp: str
    raw: dict[str, JsonValue]

    @property
    def at(self) -> float | None:
        """When the entry was written, in seconds since the epoch."""
        try:
            return datetime.fromisoformat(self.timestamp).timestamp()
        except (ValueError, OverflowError, OSError):
            return None


class Header(Part):
    """The session's identity."""

    id: str = Field(min_length=1)


@dataclass
class Session:
    """A file's entries in order, without those that say nothing, and what could not be read.

    ``id`` is the header's, None where it is lost.
    """

    path: Path
    id: str | None = None
    entries: list[Entry] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

    def read(self, entry: Entry, model: type[PartT], value: JsonValue = None) -> PartT | None:
        """Return the entry, or a value in it, as a model; None, with a gap, when it is none."""
        try:
            return model.model_validate(entry.raw if value is None else value)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, problem["loc"]))
            self.complain(entry.number, f"{entry.type}: {place}: {problem['msg']}")
            return None

    def complain(self, number: int, what: str) -> None:
        """Add a gap for a record that could not be understood."""
        self.gaps.append(unparseable(f"{self.path.name}:{number}: {what}"))


def read_session(path: Path) -> Session:
    """Read a session file; never raises for its content."""
    session = Session(path=path)
    seen: set[str] = set()
    for number, value in json_lines(path):
        if isinstance(value, Gap):
            session.gaps.append(value)
        elif isinstance(value, dict) and value.get("type") == "session":
            _take_header(session, number, value)
        else:
            entry = _entry(session, number, value)
            if entry is not None and entry.id in seen:
                session.complain(number, f"entry {entry.id} again")
            elif entry is not None:
                seen.add(entry.id)
                session.entries.append(entry)
    return session


def _take_header(session: Session, number: int, value: dict[str, JsonValue]) -> None:
    try:
        header = Header.model_validate(value)
    except ValidationError:
        session.complain(number, "not a session header")
        return
    if session.id is not None:
        session.complain(number, "a second session header")
    else:
        session.id = header.id


def _entry(session: Session, number: int, value: JsonValue) -> Entry | None:
    try:
        entry = Entry.model_validate(
            {**value, "number": number, "raw": value} if isinstance(value, dict) else value
        )
    except ValidationError:
        session.complain(number, "not a session entry")
        return None
    if entry.type not in _READ | _WITHOUT_FACTS:
        session.complain(number, f"unknown entry {entry.type}")
        return None
    return entry


def _is(part: dict[str, JsonValue], kind: str) -> bool:
    return part.get("type") == kind and isinstance(part.get(kind), str)
