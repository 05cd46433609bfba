"""One tool call of Codex: from the request, the output and the execution record to observations."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sandbox.evidence.observations import Gap, ToolCall, ToolResultItem, ToolStatus
from sandbox.harnesses.codex_rollout import CallOutput, Item, ItemCompleted
from sandbox.harnesses.native import TOOL_OUTCOME_UNAVAILABLE

_FRAME = re.compile(
    r"(?:Chunk ID: [0-9a-f]+\n)?"
    r"Wall time: [0-9.]+ seconds\n"
    r"(?:Process exited with code (?P<code>-?\d{1,10})\n"
    r"|Process running with session ID (?P<session>\d+)\n)?"
    r"(?:Original token count: \d+\n)?"
    r"(?:Output:\n|\Z)"
)
_POLL = "write_stdin"  # asks a running command for more; the command has a record of its own
_STATUS = {
    "completed": (ToolStatus.COMPLETED, None),
    "failed": (ToolStatus.FAILED, "failed"),
    "declined": (ToolStatus.CANCELLED, "declined"),
    "in_progress": (ToolStatus.INCOMPLETE, None),
}


@dataclass(kw_only=True)
class CallRecord:
    """Everything that a rollout says about one call id."""

    call_id: str
    name: str
    arguments: str
    asked_at: float | None
    output: CallOutput | None = None
    output_at: float | None = None
    done: ItemCompleted | None = None


@dataclass(frozen=True)
class _Frame:
    """The lines that Codex puts before a command's output for the model."""

    body: str
    code: int | None
    running: bool


def tool_call(call: CallRecord, invocation_id: str) -> tuple[ToolCall, Gap | None]:
    """Return the observation of a call, and a gap when nothing says how the call ended."""
    status, error_type = _outcome(call)
    started, completed = _times(call)
    record = ToolCall(
        invocation_id=invocation_id,
        tool_call_id=call.call_id,
        tool_name=call.name,
        started_at=started,
        completed_at=completed,
        duration_ms=_between(started, completed),
        timing_source="artifact" if started is not None else None,
        status=status,
        error_type=error_type,
    )
    if status not in (ToolStatus.INCOMPLETE, ToolStatus.UNKNOWN):
        return record, None
    return record, Gap(
        code=TOOL_OUTCOME_UNAVAILABLE,
        invocation_id=invocation_id,
        detail=f"{call.call_id}: {_why(call)}",
    )


def tool_result(call: CallRecord) -> ToolResultItem | None:
    """Return what the model was told, without Codex's frame around a command's output."""
    if call.output is None:
        return None
    frame = _frame(call.output.text)
    item = call.done.item if call.done is not None else None
    if frame is not None:
        body = frame.body
    elif item is not None and item.aggregated_output is not None:
        body = item.aggregated_output  # cut to 64 KiB, without a mark where
    else:
        body = call.output.text
    code = item.exit_code if item is not None else frame.code if frame is not None else None
    ended = code if code is not None and code >= 0 else None
    return ToolResultItem(tool_call_id=call.call_id, output=body, exit_code=ended)


def _outcome(call: CallRecord) -> tuple[ToolStatus, str | None]:
    if call.done is not None:
        return _outcome_of_item(call.done.item)
    frame = _frame(call.output.text) if call.output is not None else None
    if call.output is not None and frame is None:
        return ToolStatus.UNKNOWN, None
    if frame is None or (frame.running and call.name != _POLL):
        return ToolStatus.INCOMPLETE, None
    return (ToolStatus.FAILED, "exit_code") if frame.code else (ToolStatus.COMPLETED, None)


def _outcome_of_item(item: Item) -> tuple[ToolStatus, str | None]:
    if item.exit_code is not None and item.exit_code < 0:
        return ToolStatus.CANCELLED, "killed_by_harness"
    if item.exit_code:
        return ToolStatus.FAILED, "exit_code"
    return _STATUS.get(item.status or "", (ToolStatus.UNKNOWN, item.status))


def _why(call: CallRecord) -> str:
    if call.done is not None:
        return f"its record has status {call.done.item.status}"
    if call.output is None:
        return "the transcript ends before its result"
    return "no execution record, and its output does not say how it ended"


def _times(call: CallRecord) -> tuple[float | None, float | None]:
    """Return when the call ran: as its execution record says, else as the model saw it."""
    if call.done is not None and call.done.started_at_ms is not None:
        end = call.done.completed_at_ms
        return call.done.started_at_ms / 1000, end / 1000 if end is not None else None
    return call.asked_at, call.output_at


def _between(started: float | None, completed: float | None) -> float | None:
    if started is None or completed is None or completed < started:
        return None
    return round((completed - started) * 1000, 3)


def _frame(text: str) -> _Frame | None:
    match = _FRAME.match(text)
    if match is None:
        return None
    code = match["code"]
    return _Frame(
        body=text[match.end() :],
        code=int(code) if code is not None else None,
        running=match["session"] is not None,
    )
