"""Reads a Codex rollout file: one thread's records, in the order in which they were written.

Source of the format: ``codex-rs/protocol/src/protocol.rs`` (``RolloutLine``) of github.com/openai/
codex and files recorded from 0.171.0. A record is ``{timestamp, ordinal, type, payload}``.
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

_READ = {"session_meta", "response_item", "event_msg", "token_usage_record", "compacted"}
_WITHOUT_FACTS = {
    "dynamic_tools_updated",
    "inter_agent_communication",
    "inter_agent_communication_metadata",
    "realtime_item",
    "security_risk_score",
    "turn_context",
    "world_state",
}


class Part(BaseModel):
    """A part of a foreign record: unknown keys are another version's and are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


PartT = TypeVar("PartT", bound=Part)


class Line(Part):
    """One record; ``number`` is its line in the file."""

    number: int
    timestamp: str
    ordinal: int | None = None
    type: str
    payload: dict[str, JsonValue]

    @property
    def at(self) -> float | None:
        """When the record was written, in seconds since the epoch."""
        try:
            return datetime.fromisoformat(self.timestamp).timestamp()
        except (ValueError, OverflowError, OSError):
            return None


class SessionMeta(Part):
    """The thread's identity; ``parent_thread_id`` names the thread that spawned a subagent."""

    id: str
    parent_thread_id: str | None = None


class Message(Part):
    """A text that goes to the model or comes from it."""

    role: str
    content: list[dict[str, JsonValue]] = []

    @property
    def text(self) -> str:
        """All text of the message."""
        return "".join(str(part["text"]) for part in self.content if part.get("text") is not None)


class Reasoning(Part):
    """A reasoning that the model let us see."""

    summary: list[dict[str, JsonValue]] = []
    content: list[dict[str, JsonValue]] | None = None

    @property
    def text(self) -> str:
        """The reasoning itself, else its summary."""
        parts = self.content or self.summary
        return "\n".join(str(part["text"]) for part in parts if part.get("text"))


class FunctionCall(Part):
    """The model asked for a tool call."""

    call_id: str
    name: str
    arguments: str = ""


class CustomToolCall(Part):
    """The model asked for a tool call whose argument is free text."""

    call_id: str
    name: str
    input: str = ""


class CallOutput(Part):
    """What the model was told about a tool call."""

    call_id: str
    output: str | list[JsonValue] | dict[str, JsonValue]

    @property
    def text(self) -> str:
        """All text of the output."""
        if isinstance(self.output, str):
            return self.output
        parts = self.output if isinstance(self.output, list) else [self.output]
        texts = [part.get("text", part.get("content")) for part in parts if isinstance(part, dict)]
        return "".join(text for text in texts if isinstance(text, str))


class Item(Part):
    """What became of a tool call (``id`` is its call id), or another thing that was done.

    ``exit_code`` is negative when Codex killed the command; ``aggregated_output`` is what the
    command wrote: 64 KiB of it at most, and stdout and stderr in no certain order.
    """

    type: str
    id: str
    tool: str | None = None
    status: str | None = None
    exit_code: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    aggregated_output: str | None = None
    receiver_thread_ids: list[str] = []


class ItemCompleted(Part):
    """An item and when it ran."""

    item: Item
    started_at_ms: Milliseconds | None = None
    completed_at_ms: Milliseconds | None = None


class TaskComplete(Part):
    """The end of a turn, good or bad."""

    turn_id: str | None = None
    duration_ms: Milliseconds | None = None
    error: dict[str, JsonValue] | None = None


class TurnAborted(Part):
    """The end of a turn that somebody stopped."""

    turn_id: str | None = None
    reason: str = "aborted"
    duration_ms: Milliseconds | None = None


class TokenUsage(Part):
    """The receipt of one model call."""

    response_id: str | None = None
    usage: dict[str, JsonValue] = {}


class Compacted(Part):
    """The history was replaced by a summary, which a model call of its own wrote."""

    message: str | None = None
    compaction_response_id: str | None = None


@dataclass
class Rollout:
    """A file's records in order, without those that say nothing, and what could not be read."""

    path: Path
    lines: list[Line] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

    def read(self, line: Line, model: type[PartT]) -> PartT | None:
        """Return the payload as a model; None, with a gap, when it does not fit."""
        try:
            return model.model_validate(line.payload)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, problem["loc"]))
            self.complain(line, f"{place}: {problem['msg']}")
            return None

    def complain(self, line: Line, what: str) -> None:
        """Add a gap for a record that could not be understood."""
        kind = line.payload.get("type")
        name = line.type if not isinstance(kind, str) else f"{line.type}/{kind}"
        self.gaps.append(unparseable(f"{self.path.name}:{line.number}: {name}: {what}"))


def read_rollout(path: Path) -> Rollout:
    """Read a rollout file; never raises for its content."""
    rollout = Rollout(path=path)
    for number, value in json_lines(path):
        line = _line(rollout, number, value)
        if line is not None:
            rollout.lines.append(line)
    if all(line.ordinal is not None for line in rollout.lines):
        _put_in_order(rollout)
    return rollout


def _line(rollout: Rollout, number: int, value: JsonValue | Gap) -> Line | None:
    if isinstance(value, Gap):
        rollout.gaps.append(value)
        return None
    where = f"{rollout.path.name}:{number}"
    try:
        line = Line.model_validate(
            {**value, "number": number} if isinstance(value, dict) else value
        )
    except ValidationError:
        rollout.gaps.append(unparseable(f"{where}: not a rollout record"))
        return None
    if line.type not in _READ | _WITHOUT_FACTS:
        rollout.gaps.append(unparseable(f"{where}: unknown record {line.type}"))
        return None
    return line


def _put_in_order(rollout: Rollout) -> None:
    """Order the records by ordinal and drop a record that is there twice."""
    ordered = sorted(rollout.lines, key=lambda line: (line.ordinal or 0, line.number))
    rollout.lines = []
    for line in ordered:
        before = rollout.lines[-1] if rollout.lines else None
        if before is not None and before.ordinal == line.ordinal:
            rollout.complain(line, f"ordinal {line.ordinal} again")
            if before.payload == line.payload:
                continue
        rollout.lines.append(line)
