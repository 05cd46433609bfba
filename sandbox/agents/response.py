"""What an activation answers: an object in the OpenAI Responses API's form, made of observations.

Form: OpenAI API reference, "The response object". Facts that the form has no field for travel in
its ``metadata`` (strings only): outcome, harness, version, and the supervisor's hostname and pid.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from sandbox.agents.outcome import Outcome, OutcomeKind
from sandbox.evidence.exchanges import TokenUsage
from sandbox.evidence.observations import (
    AgentInvocation,
    ConversationItem,
    MessageItem,
    Observations,
    ReasoningItem,
    ToolRequestItem,
)
from sandbox.evidence.records import CleanupReceipt, Record


class OutputText(Record):
    """A piece of text of a message."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: tuple[JsonValue, ...] = ()


class OutputMessage(Record):
    """What the agent said."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    status: Literal["completed", "incomplete"] = "completed"
    content: tuple[OutputText, ...]


class SummaryText(Record):
    """A piece of reasoning."""

    type: Literal["summary_text"] = "summary_text"
    text: str


class OutputReasoning(Record):
    """What the agent thought, where its harness kept it."""

    id: str
    type: Literal["reasoning"] = "reasoning"
    summary: tuple[SummaryText, ...]


class OutputCall(Record):
    """A tool call that the model asked for."""

    type: Literal["function_call"] = "function_call"
    call_id: str
    name: str
    arguments: str


class OutputCallResult(Record):
    """What the harness gave back for a tool call."""

    type: Literal["function_call_output"] = "function_call_output"
    call_id: str
    output: str


OutputItem = Annotated[
    OutputMessage | OutputReasoning | OutputCall | OutputCallResult, Field(discriminator="type")
]


class ResponseUsage(Record):
    """Sum of the token counts; given only when every call sent them."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


class ResponseError(Record):
    """Why a response failed."""

    code: str
    message: str


class IncompleteDetails(Record):
    """Why a response is incomplete."""

    reason: str


class AgentResponse(Record):
    """One agent turn."""

    id: str
    object: Literal["response"] = "response"
    created_at: float
    model: str
    status: Literal["completed", "failed", "incomplete"]
    output: tuple[OutputItem, ...] = ()
    usage: ResponseUsage | None = None
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    parallel_tool_calls: bool = True
    tool_choice: Literal["auto"] = "auto"
    tools: tuple[JsonValue, ...] = ()
    metadata: dict[str, str] = Field(default_factory=dict)

    @property
    def output_text(self) -> str:
        """All text that the agent said, joined."""
        messages = (item for item in self.output if isinstance(item, OutputMessage))
        return "".join(part.text for message in messages for part in message.content)

    @property
    def outcome(self) -> Outcome | None:
        """How the turn ended, where the agent said so."""
        kind = self.metadata.get("outcome")
        if kind is None or kind not in set(OutcomeKind):
            return None
        return Outcome(
            kind=OutcomeKind(kind),
            reason=self.metadata.get("outcome_reason", ""),
            log_tail=self.metadata.get("log_tail", ""),
        )

    @property
    def gradable(self) -> bool:
        """Whether a verifier may judge the work."""
        return self.status != "failed" if self.outcome is None else self.outcome.gradable


def respond(
    *,
    response_id: str,
    created_at: float,
    model: str,
    outcome: Outcome,
    observations: Observations,
    receipt: CleanupReceipt | None,
    harness: str,
    version: str,
    usage: TokenUsage | None = None,
) -> AgentResponse:
    """Make the response of a finished activation from its evidence."""
    kind = outcome.kind
    status: Literal["completed", "failed", "incomplete"] = "failed"
    if kind in {OutcomeKind.COMPLETED, OutcomeKind.INCOMPLETE}:
        status = "completed" if kind is OutcomeKind.COMPLETED else "incomplete"
    return AgentResponse(
        id=response_id,
        created_at=created_at,
        model=model,
        status=status,
        output=_output(response_id, observations),
        usage=_usage(usage),
        error=(
            ResponseError(code=kind.value, message=outcome.reason) if status == "failed" else None
        ),
        incomplete_details=(
            IncompleteDetails(reason=outcome.reason) if status == "incomplete" else None
        ),
        metadata=_metadata(outcome, receipt, harness, version),
    )


def _metadata(
    outcome: Outcome, receipt: CleanupReceipt | None, harness: str, version: str
) -> dict[str, str]:
    said = {
        "outcome": outcome.kind.value,
        "outcome_reason": outcome.reason,
        "harness": harness,
        "harness_version": version,
    }
    if outcome.log_tail:
        said["log_tail"] = outcome.log_tail
    if receipt is not None:
        said |= {"supervisor_hostname": receipt.hostname, "supervisor_pid": str(receipt.pid)}
    return said


def _output(response_id: str, observations: Observations) -> tuple[OutputItem, ...]:
    root = next(
        (
            record
            for record in observations.records
            if isinstance(record, AgentInvocation) and record.parent_invocation_id is None
        ),
        None,
    )
    if root is None:
        return ()
    items = (
        _item(f"{response_id}-{number}", item) for number, item in enumerate(root.conversation)
    )
    return tuple(item for item in items if item is not None)


def _item(item_id: str, item: ConversationItem) -> OutputItem | None:
    if isinstance(item, MessageItem):
        if item.role != "assistant":
            return None
        return OutputMessage(id=item_id, content=(OutputText(text=item.text),))
    if isinstance(item, ReasoningItem):
        return OutputReasoning(id=item_id, summary=(SummaryText(text=item.text),))
    if isinstance(item, ToolRequestItem):
        return OutputCall(call_id=item.tool_call_id, name=item.tool_name, arguments=item.arguments)
    return OutputCallResult(call_id=item.tool_call_id, output=item.output)


def _usage(usage: TokenUsage | None) -> ResponseUsage | None:
    if usage is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    total = usage.total_tokens
    return ResponseUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens if total is None else total,
    )
