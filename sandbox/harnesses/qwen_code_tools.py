"""One tool call of Qwen Code: from the request and the recorded result to observations."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from pydantic import ValidationError

from sandbox.evidence.observations import Gap, ToolCall, ToolRequestItem, ToolResultItem, ToolStatus
from sandbox.harnesses.native import (
    TOOL_OUTCOME_UNAVAILABLE,
    TOOL_TIMING_UNAVAILABLE,
    short,
)
from sandbox.harnesses.qwen_code_session import (
    Event,
    FunctionCall,
    ShellResult,
    ToolCallResult,
    moment,
)

SHELL = "run_shell_command"

_NOT_STARTED = "not_started"
_FRAME = re.compile(r"\nExit Code: (\d+)\nSignal: \(none\)\nProcess Group PGID: [^\n]*\Z")
"""How the text for the model ends, after a command's output."""
_BY_OUTCOME = {
    "timed_out": (ToolStatus.TIMEOUT, "timeout"),
    "cancelled": (ToolStatus.CANCELLED, "cancelled"),
    "failed": (ToolStatus.FAILED, "tool_error"),
    "completed": (ToolStatus.COMPLETED, None),
}


@dataclass(kw_only=True)
class CallRecord:
    """Everything that a session says about one call id; ``told`` is what the model was told."""

    asked: FunctionCall
    result: ToolCallResult | None = None
    told: str = ""
    measured: Event | None = None

    @property
    def shell(self) -> ShellResult | None:
        """How a command of the shell tool ended; None for what is none."""
        if self.result is None or self.asked.name != SHELL:
            return None
        try:
            return ShellResult.model_validate(self.result.resultDisplay)
        except ValidationError:
            return None

    @property
    def exit_code(self) -> int | None:
        """A command's exit code: of a subagent's only the text for the model tells it."""
        if self.shell is not None:
            return self.shell.exitCode
        if self.result is None or self.result.status is not None or self.asked.name != SHELL:
            return None
        found = _FRAME.search(self.told)
        return int(found[1]) if found else None


def tool_request(call: CallRecord) -> ToolRequestItem:
    """Return the model's request, with the arguments that Qwen Code read out of it."""
    return ToolRequestItem(
        tool_call_id=call.asked.id,
        tool_name=call.asked.name,
        arguments=json.dumps(call.asked.args, ensure_ascii=False),
    )


def tool_result(call: CallRecord) -> ToolResultItem | None:
    """Return what the model was told: of a whole command's result its own output."""
    if call.result is None:
        return None
    shell = call.shell
    whole = shell is not None and not shell.truncated and shell.output in call.told
    return ToolResultItem(
        tool_call_id=call.asked.id,
        output=shell.output if shell is not None and whole else call.told,
        exit_code=call.exit_code,
    )


def tool_call(call: CallRecord, invocation_id: str) -> tuple[ToolCall, Gap | None]:
    """Return the observation of a call, and a gap for what nothing tells."""
    status, error_type = _outcome(call)
    duration, completed = _times(call)
    record = ToolCall(
        invocation_id=invocation_id,
        tool_call_id=call.asked.id,
        tool_name=call.asked.name,
        started_at=None if completed is None else max(0.0, completed - (duration or 0.0) / 1000),
        completed_at=completed,
        duration_ms=duration,
        timing_source=None if duration is None else "harness",
        status=status,
        error_type=error_type,
    )
    lacking = _lacking(call, record)
    if lacking is None:
        return record, None
    code, why = lacking
    detail = short(f"{call.asked.id}: {why}")
    return record, Gap(code=code, invocation_id=invocation_id, detail=detail)


def ran_in_shell(call: CallRecord) -> bool:
    """Whether a shell was started for the call, and ended."""
    return call.shell is not None


def _lacking(call: CallRecord, record: ToolCall) -> tuple[str, str] | None:
    if call.result is None:
        return TOOL_OUTCOME_UNAVAILABLE, "the session ends before its result"
    if record.status is ToolStatus.UNKNOWN:
        return TOOL_OUTCOME_UNAVAILABLE, "its result does not say how it ended"
    if record.completed_at is None and call.result.executionStatus != _NOT_STARTED:
        return TOOL_TIMING_UNAVAILABLE, "nothing measured it"
    return None


def _outcome(call: CallRecord) -> tuple[ToolStatus, str | None]:
    result, shell = call.result, call.shell
    if result is None:
        return ToolStatus.INCOMPLETE, None
    if call.exit_code:
        return ToolStatus.FAILED, "exit_code"
    if shell is not None and shell.outcome is not None:
        return _BY_OUTCOME.get(shell.outcome, (ToolStatus.UNKNOWN, None))
    if result.status == "cancelled":
        return ToolStatus.CANCELLED, "cancelled"
    if result.status == "error":
        return ToolStatus.FAILED, short(result.errorType or "tool_error")
    completed = result.status == "success" or call.exit_code == 0
    return (ToolStatus.COMPLETED if completed else ToolStatus.UNKNOWN), None


def _times(call: CallRecord) -> tuple[float | None, float | None]:
    """Return how long a call took (ms) and when it ended (seconds since the epoch)."""
    not_run = call.result is not None and call.result.executionStatus == _NOT_STARTED
    if call.measured is None or call.result is None or not_run:
        return None, None
    duration = call.measured.duration_ms
    return duration, None if duration is None else moment(call.measured.timestamp)
