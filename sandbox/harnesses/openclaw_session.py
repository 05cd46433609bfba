"""OpenClaw's session files: entries that form a tree, one JSON object a line.

Each entry names its parent. When OpenClaw shortens a history it writes a new branch with copies of
what it keeps, so that one file may tell a call or an answer more than once: the branch of the last
entry is what the model knows, the other ones are what went before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from sandbox.evidence.observations import Gap
from sandbox.harnesses.native import json_lines, unparseable

Milliseconds = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]


class Part(BaseModel):
    """A part of a foreign record: unknown keys are another version's and are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Content(Part):
    """One piece of a message: a text, a thought, a tool call, an image."""

    type: str
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    arguments: JsonValue = None
    partialArgs: str | None = None  # noqa: N815 - the file's name


class Message(Part):
    """What somebody said; an answer has a ``stopReason``, a result a ``toolCallId``."""

    role: str
    content: tuple[Content, ...] | str = ()
    api: str | None = None
    responseId: str | None = None  # noqa: N815 - the file's name
    stopReason: str | None = None  # noqa: N815 - the file's name
    errorType: str | None = None  # noqa: N815 - the file's name
    toolCallId: str | None = None  # noqa: N815 - the file's name
    details: JsonValue = None
    isError: bool = False  # noqa: N815 - the file's name
    timestamp: Milliseconds | None = None

    @property
    def parts(self) -> tuple[Content, ...]:
        """The content, a plain text as its one part."""
        if isinstance(self.content, str):
            return (Content(type="text", text=self.content),)
        return self.content

    @property
    def text(self) -> str:
        """All texts of the content, joined."""
        return "".join(part.text for part in self.parts if part.type == "text")


class Entry(Part):
    """One line of the file; ``at`` is when it was written, in seconds since the epoch."""

    type: str
    id: str = ""
    parentId: str | None = None  # noqa: N815 - the file's name
    timestamp: datetime | None = None
    message: Message | None = None
    provider: str | None = None
    summary: str | None = None
    firstKeptEntryId: str | None = None  # noqa: N815 - the file's name
    tokensBefore: int | None = None  # noqa: N815 - the file's name

    @property
    def at(self) -> float | None:
        """When it was written."""
        return None if self.timestamp is None else self.timestamp.timestamp()


@dataclass
class Session:
    """One session file; ``entries`` in the file's order, its header left out."""

    session_id: str
    entries: list[Entry] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

    def branch(self) -> list[Entry]:
        """Return the entries from the root to the last one."""
        by_id = {entry.id: entry for entry in self.entries if entry.id}
        found: list[Entry] = []
        seen: set[str] = set()
        entry = self.entries[-1] if self.entries else None
        while entry is not None and entry.id not in seen:
            seen.add(entry.id)
            found.append(entry)
            entry = by_id.get(entry.parentId) if entry.parentId is not None else None
        return found[::-1]

    def messages(self) -> Iterator[Message]:
        """Yield the messages of all branches, in the file's order."""
        yield from (entry.message for entry in self.entries if entry.message is not None)


def read_session(path: Path) -> Session:
    """Read a session file; a line that cannot be read is a gap, never an error."""
    session = Session(path.name.removesuffix(".jsonl"))
    known: set[str] = set()
    for number, value in json_lines(path):
        if isinstance(value, Gap):
            session.gaps.append(value)
            continue
        try:
            entry = Entry.model_validate(value)
        except ValidationError as error:
            session.gaps.append(unparseable(f"{path.name}:{number}: {_first(error)}"))
            continue
        if entry.type == "session":
            session.session_id = entry.id or session.session_id
        elif entry.id in known:
            session.gaps.append(unparseable(f"{path.name}:{number}: entry {entry.id} again"))
        else:
            session.entries.append(entry)
            known |= {entry.id} - {""}
    return session


def _first(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
