"""One tool call of OpenClaw: what was asked, what came back, how it ended.

A command that takes longer than its yield time goes on in the background; its call is answered
with the id of a process, and how it ended is told by a later call of the ``process`` tool, if ever.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from sandbox.evidence.observations import Gap, ToolCall, ToolRequestItem, ToolResultItem, ToolStatus
from sandbox.harnesses.native import (
    TOOL_OUTCOME_UNAVAILABLE,
    TOOL_TIMING_UNAVAILABLE,
    seconds,
    short,
)
from sandbox.harnesses.openclaw_session import Content, Message

SHELL = "exec"
PROCESS = "process"

_End = tuple[ToolStatus, str | None]


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call as the model asked for it, and its result, if one came.

    ``later`` is the result of the ``process`` call that tells the end of a background command.
    """

    invocation_id: str
    asked: Content
    result: Message | None
    later: Message | None = None


def tool_request(asked: Content) -> ToolRequestItem:
    """Return the model's request, with the text of its arguments as it was sent."""
    text = asked.partialArgs or json.dumps(asked.arguments, ensure_ascii=False)
    return ToolRequestItem(tool_call_id=asked.id, tool_name=asked.name, arguments=text)


def tool_result(result: Message) -> ToolResultItem:
    """Return what the model was told."""
    code = details_of(result).get("exitCode")
    return ToolResultItem(
        tool_call_id=result.toolCallId or "",
        output=result.text,
        exit_code=code if isinstance(code, int) and not isinstance(code, bool) else None,
    )


def tool_call(call: Call) -> tuple[ToolCall, list[Gap]]:
    """Return the observation of a call, and gaps for what nothing tells."""
    status, error_type = _end(call)
    started_at = seconds(details_of(call.result).get("startedAt"))
    completed_at = None
    duration_ms = None
    # Of a background command nobody knows more than that it had ended when it was asked about.
    if call.result is not None and process_of(call.result) is None:
        completed_at = seconds(call.result.timestamp)
        duration_ms = _duration_ms(call.result)
    timed = {started_at, completed_at, duration_ms} != {None}
    record = ToolCall(
        invocation_id=call.invocation_id,
        tool_call_id=call.asked.id,
        tool_name=call.asked.name,
        started_at=started_at,
        completed_at=completed_at,
        duration_ms=duration_ms,
        timing_source="artifact" if timed else None,
        status=status,
        error_type=error_type,
    )
    gaps = []
    if status is ToolStatus.INCOMPLETE:
        why = "it was not answered" if call.result is None else "it was left running"
        gaps.append(_gap(call, TOOL_OUTCOME_UNAVAILABLE, why))
    elif duration_ms is None:
        gaps.append(_gap(call, TOOL_TIMING_UNAVAILABLE, "its duration is not recorded"))
    return record, gaps


def process_of(result: Message | None) -> str | None:
    """Return the id of the process that a result leaves running."""
    details = details_of(result)
    process = details.get("sessionId")
    running = details.get("status") == "running" and isinstance(process, str)
    return str(process) if running else None


def ended_process(result: Message) -> str | None:
    """Return the id of the process whose end a result of the ``process`` tool tells."""
    details = details_of(result)
    process = details.get("sessionId")
    ended = details.get("status") in ("completed", "failed") and isinstance(process, str)
    return str(process) if ended else None


def ran_in_a_shell(call: Call) -> bool:
    """Whether a shell was started for the call."""
    details = details_of(call.result)
    keys = {"exitCode", "durationMs", "startedAt"}
    return call.asked.name == SHELL and bool(keys & details.keys())


def details_of(result: Message | None) -> Mapping[str, JsonValue]:
    """Return what OpenClaw keeps beside the text of a result."""
    details = None if result is None else result.details
    return details if isinstance(details, dict) else {}


def _end(call: Call) -> _End:
    told = call.later or call.result
    if told is None or (call.later is None and process_of(call.result) is not None):
        return ToolStatus.INCOMPLETE, None
    if call.asked.name == PROCESS and ended_process(told) is not None:
        return ToolStatus.COMPLETED, None  # it tells how another call ended
    return _failure(told) or (ToolStatus.COMPLETED, None)


def _failure(told: Message) -> _End | None:
    details = details_of(told)
    code = details.get("exitCode")
    if details.get("timedOut") is True:
        return ToolStatus.TIMEOUT, "timeout"
    if isinstance(code, int) and not isinstance(code, bool) and code != 0:
        return ToolStatus.FAILED, "exit_code"
    if details.get("status") == "failed":
        return ToolStatus.FAILED, "no_exit_code"  # a signal ended it
    return (ToolStatus.FAILED, "tool_error") if told.isError else None


def _duration_ms(told: Message) -> float | None:
    duration = details_of(told).get("durationMs")
    if isinstance(duration, bool) or not isinstance(duration, int | float):
        return None
    return float(duration) if 0 <= duration <= 1e15 else None


def _gap(call: Call, code: str, why: str) -> Gap:
    return Gap(code=code, invocation_id=call.invocation_id, detail=short(f"{call.asked.id}: {why}"))
