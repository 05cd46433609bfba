"""Walks the records of one rollout file and collects what they say about its thread."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from sandbox.evidence.observations import (
    ContextCompaction,
    MessageItem,
    ModelCallRef,
    ReasoningItem,
    ToolRequestItem,
)
from sandbox.harnesses.base import NativeContext
from sandbox.harnesses.codex_outcome import Outcome, outcome_of_abort, outcome_of_completion
from sandbox.harnesses.codex_rollout import (
    CallOutput,
    Compacted,
    CustomToolCall,
    FunctionCall,
    ItemCompleted,
    Line,
    Message,
    Part,
    Reasoning,
    Rollout,
    SessionMeta,
    TaskComplete,
    TokenUsage,
    TurnAborted,
)
from sandbox.harnesses.codex_tools import CallRecord
from sandbox.harnesses.native import DUPLICATE_TOOL_CALL, TOOL_RESULT_UNOWNED
from sandbox.harnesses.story import Thread as WalkedThread

COUNTS_UNAVAILABLE = "compaction_token_counts_unavailable"
_ID_IN_NAME = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.jsonl$")
_ROLES = {"system", "developer", "user", "assistant"}
_TEXT = {"UserMessage", "AgentMessage", "Reasoning", "Plan", "HookPrompt", "ContextCompaction"}


@dataclass
class Thread(WalkedThread[CallRecord]):
    """What one rollout file says; ``spawned`` maps a subagent's thread to the call that made it."""

    parent_id: str | None = None
    spawned: dict[str, str] = field(default_factory=dict)
    outcome: Outcome | None = None
    total_tokens: int | None = None


def read_thread(rollout: Rollout, context: NativeContext) -> Thread:
    """Collect a file's facts; a record that cannot be understood is a gap."""
    named = _ID_IN_NAME.search(rollout.path.name)
    thread = Thread(invocation_id=named[1] if named else rollout.path.stem, context=context)
    for line in rollout.lines:
        _take(thread, rollout, line)
    # Last: a command may end, and its record be written, after the call was answered.
    for line in rollout.lines:
        if _kind(line) == "event_msg/item_completed":
            _take_item(thread, rollout.read(line, ItemCompleted))
    thread.own(rollout.gaps)
    return thread


def _kind(line: Line) -> str:
    kind = line.payload.get("type")
    return f"{line.type}/{kind}" if line.type in ("response_item", "event_msg") else line.type


def _take(thread: Thread, rollout: Rollout, line: Line) -> None:
    kind = _kind(line)
    reader = _READERS.get(kind)
    if reader is not None:
        model, take = reader
        facts = rollout.read(line, model)
        if facts is not None:
            take(thread, facts, line)
    elif kind == "event_msg/task_started":
        thread.outcome = None
    elif kind not in _WITHOUT_FACTS and line.type in ("response_item", "event_msg"):
        rollout.complain(line, "unknown record")


def _take_meta(thread: Thread, meta: SessionMeta, _: Line) -> None:
    thread.invocation_id = meta.id
    thread.parent_id = meta.parent_thread_id


def _take_message(thread: Thread, message: Message, _: Line) -> None:
    if message.role in _ROLES:
        thread.entries.append(
            MessageItem.model_validate({"role": message.role, "text": message.text})
        )


def _take_reasoning(thread: Thread, reasoning: Reasoning, _: Line) -> None:
    if reasoning.text:
        thread.entries.append(ReasoningItem(text=reasoning.text))


def _take_call(thread: Thread, call: FunctionCall, line: Line) -> None:
    _ask(thread, call.call_id, call.name, call.arguments, line)


def _take_custom_call(thread: Thread, call: CustomToolCall, line: Line) -> None:
    _ask(thread, call.call_id, call.name, call.input, line)


def _ask(thread: Thread, call_id: str, name: str, arguments: str, line: Line) -> None:
    if call_id in thread.calls:
        thread.gap(DUPLICATE_TOOL_CALL, f"{call_id}: asked for again in line {line.number}")
        return
    thread.calls[call_id] = CallRecord(
        call_id=call_id, name=name, arguments=arguments, asked_at=line.at
    )
    thread.entries.append(
        ToolRequestItem(tool_call_id=call_id, tool_name=name, arguments=arguments)
    )


