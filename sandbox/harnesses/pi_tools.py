"""One tool call of Pi: from the request and the recorded result to observations.

Pi records no exit code. A command that did not exit 0 has an error result whose last line says how
it ended; a result without a duration is of a call that never ran.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from sandbox.evidence.observations import Gap, ToolCall, ToolRequestItem, ToolResultItem, ToolStatus
from sandbox.harnesses.native import (
    TOOL_OUTCOME_UNAVAILABLE,
    TOOL_TIMING_UNAVAILABLE,
    seconds,
    short,
)
from sandbox.harnesses.pi_session import Message, ToolCallBlock

SHELL = "bash"

_ENDED = re.compile(
    r"(?:\A|\n\n)Command (?:"
    r"exited with code (?P<code>-?\d{1,10})"
    r"|(?P<timeout>timed out after [0-9.e+]+ seconds(?:\. The shell exited with code [^\n]*)?)"
    r"|(?P<aborted>aborted)"
    r"|terminated without an exit code"
    r")\Z"
)
_SILENT = "(no output)"
_AS_SENT = "\n\nReceived arguments:\n"


@dataclass(kw_only=True)
class CallRecord:
    """Everything that a session says about one call id; ``alone``: no other call in its answer."""

    asked: ToolCallBlock
    alone: bool
    result: Message | None = None


@dataclass(frozen=True)
class _Frame:
    """A shell's result without what Pi adds to the command's own output."""

    body: str
    code: int | None = None
    status: tuple[ToolStatus, str | None] | None = None


def tool_request(call: CallRecord) -> ToolRequestItem:
    """Return the model's request."""
    error = call.asked.argumentsError
    if error is not None:
        text = error.partition(_AS_SENT)[2]
    else:
        text = json.dumps(call.asked.arguments, ensure_ascii=False)
    return ToolRequestItem(tool_call_id=call.asked.id, tool_name=call.asked.name, arguments=text)


def tool_result(call: CallRecord) -> ToolResultItem | None:
    """Return what the model was told, without Pi's words about how a command ended."""
    if call.result is None:
        return None
    frame = _frame(call)
    if frame is None:
        return ToolResultItem(tool_call_id=call.asked.id, output=call.result.text)
    return ToolResultItem(tool_call_id=call.asked.id, output=frame.body, exit_code=frame.code)


def tool_call(call: CallRecord, invocation_id: str) -> tuple[ToolCall, Gap | None]:
    """Return the observation of a call, and a gap for what nothing tells."""
    status, error_type = _outcome(call)
    started, completed = _times(call)
    duration = call.result.durationMs if call.result is not None else None
    record = ToolCall(
        invocation_id=invocation_id,
        tool_call_id=call.asked.id,
        tool_name=call.asked.name,
        started_at=started,
        completed_at=completed,
        duration_ms=duration,
        timing_source="artifact" if duration is not None else None,
        status=status,
        error_type=error_type,
    )
    lacking = _lacking(call, record)
    if lacking is None:
        return record, None
    code, why = lacking
    return record, Gap(
        code=code, invocation_id=invocation_id, detail=short(f"{call.asked.id}: {why}")
    )


def ran(call: CallRecord) -> bool:
    """Whether the tool was started and gave a result."""
    return call.result is not None and call.result.durationMs is not None


def ran_in_shell(call: CallRecord) -> bool:
    """Whether a shell was started for the call, and ended."""
    return _frame(call) is not None


def _lacking(call: CallRecord, record: ToolCall) -> tuple[str, str] | None:
    if record.status is ToolStatus.INCOMPLETE:
        return TOOL_OUTCOME_UNAVAILABLE, "the session ends before its result"
    if record.status is ToolStatus.UNKNOWN:
        return TOOL_OUTCOME_UNAVAILABLE, "its result does not say how it ended"
    if ran(call) and record.started_at is None:
        return TOOL_TIMING_UNAVAILABLE, "the results of one answer are recorded together"
    return None


def _outcome(call: CallRecord) -> tuple[ToolStatus, str | None]:
    result = call.result
    if result is None:
        return ToolStatus.INCOMPLETE, None
    if result.isError is None:
        return ToolStatus.UNKNOWN, None
    if not result.isError:
        return ToolStatus.COMPLETED, None
    if result.durationMs is None:
        unread = call.asked.argumentsError is not None
        return ToolStatus.FAILED, "invalid_arguments" if unread else "not_run"
    frame = _frame(call)
    if frame is not None and frame.status is not None:
        return frame.status
    return ToolStatus.FAILED, "tool_error"


def _frame(call: CallRecord) -> _Frame | None:
    """Take a shell's result apart; None for what is no shell's result."""
    if call.asked.name != SHELL or call.result is None or not ran(call):
        return None
    text = call.result.text
    if not call.result.isError:
        # A command that prints just this is taken for one that prints nothing.
        return _Frame("" if text == _SILENT else text, 0)
    match = _ENDED.search(text)
    return None if match is None else _of_a_failure(text[: match.start()], match)


def _of_a_failure(body: str, match: re.Match[str]) -> _Frame:
    if match["timeout"]:
        return _Frame(body, status=(ToolStatus.TIMEOUT, "timeout"))
    if match["aborted"]:
        return _Frame(body, status=(ToolStatus.CANCELLED, "aborted"))
    if match["code"] is None:
        return _Frame(body, status=(ToolStatus.UNKNOWN, None))
    code = int(match["code"])
    return _Frame("" if body == _SILENT else body, code, (ToolStatus.FAILED, "exit_code"))


def _times(call: CallRecord) -> tuple[float | None, float | None]:
    """Return when a call ran. Results are recorded when all calls of an answer have ended."""
    if not ran(call) or not call.alone:
        return None, None
    assert call.result is not None
    assert call.result.durationMs is not None
    end_ms = call.result.timestamp
    if end_ms is None:
        return None, None
    return seconds(max(0.0, end_ms - call.result.durationMs)), seconds(end_ms)
