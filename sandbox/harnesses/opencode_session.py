"""One session of OpenCode: its messages and parts as an invocation, tool calls and compactions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from sandbox.evidence.observations import (
    AgentInvocation,
    ContextCompaction,
    ConversationItem,
    Gap,
    InvocationStatus,
    MessageItem,
    ReasoningItem,
    ToolCall,
)
from sandbox.harnesses.native import (
    DUPLICATE_TOOL_CALL,
    OUTCOME_UNAVAILABLE,
    seconds,
    short,
    unparseable,
)
from sandbox.harnesses.opencode_database import MessageRow, PartRow, SessionRow
from sandbox.harnesses.opencode_tools import tool_call, tool_request, tool_result

COUNTS_UNAVAILABLE = "compaction_token_counts_unavailable"
_TASK = "task"  # the tool that starts a subagent
_PARTS_WITHOUT_FACTS = {
    "agent",
    "compaction",
    "file",
    "patch",
    "retry",
    "snapshot",
    "step-finish",
    "step-start",
    "subtask",
}
_STOPPED_ERRORS = {"MessageAbortedError", "MessageOutputLengthError"}


@dataclass(frozen=True, kw_only=True)
class SessionFacts:
    """A session's rows: messages in order, and the parts of each message in order."""

    session: SessionRow
    messages: Sequence[MessageRow]
    parts: Mapping[str, Sequence[PartRow]]
    tool_starts: Mapping[str, float]

    def tools(self) -> Iterator[PartRow]:
        """Yield the tool parts in order."""
        for message in self.messages:
            yield from (part for part in self.parts.get(message.id, ()) if part.type == "tool")

    def spawned(self) -> dict[str, str]:
        """Return the subagents' sessions with the calls that started them."""
        children = {}
        for part in self.tools():
            metadata = part.state.get("metadata")
            child = metadata.get("sessionId") if isinstance(metadata, dict) else None
            if part.tool == _TASK and isinstance(child, str):
                children[child] = part.callID
        return children


@dataclass(frozen=True, kw_only=True)
class SessionRecords:
    """What a session says."""

    invocation: AgentInvocation
    calls: tuple[ToolCall, ...]
    compactions: tuple[ContextCompaction, ...]
    gaps: tuple[Gap, ...]


def read_session(facts: SessionFacts, spawned_by: str | None) -> SessionRecords:
    """Turn a session's rows into observations."""
    status, error_type = _outcome(facts.messages)
    calls, gaps = _calls(facts)
    compactions = tuple(_compactions(facts))
    identity = facts.session.id
    gaps += [unparseable(f"part {part.id}: unknown type {part.type}") for part in _unknown(facts)]
    if status is InvocationStatus.UNKNOWN:
        gaps.append(
            Gap(
                code=OUTCOME_UNAVAILABLE,
                invocation_id=identity,
                detail="the last answer has neither an end nor an error",
            )
        )
    if compactions:
        gaps.append(
            Gap(
                code=COUNTS_UNAVAILABLE,
                invocation_id=identity,
                detail="the size of the history after a compaction is not kept",
            )
        )
    return SessionRecords(
        invocation=AgentInvocation(
            invocation_id=identity,
            parent_invocation_id=facts.session.parent_id,
            spawned_by_tool_call_id=spawned_by,
            status=status,
            duration_ms=_duration_ms(facts),
            error_type=error_type,
            conversation=tuple(_conversation(facts)),
        ),
        calls=tuple(calls),
        compactions=compactions,
        gaps=tuple(gaps),
    )


def _outcome(messages: Sequence[MessageRow]) -> tuple[InvocationStatus, str | None]:
    answers = [message for message in messages if message.role == "assistant"]
    if not answers or messages[-1].role == "user":
        return InvocationStatus.UNKNOWN, None  # a question that nobody answered
    last = answers[-1]
    if last.error is not None:
        name = last.error.get("name")
        error_type = short(name) if isinstance(name, str) and name else "error"
        stopped = error_type in _STOPPED_ERRORS
        return (InvocationStatus.INCOMPLETE if stopped else InvocationStatus.FAILED), error_type
    if last.finish is None or last.finish == "tool-calls":
        return InvocationStatus.UNKNOWN, None
    if last.finish == "stop":
        return InvocationStatus.COMPLETED, None
    return InvocationStatus.INCOMPLETE, f"finish_{short(last.finish)}"


def _duration_ms(facts: SessionFacts) -> float | None:
    asked = [m.time.created for m in facts.messages if m.role == "user" and m.time.created]
    ended = [m.time.completed for m in facts.messages if m.time.completed]
    if not asked or not ended or facts.messages[-1].time.completed is None:
        return None
    return max(0.0, max(ended) - min(asked))


def _calls(facts: SessionFacts) -> tuple[list[ToolCall], list[Gap]]:
    calls: dict[str, ToolCall] = {}
    gaps: list[Gap] = []
    for part in facts.tools():
        if part.callID in calls:
            gaps.append(
                Gap(
                    code=DUPLICATE_TOOL_CALL,
                    invocation_id=facts.session.id,
                    detail=short(f"{part.callID}: told again by part {part.id}"),
                )
            )
            continue
        calls[part.callID], lacking = tool_call(part, facts.tool_starts.get(part.id))
        gaps += lacking
    return list(calls.values()), gaps


def _conversation(facts: SessionFacts) -> Iterator[ConversationItem]:
    """Yield the history in the model's order: all calls of an answer, then their results."""
    for message in facts.messages:
        parts = facts.parts.get(message.id, ())
        for part in parts:
            if part.type == "text" and not part.ignored:
                yield MessageItem.model_validate({"role": message.role, "text": part.text})
            elif part.type == "reasoning":
                yield ReasoningItem(text=part.text)
            elif part.type == "tool":
                yield tool_request(part)
        for part in parts:
            result = tool_result(part) if part.type == "tool" else None
            if result is not None:
                yield result


def _compactions(facts: SessionFacts) -> Iterator[ContextCompaction]:
    before: JsonValue = None
    trigger: str | None = None
    for message in facts.messages:
        parts = facts.parts.get(message.id, ())
        for part in parts:
            if part.type == "compaction":
                trigger = "auto" if part.auto else "manual"
        if message.role != "assistant":
            continue
        if message.summary is True:
            ended = message.finish == "stop" and message.error is None
            yield ContextCompaction(
                invocation_id=facts.session.id,
                observed_at=seconds(message.time.completed or message.time.created),
                trigger=trigger,
                tokens_before=before if isinstance(before, int) else None,
                outcome="completed" if ended else "failed",
                summary="".join(part.text for part in parts if part.type == "text") or None,
            )
        else:
            before = message.tokens.get("total")


def _unknown(facts: SessionFacts) -> Iterator[PartRow]:
    read = {"text", "reasoning", "tool"}
    for message in facts.messages:
        for part in facts.parts.get(message.id, ()):
            if part.type not in read | _PARTS_WITHOUT_FACTS:
                yield part