def _take_output(thread: Thread, output: CallOutput, line: Line) -> None:
    call = thread.calls.get(output.call_id)
    if call is None:
        thread.gap(TOOL_RESULT_UNOWNED, f"{output.call_id}: nobody asked for it")
    elif call.output is not None:
        thread.gap(DUPLICATE_TOOL_CALL, f"{output.call_id}: answered again in line {line.number}")
    else:
        call.output, call.output_at = output, line.at
        thread.entries.append(output.call_id)


def _take_item(thread: Thread, done: ItemCompleted | None) -> None:
    if done is None or done.item.type in _TEXT:
        return
    call = thread.calls.get(done.item.id)
    if call is not None:
        call.done = call.done or done
    elif done.item.type == "CommandExecution":
        thread.gap(TOOL_RESULT_UNOWNED, f"{done.item.id}: a command that nobody asked for")
    if done.item.tool == "spawn_agent":
        thread.spawned.update(dict.fromkeys(done.item.receiver_thread_ids, done.item.id))


def _take_usage(thread: Thread, usage: TokenUsage, _: Line) -> None:
    total = usage.usage.get("total_tokens")
    thread.total_tokens = total if isinstance(total, int) else None
    thread.answered(usage.response_id)


def _take_compaction(thread: Thread, compacted: Compacted, line: Line) -> None:
    by = compacted.compaction_response_id
    ref = ModelCallRef(model_ref=thread.context.model_ref, response_id=by)
    thread.compactions.append(
        ContextCompaction(
            invocation_id=thread.invocation_id,
            observed_at=line.at,
            outcome="completed",
            summary=compacted.message,
            model_calls=(ref,) if by is not None else (),
        )
    )
    thread.gap(COUNTS_UNAVAILABLE, "the rollout tells no token counts of a compaction")


def _take_completion(thread: Thread, done: TaskComplete, _: Line) -> None:
    thread.outcome = outcome_of_completion(done)


def _take_abort(thread: Thread, aborted: TurnAborted, _: Line) -> None:
    thread.outcome = outcome_of_abort(aborted)


_READERS: dict[str, tuple[type[Part], Callable[..., None]]] = {
    "session_meta": (SessionMeta, _take_meta),
    "response_item/message": (Message, _take_message),
    "response_item/reasoning": (Reasoning, _take_reasoning),
    "response_item/function_call": (FunctionCall, _take_call),
    "response_item/function_call_output": (CallOutput, _take_output),
    "response_item/custom_tool_call": (CustomToolCall, _take_custom_call),
    "response_item/custom_tool_call_output": (CallOutput, _take_output),
    "token_usage_record": (TokenUsage, _take_usage),
    "compacted": (Compacted, _take_compaction),
    "event_msg/task_complete": (TaskComplete, _take_completion),
    "event_msg/turn_aborted": (TurnAborted, _take_abort),
}
_WITHOUT_FACTS = {
    "event_msg/item_completed",  # read last
    *(
        f"response_item/{kind}"
        for kind in (
            "additional_tools",
            "agent_message",
            "compaction",
            "compaction_summary",
            "context_compaction",
            "ghost_snapshot",
            "image_generation_call",
            "tool_search_call",
            "tool_search_output",
            "web_search_call",
        )
    ),
    *(
        f"event_msg/{kind}"
        for kind in (
            "agent_message",
            "agent_reasoning",
            "agent_reasoning_raw_content",
            "background_event",
            "context_compacted",
            "deprecation_notice",
            "entered_review_mode",
            "error",
            "exited_review_mode",
            "guardian_assessment",
            "image_generation_end",
            "item_started",
            "mcp_startup_complete",
            "mcp_startup_update",
            "mcp_tool_call_end",
            "model_reroute",
            "patch_apply_end",
            "plan_update",
            "shutdown_complete",
            "stream_error",
            "sub_agent_activity",
            "thread_goal_updated",
            "thread_name_updated",
            "thread_rolled_back",
            "thread_settings_applied",
            "token_count",
            "turn_diff",
            "user_message",
            "view_image_tool_call",
            "warning",
            "web_search_end",
        )
    ),
}
