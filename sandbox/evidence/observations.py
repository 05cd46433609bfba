"""Records of what an adapter reports: the conversation, and what was observed of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from sandbox.evidence.records import Record


class MessageItem(Record):
    """A text that one side said."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    text: str


class ReasoningItem(Record):
    """A reasoning text that the harness kept."""

    type: Literal["reasoning"] = "reasoning"
    text: str


class ToolRequestItem(Record):
    """The model asked for a tool call; ``arguments`` is the text as the model sent it."""

    type: Literal["tool_request"] = "tool_request"
    tool_call_id: str
    tool_name: str
    arguments: str


class ToolResultItem(Record):
    """What the harness gave back to the model for a tool call.

    ``output`` is the command's own output with the harness's framing removed where the harness
    keeps it apart; ``exit_code`` is None where the harness does not record it.
    """

    type: Literal["tool_result"] = "tool_result"
    tool_call_id: str
    output: str
    exit_code: int | None = None


ConversationItem = Annotated[
    MessageItem | ReasoningItem | ToolRequestItem | ToolResultItem, Field(discriminator="type")
]


class ModelRef(Record):
    """Which model server answered."""

    type: str
    name: str


class ModelCallRef(Record):
    """Points at one captured call: by its id, or by server and response id."""

    model_call_id: str | None = None
    model_ref: ModelRef | None = None
    response_id: str | None = None


class InvocationStatus(StrEnum):
    """How an agent invocation ended; ``unknown`` when no terminal record proves it."""

    COMPLETED = "completed"
    FAILED = "failed"
    INCOMPLETE = "incomplete"
    UNKNOWN = "unknown"


class ToolStatus(StrEnum):
    """How a tool call ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    INCOMPLETE = "incomplete"
    UNKNOWN = "unknown"


class AgentInvocation(Record):
    """One run of an agent loop: the root, or a subagent with its parent."""

    kind: Literal["agent_invocation"] = "agent_invocation"
    invocation_id: str
    parent_invocation_id: str | None = None
    spawned_by_tool_call_id: str | None = None
    status: InvocationStatus
    duration_ms: float | None = None
    error_type: str | None = None
    model_calls: tuple[ModelCallRef, ...] = ()
    conversation: tuple[ConversationItem, ...] = ()


class ToolCall(Record):
    """One tool execution as the harness recorded it."""

    kind: Literal["tool_call"] = "tool_call"
    invocation_id: str
    tool_call_id: str
    sandbox_id: str | None = None
    tool_name: str
    started_at: float | None = None
    completed_at: float | None = None
    duration_ms: float | None = None
    timing_source: Literal["executor", "artifact", "harness"] | None = None
    status: ToolStatus
    error_type: str | None = None


class ContextCompaction(Record):
    """The harness shortened its history."""

    kind: Literal["context_compaction"] = "context_compaction"
    invocation_id: str
    observed_at: float | None = None
    trigger: str | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None
    outcome: str | None = None
    summary: str | None = None
    first_kept_item_id: str | None = None
    before_model_call: ModelCallRef | None = None
    model_calls: tuple[ModelCallRef, ...] = ()
    after_model_call: ModelCallRef | None = None


class SandboxObservation(Record):
    """What a sandbox cost and how it ended."""

    kind: Literal["sandbox"] = "sandbox"
    role: Literal["agent", "verifier", "environment"]
    provider: str
    sandbox_id: str
    outcome: Literal[
        "completed", "failed", "timeout", "oom", "sandbox_error", "cancelled", "unknown"
    ]
    exit_code: int | None = None
    wall_time_s: float | None = None
    cpu_time_s: float | None = None
    peak_memory_mib: float | None = None
    resource_usage_source: str | None = None
    error_type: str | None = None


class Gap(Record):
    """A fact that could not be observed or joined; codes are NeMo Gym's."""

    code: str
    invocation_id: str | None = None
    detail: str = ""


ObservationRecord = Annotated[
    AgentInvocation | ToolCall | ContextCompaction | SandboxObservation,
    Field(discriminator="kind"),
]


class Observations(Record):
    """What the adapter reports about one agent session."""

    source: str
    records: tuple[ObservationRecord, ...] = ()
    gaps: tuple[Gap, ...] = ()
