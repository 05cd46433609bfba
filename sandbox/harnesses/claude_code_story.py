"""Walks the rows of one transcript of Claude Code and collects what they say about its thread."""

from __future__ import annotations

import re
from collections import Counter

from pydantic import JsonValue

from sandbox.evidence.observations import ContextCompaction, MessageItem, ReasoningItem
from sandbox.harnesses.base import NativeContext
from sandbox.harnesses.claude_code_rows import Message, Row, Transcript
from sandbox.harnesses.claude_code_tools import (
    CallRecord,
    Notice,
    Returned,
    ToolResult,
    ToolUse,
    tool_request,
)
from sandbox.harnesses.native import DUPLICATE_TOOL_CALL, TOOL_RESULT_UNOWNED
from sandbox.harnesses.story import Story as ThreadStory

_NOTICE = "task-notification"
_OF_NOTICE = {
    name: re.compile(rf"<{name}>(.*?)</{name}>", re.DOTALL)
    for name in ("tool-use-id", "status", "summary")
}


Story = ThreadStory[CallRecord, Row]


def read_story(transcript: Transcript, invocation_id: str, context: NativeContext) -> Story:
    """Collect a thread's facts; a row that cannot be understood is a gap."""
    story = Story(invocation_id, context)
    for row in transcript.rows:
        if row.type == "assistant" and row.message is not None:
            _take_answer(story, transcript, row, row.message)
        elif row.type == "user" and row.message is not None:
            _take_user(story, transcript, row, row.message)
        elif row.subtype == "compact_boundary":
            _take_compaction(story, row)
        elif row.type != "system":
            transcript.complain(row.number, f"{row.type}: no message")
    _count_calls(story, transcript)
    story.own(transcript.gaps)
    return story


def _take_answer(story: Story, transcript: Transcript, row: Row, message: Message) -> None:
    story.answer, story.goes_on, story.last_at = row, False, row.at
    if not row.synthetic:
        story.answered(message.id)
    for block in message.blocks:
        kind = block.get("type")
        if kind == "text" and block.get("text") and not row.synthetic:
            story.entries.append(MessageItem(role="assistant", text=str(block["text"])))
        elif kind == "thinking" and block.get("thinking"):
            story.entries.append(ReasoningItem(text=str(block["thinking"])))
        elif kind == "tool_use":
            _ask(story, row, transcript.read(row, ToolUse, block))


def _ask(story: Story, row: Row, asked: ToolUse | None) -> None:
    if asked is None:
        return
    if asked.id in story.calls:
        story.gap(DUPLICATE_TOOL_CALL, f"{asked.id}: asked for again in line {row.number}")
        return
    story.calls[asked.id] = CallRecord(asked=asked, asked_at=row.at)
    story.entries.append(tool_request(story.calls[asked.id]))


def _take_user(story: Story, transcript: Transcript, row: Row, message: Message) -> None:
    story.first_at = row.at if story.first_at is None else story.first_at
    story.goes_on, story.last_at = True, row.at
    if row.is_summary:
        _take_summary(story, message)
    elif row.origin_kind == _NOTICE:
        _take_notice(story, row, message)
    for block in message.blocks:
        kind = block.get("type")
        if kind == "tool_result":
            _answer(story, transcript, row, transcript.read(row, ToolResult, block))
        elif kind == "text" and block.get("text"):
            story.entries.append(MessageItem(role="user", text=str(block["text"])))


def _answer(story: Story, transcript: Transcript, row: Row, result: ToolResult | None) -> None:
    if result is None:
        return
    call = story.calls.get(result.tool_use_id)
    if call is None:
        story.gap(TOOL_RESULT_UNOWNED, f"{result.tool_use_id}: nobody asked for it")
    elif call.result is not None:
        story.gap(DUPLICATE_TOOL_CALL, f"{call.asked.id}: answered again in line {row.number}")
    else:
        call.result, call.answered_at = result, row.at
        if isinstance(row.result, dict):
            call.returned = transcript.read(row, Returned, row.result)
        story.entries.append(call.asked.id)


def _take_notice(story: Story, row: Row, message: Message) -> None:
    text = "".join(str(block.get("text", "")) for block in message.blocks)
    told = {
        name: found[1] for name, pattern in _OF_NOTICE.items() if (found := pattern.search(text))
    }
    call = story.calls.get(told.get("tool-use-id", ""))
    if call is not None and call.notice is None and "status" in told:
        call.notice = Notice(status=told["status"], summary=told.get("summary", ""), at=row.at)


def _take_compaction(story: Story, row: Row) -> None:
    facts = row.compaction
    story.compactions.append(
        ContextCompaction(
            invocation_id=story.invocation_id,
            observed_at=row.at,
            trigger=None if facts is None else facts.trigger,
            tokens_before=None if facts is None else facts.before,
            tokens_after=None if facts is None else facts.after,
            outcome="completed",
        )
    )


def _take_summary(story: Story, message: Message) -> None:
    text = "".join(str(block.get("text", "")) for block in message.blocks)
    if story.compactions and story.compactions[-1].summary is None:
        last = story.compactions[-1].model_copy(update={"summary": text})
        story.compactions[-1] = last


def _count_calls(story: Story, transcript: Transcript) -> None:
    """Note which calls share an answer: the rows of one answer have one message id."""
    asked: dict[str, JsonValue] = {}
    for row in transcript.rows:
        if row.type == "assistant" and row.message is not None:
            for block in row.message.blocks:
                if block.get("type") == "tool_use" and isinstance(block.get("id"), str):
                    asked.setdefault(str(block["id"]), row.message.id or row.uuid)
    sizes = Counter(json_key for json_key in asked.values())
    for name, call in story.calls.items():
        call.alone = sizes[asked.get(name)] == 1
