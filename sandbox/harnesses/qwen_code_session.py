"""Reads the session files of Qwen Code: one record a line, in the order in which they happened.

Source of the format: files recorded from 0.24.4, and the names of its records in the package
``@qwen-code/qwen-code``. Every record is ``{uuid, parentUuid, sessionId, timestamp, type, ...}``;
messages have the form of Google's Gemini API (``parts`` with text, functionCall, functionResponse),
facts beside the conversation are records of type ``system`` with a ``subtype``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from sandbox.evidence.observations import Gap
from sandbox.harnesses.native import json_lines, unparseable

Milliseconds = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]
Tokens = Annotated[int, Field(ge=0, lt=2**63)]
ExitCode = Annotated[int, Field(ge=-(2**31), lt=2**31)]


class Part(BaseModel):
    """A part of a foreign record: unknown keys are another version's and are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


PartT = TypeVar("PartT", bound=Part)


class FunctionCall(Part):
    """The model asked for a tool call; the arguments are kept parsed (and repaired)."""

    id: str = Field(min_length=1)
    name: str
    args: JsonValue = None


class FunctionResponse(Part):
    """What the model was told of a tool call: its output, or that it failed."""

    id: str | None = None
    response: dict[str, JsonValue] = {}

    @property
    def text(self) -> str:
        """The text that the model reads."""
        told = self.response.get("output", self.response.get("error"))
        return told if isinstance(told, str) else ""


class Piece(Part):
    """One part of a message."""

    text: str | None = None
    thought: bool = False
    functionCall: FunctionCall | None = None  # noqa: N815 - Gemini's names
    functionResponse: FunctionResponse | None = None  # noqa: N815


class Message(Part):
    """A message of the user, the model or a tool."""

    parts: tuple[Piece, ...] = ()


class ShellResult(Part):
    """How a command ended; the output is the command's own."""

    type: Literal["shell_result"]
    exitCode: ExitCode | None = None  # noqa: N815 - Qwen Code's names, here and below
    outcome: str | None = None
    output: str = ""
    truncated: bool = False


class ToolCallResult(Part):
    """How a tool call ended; ``executionStatus`` "not_started" where the tool never ran."""

    callId: str = Field(min_length=1)  # noqa: N815
    status: str | None = None
    resultDisplay: JsonValue = None  # noqa: N815
    errorType: str | None = None  # noqa: N815
    executionStatus: str | None = None  # noqa: N815


class Conversation(Part):
    """A record of type user, assistant or tool_result."""

    message: Message
    toolCallResult: ToolCallResult | None = None  # noqa: N815


class Event(Part):
    """A measured fact: a model call that was answered or failed, or a tool call that ended."""

    name: str = Field(alias="event.name")
    timestamp: str = Field(default="", alias="event.timestamp")
    prompt_id: str = ""
    response_id: str | None = None
    call_id: str | None = None
    duration_ms: Milliseconds | None = None

    def is_of(self, session_id: str, agent_id: str | None) -> bool:
        """Whether it is of that session's own loop (None) or of that subagent of it."""
        who = f"{session_id}#{agent_id or ''}#"
        return self.prompt_id.startswith(who) or (not self.prompt_id and agent_id is None)


class Telemetry(Part):
    """The payload of a ``ui_telemetry`` record."""

    uiEvent: Event  # noqa: N815


class CompressionInfo(Part):
    """Sizes of the history in tokens, before and after."""

    originalTokenCount: Tokens | None = None  # noqa: N815
    newTokenCount: Tokens | None = None  # noqa: N815


class Compression(Part):
    """The payload of a ``chat_compression`` record."""

    info: CompressionInfo = CompressionInfo()


class Entry(Part):
    """One record; ``number`` is its line, ``raw`` the whole of it."""

    number: int
    uuid: str = Field(min_length=1)
    sessionId: str = Field(min_length=1)  # noqa: N815
    timestamp: str
    type: str
    subtype: str | None = None
    agentId: str | None = None  # noqa: N815
    raw: dict[str, JsonValue]

    @property
    def at(self) -> float | None:
        """When the record was written, in seconds since the epoch."""
        return moment(self.timestamp)


class AgentMeta(Part):
    """The file beside a subagent's: who started it, with which call, and how it ended."""

    parentSessionId: str | None = None  # noqa: N815
    parentAgentId: str | None = None  # noqa: N815
    toolUseId: str | None = None  # noqa: N815
    status: str | None = None


@dataclass
class Session:
    """A file's records in order, and what could not be read."""

    path: Path
    entries: list[Entry] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

    @property
    def id(self) -> str | None:
        """The session's id, of its first record."""
        return self.entries[0].sessionId if self.entries else None

    @property
    def agent_id(self) -> str | None:
        """The subagent whose file it is; None for the session's own."""
        return self.entries[0].agentId if self.entries else None

    def read(self, entry: Entry, model: type[PartT], value: JsonValue) -> PartT | None:
        """Return a value of an entry as a model; None, with a gap, when it is none."""
        try:
            return model.model_validate(value)
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
        entry = _entry(session, number, value)
        if entry is None:
            continue
        if entry.uuid in seen:
            session.complain(number, f"record {entry.uuid} again")
        elif session.entries and (session.id, session.agent_id) != (entry.sessionId, entry.agentId):
            session.complain(number, "a record of another session or subagent")
        else:
            seen.add(entry.uuid)
            session.entries.append(entry)
    return session


def read_meta(path: Path) -> AgentMeta | Gap:
    """Read the file beside a subagent's; a gap where there is none or it cannot be read."""
    beside = path.with_suffix(".meta.json")
    try:
        return AgentMeta.model_validate_json(beside.read_bytes())
    except (OSError, ValidationError) as error:
        return unparseable(f"{beside.name}: {type(error).__name__}")


def moment(timestamp: str) -> float | None:
    """Return an ISO time in seconds since the epoch; None for what is none."""
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _entry(session: Session, number: int, value: JsonValue | Gap) -> Entry | None:
    if isinstance(value, Gap):
        session.gaps.append(value)
        return None
    try:
        return Entry.model_validate(
            {**value, "number": number, "raw": value} if isinstance(value, dict) else value
        )
    except ValidationError:
        session.complain(number, "not a record of a session")
        return None
