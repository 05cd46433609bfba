"""One session file of Qwen Code as a story: what was said, called, measured and compacted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sandbox.evidence.observations import ContextCompaction, MessageItem, ReasoningItem
from sandbox.harnesses.base import NativeContext
from sandbox.harnesses.native import DUPLICATE_TOOL_CALL, TOOL_RESULT_UNOWNED
from sandbox.harnesses.qwen_code_session import (
    Compression,
    Conversation,
    Entry,
    Event,
    FunctionCall,
    Session,
    Telemetry,
)
from sandbox.harnesses.qwen_code_tools import CallRecord, tool_request
from sandbox.harnesses.story import Thread

_MODEL_CALLS = {"qwen-code.api_response", "qwen-code.api_error"}
_TOOL_CALL = "qwen-code.tool_call"


@dataclass
class Story(Thread[CallRecord]):
    """What a session file says.

    ``events`` are the measured facts in it; those of subagents are in the session's own file too.
    """

    agent_id: str | None = None
    events: list[Event] = field(default_factory=list)


def read_story(session: Session, context: NativeContext) -> Story:
    """Return what a session's or a subagent's file says, as one invocation."""
    agent_id = session.agent_id
    story = Story(invocation_id=agent_id or session.id or "", agent_id=agent_id, context=context)
    for entry in session.entries:
        if entry.type == "system":
            _take_fact(story, session, entry)
        elif entry.type in ("user", "assistant", "tool_result"):
            record = session.read(entry, Conversation, entry.raw)
            if record is not None:
                _take(story, entry, record)
        else:
            session.complain(entry.number, f"unknown record {entry.type}")
    story.gaps += session.gaps
    return story


def _take(story: Story, entry: Entry, record: Conversation) -> None:
    if entry.type == "tool_result":
        _take_result(story, entry, record)
        return
    role = "user" if entry.type == "user" else "assistant"
    for piece in record.message.parts:
        if piece.functionCall is not None:
            _ask(story, piece.functionCall)
        elif piece.text and piece.thought:
            story.entries.append(ReasoningItem(text=piece.text))
        elif piece.text:
            story.entries.append(MessageItem(role=role, text=piece.text))


def _ask(story: Story, asked: FunctionCall) -> None:
    if asked.id in story.calls:
        story.gap(DUPLICATE_TOOL_CALL, f"{asked.id}: asked for again")
        return
    story.calls[asked.id] = CallRecord(asked=asked)
    story.entries.append(tool_request(story.calls[asked.id]))


def _take_result(story: Story, entry: Entry, record: Conversation) -> None:
    result = record.toolCallResult
    call = None if result is None else story.calls.get(result.callId)
    if result is None or call is None:
        name = "line" if result is None else result.callId
        story.gap(TOOL_RESULT_UNOWNED, f"{name}: nobody asked for it (line {entry.number})")
    elif call.result is not None:
        story.gap(DUPLICATE_TOOL_CALL, f"{result.callId}: answered again in line {entry.number}")
    else:
        call.result = result
        call.told = "".join(
            piece.functionResponse.text
            for piece in record.message.parts
            if piece.functionResponse is not None and piece.functionResponse.id == result.callId
        )
        story.entries.append(call.asked.id)


def _take_fact(story: Story, session: Session, entry: Entry) -> None:
    payload = entry.raw.get("systemPayload")
    if entry.subtype == "chat_compression":
        found = session.read(entry, Compression, payload)
        if found is not None:
            story.compactions.append(_compaction(story, entry, found))
    elif entry.subtype == "ui_telemetry":
        told = session.read(entry, Telemetry, payload)
        if told is not None:
            story.events.append(told.uiEvent)


def measure(story: Story, session_id: str, events: Iterable[Event]) -> None:
    """Give a story what was measured of it: the references to its model calls, its tools' times."""
    for event in events:
        if event.is_of(session_id, story.agent_id):
            _take_event(story, event)


def _take_event(story: Story, event: Event) -> None:
    if event.name in _MODEL_CALLS and event.response_id:
        story.answered(event.response_id)
    elif event.name == _TOOL_CALL and event.call_id in story.calls:
        story.calls[event.call_id].measured = event


def _compaction(story: Story, entry: Entry, found: Compression) -> ContextCompaction:
    return ContextCompaction(
        invocation_id=story.invocation_id,
        observed_at=entry.at,
        tokens_before=found.info.originalTokenCount,
        tokens_after=found.info.newTokenCount,
        outcome="completed",
    )
