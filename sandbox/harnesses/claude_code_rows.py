"""Reads a transcript of Claude Code: one thread's rows, in the order in which they were written.

Source of the format: files recorded from 2.1.332, and the list of row types in that binary. A row
is a JSON object with a ``type``; those of a conversation have a ``uuid``. Each content block of an
answer is a row of its own; the rows of one answer share ``message.id``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from sandbox.evidence.observations import Gap
from sandbox.harnesses.native import json_lines, unparseable

Tokens = Annotated[int, Field(ge=0, lt=2**63)]

_READ = {"user", "assistant", "system"}
_WITHOUT_FACTS = {
    "agent-color",
    "agent-name",
    "agent-setting",
    "ai-title",
    "api-request",
    "api-request-blob",
    "api-request-resumed",
    "api-request-shape",
    "artifact-autoreact-ledger",
    "artifact-comment-monitor",
    "atis-latch",
    "attachment",
    "attribution-snapshot",
    "bridge-session",
    "content-replacement",
    "continued-in",
    "cost-state",
    "custom-title",
    "data-flow-incomplete",
    "data-flow-records",
    "derived-from",
    "dev-mods",
    "ended-by-model",
    "file-history-delta",
    "file-history-snapshot",
    "fork-context-ref",
    "frame-link",
    "history-suppression",
    "isolation-latch",
    "last-prompt",
    "memory-mode",
    "mode",
    "observer-ref",
    "permission-mode",
    "pr-link",
    "progress",
    "queue-operation",
    "relocated",
    "resume-head-vouch",
    "session-owner",
    "summary",
    "tag",
    "tools-used",
    "worktree-state",
}


class Part(BaseModel):
    """A part of a foreign record: unknown keys are another version's and are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


PartT = TypeVar("PartT", bound=Part)


class Message(Part):
    """A message in the form of the Messages API; ``id`` is the response's."""

    id: str | None = None
    content: str | list[dict[str, JsonValue]] = []
    stop_reason: str | None = None

    @property
    def blocks(self) -> list[dict[str, JsonValue]]:
        """The content as blocks."""
        if isinstance(self.content, str):
            return [{"type": "text", "text": self.content}] if self.content else []
        return self.content


class CompactMetadata(Part):
    """What a compaction did to the history."""

    trigger: str | None = None
    before: Tokens | None = Field(default=None, alias="preTokens")
    after: Tokens | None = Field(default=None, alias="postTokens")


class Row(Part):
    """One row of a conversation; ``number`` is its line.

    ``synthetic``: Claude Code wrote the answer itself, to say that a request failed. ``meta``: the
    text is Claude Code's own, not the user's. ``result`` is what a tool returned, in its own form.
    """

    number: int
    type: str
    uuid: str | None = None
    timestamp: str | None = None
    subtype: str | None = None
    message: Message | None = None
    result: JsonValue = Field(default=None, alias="toolUseResult")
    meta: bool = Field(default=False, alias="isMeta")
    synthetic: bool = Field(default=False, alias="isApiErrorMessage")
    error: JsonValue = None
    error_status: JsonValue = Field(default=None, alias="apiErrorStatus")
    is_summary: bool = Field(default=False, alias="isCompactSummary")
    compaction: CompactMetadata | None = Field(default=None, alias="compactMetadata")
    origin: JsonValue = None

    @property
    def at(self) -> float | None:
        """When the row was made, in seconds since the epoch."""
        try:
            return datetime.fromisoformat(self.timestamp or "").timestamp()
        except (ValueError, OverflowError, OSError):
            return None

    @property
    def origin_kind(self) -> str | None:
        """Where a user's row comes from, when not from the user."""
        kind = self.origin.get("kind") if isinstance(self.origin, dict) else None
        return kind if isinstance(kind, str) else None


@dataclass
class Transcript:
    """A file's rows in order, without those that say nothing, and what could not be read."""

    path: Path
    rows: list[Row] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

    def read(self, row: Row, model: type[PartT], value: Any) -> PartT | None:
        """Return a value in a row as a model; None, with a gap, when it is none."""
        try:
            return model.model_validate(value)
        except ValidationError as error:
            self.complain(row.number, f"{row.type}: {explain(error)}")
            return None

    def complain(self, number: int, what: str) -> None:
        """Add a gap for a row that could not be understood."""
        self.gaps.append(unparseable(f"{self.path.name}:{number}: {what}"))


def read_transcript(path: Path) -> Transcript:
    """Read a transcript; never raises for its content."""
    transcript = Transcript(path=path)
    seen: set[str] = set()
    for number, value in json_lines(path):
        if isinstance(value, Gap):
            transcript.gaps.append(value)
            continue
        row = _row(transcript, number, value)
        if row is None:
            continue
        if row.uuid is not None and row.uuid in seen:
            transcript.complain(number, f"row {row.uuid} again")
            continue
        seen |= {row.uuid} if row.uuid is not None else set()
        transcript.rows.append(row)
    return transcript


def explain(error: ValidationError) -> str:
    """Say where a record does not fit, in a line."""
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"


def _row(transcript: Transcript, number: int, value: JsonValue) -> Row | None:
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str):
        transcript.complain(number, "not a transcript row")
        return None
    if kind in _WITHOUT_FACTS:
        return None
    if kind not in _READ:
        transcript.complain(number, f"unknown row {kind}")
        return None
    try:
        return Row.model_validate({**value, "number": number})
    except ValidationError as error:
        transcript.complain(number, f"{kind}: {explain(error)}")
        return None
