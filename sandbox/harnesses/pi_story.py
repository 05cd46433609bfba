"""Walks the entries of one Pi session and collects what they say."""

from __future__ import annotations

from collections.abc import Iterator

from sandbox.evidence.observations import ContextCompaction, MessageItem, ReasoningItem
from sandbox.harnesses.base import NativeContext
from sandbox.harnesses.native import DUPLICATE_TOOL_CALL, TOOL_RESULT_UNOWNED
from sandbox.harnesses.pi_session import (
    Compaction,
    ContextEdit,
    Entry,
    Message,
    MessageEntry,
    Session,
    ToolCallBlock,
)
from sandbox.harnesses.pi_tools import CallRecord, tool_request
from sandbox.harnesses.story import Story as ThreadStory

COUNTS_UNAVAILABLE = "compaction_token_counts_unavailable"

_ROLES_WITHOUT_FACTS = {"bashExecution", "branchSummary", "compactionSummary", "custom"}
_CUT_SHORT = {"aborted", "error"}


Story = ThreadStory[CallRecord, Message]


def read_story(session: Session, context: NativeContext) -> Story:
    """Collect a session's facts; an entry that cannot be understood is a gap."""
    named = session.path.stem.partition("_")[2]
    story = Story(session.id or named, context)
    if session.id is None:
        session.complain(1, "no session header")
    messages = list(_messages(session))
    retracted = _retracted(session)
    answers = [entry.id for entry, message in messages if message.role == "assistant"]
    replaced = retracted & set(answers[:-1])
    for entry, message in messages:
        _take(story, session, entry, message, replaced=entry.id in replaced)
    story.goes_on = story.goes_on or bool(retracted & set(answers[-1:]))
    _take_compactions(story, session)
    story.own(session.gaps)
    return story


def _messages(session: Session) -> Iterator[tuple[Entry, Message]]:
    for entry in session.entries:
        found = session.read(entry, MessageEntry) if entry.type == "message" else None
        if found is not None:
            yield entry, found.message


def _retracted(session: Session) -> set[str]:
    """Return the entries that Pi took out of what the model sees, such as an answer to retry."""
    edits = [session.read(e, ContextEdit) for e in session.entries if e.type == "context_edit"]
    return {edit.targetId for edit in edits if edit is not None and edit.replacement is None}


def _take(
    story: Story, session: Session, entry: Entry, message: Message, *, replaced: bool
) -> None:
    if message.role == "assistant":
        _take_answer(story, session, entry, message, replaced=replaced)
    elif message.role == "toolResult":
        _take_result(story, entry, message)
    elif message.role == "user":
        story.first_at = entry.at if story.first_at is None else story.first_at
        story.goes_on = True
        story.entries.append(MessageItem(role="user", text=message.text))
    elif message.role == "system":
        if message.text:
            story.entries.append(MessageItem(role="system", text=message.text))
    elif message.role not in _ROLES_WITHOUT_FACTS:
        session.complain(entry.number, f"unknown role {message.role}")


def _take_answer(
    story: Story, session: Session, entry: Entry, message: Message, *, replaced: bool
) -> None:
    story.answer, story.last_at, story.goes_on = message, entry.at, False
    story.answered(message.responseId)
    if replaced:
        return
    blocks = message.content
    if isinstance(blocks, str):
        blocks = [{"type": "text", "text": blocks}]
    alone = sum(block.get("type") == "toolCall" for block in blocks) == 1
    for block in blocks:
        kind = block.get("type")
        if kind == "text" and block.get("text"):
            story.entries.append(MessageItem(role="assistant", text=str(block["text"])))
        elif kind == "thinking" and block.get("thinking"):
            story.entries.append(ReasoningItem(text=str(block["thinking"])))
        elif kind == "toolCall" and message.stopReason not in _CUT_SHORT:
            _ask(story, session.read(entry, ToolCallBlock, block), alone=alone)


def _ask(story: Story, asked: ToolCallBlock | None, *, alone: bool) -> None:
    if asked is None:
        return
    if asked.id in story.calls:
        story.gap(DUPLICATE_TOOL_CALL, f"{asked.id}: asked for again")
        return
    story.calls[asked.id] = CallRecord(asked=asked, alone=alone)
    story.entries.append(tool_request(story.calls[asked.id]))


def _take_result(story: Story, entry: Entry, message: Message) -> None:
    call = story.calls.get(message.toolCallId or "")
    if call is None:
        story.gap(TOOL_RESULT_UNOWNED, f"{message.toolCallId}: nobody asked for it")
    elif call.result is not None:
        story.gap(DUPLICATE_TOOL_CALL, f"{call.asked.id}: answered again in line {entry.number}")
    else:
        call.result = message
        story.entries.append(call.asked.id)


def _take_compactions(story: Story, session: Session) -> None:
    for entry in session.entries:
        found = session.read(entry, Compaction) if entry.type == "compaction" else None
        if found is None:
            continue
        story.compactions.append(
            ContextCompaction(
                invocation_id=story.invocation_id,
                observed_at=entry.at,
                tokens_before=found.tokensBefore,
                outcome="completed",
                summary=found.summary,
                first_kept_item_id=found.firstKeptEntryId,
            )
        )
        story.gap(COUNTS_UNAVAILABLE, "the size of the history after a compaction is not kept")
