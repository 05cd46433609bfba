"""One tool call of Claude Code: from the request and the recorded result to observations.

A command that fails has its exit code in the first line of the result; one that Claude Code finds
harmless (``grep`` without a match) has none, and a word for it. A command that took too long goes
on in the background, and a notice tells its end.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, JsonValue

from sandbox.evidence.observations import Gap, ToolCall, ToolRequestItem, ToolResultItem, ToolStatus
from sandbox.harnesses.claude_code_rows import Part
from sandbox.harnesses.native import TOOL_OUTCOME_UNAVAILABLE, TOOL_TIMING_UNAVAILABLE, short

SHELL = "Bash"

_FAILED = re.compile(r"Exit code (-?\d{1,10})(?:\n|\Z)")
_NOT_RUN = "<tool_use_error>"
_INVALID = f"{_NOT_RUN}InputValidationError"
_SILENT = "(Bash completed with no output)"
_UNPARSED = "__unparsedToolInput"
_NOTICE_CODE = re.compile(r"exit code (-?\d{1,10})")
_ENDS = {
    "completed": (ToolStatus.COMPLETED, None),
    "failed": (ToolStatus.FAILED, "failed"),
    "killed": (ToolStatus.CANCELLED, "killed_by_harness"),
    "stopped": (ToolStatus.CANCELLED, "killed_by_harness"),
}

Outcome = tuple[ToolStatus, str | None]


class ToolUse(Part):
    """A block of an answer: the model asked for a tool call; the input is kept parsed."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: JsonValue = None


class ToolResult(Part):
    """A block of a user's message: what the model was told about a tool call."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: str | list[dict[str, JsonValue]] = ""
    is_error: bool | None = None

    @property
    def text(self) -> str:
        """All text of the result."""
        if isinstance(self.content, str):
            return self.content
        texts = (part.get("text") for part in self.content)
        return "".join(text for text in texts if isinstance(text, str))


class Returned(Part):
    """What a tool returned, in its own form (``toolUseResult``): a shell's, or a subagent's."""

    stdout: str | None = None
    stderr: str | None = None
    interrupted: bool = False
    background_task: str | None = Field(default=None, alias="backgroundTaskId")
    harmless: str | None = Field(default=None, alias="returnCodeInterpretation")
    is_async: bool = Field(default=False, alias="isAsync")
    agent_id: str | None = Field(default=None, alias="agentId")


@dataclass(frozen=True, kw_only=True)
class Notice:
    """A notice that a call which ran in the background has ended, and when it was given."""

    status: str
    summary: str
    at: float | None


@dataclass(kw_only=True)
class CallRecord:
    """Everything that the transcripts say about one call id."""

    asked: ToolUse
    asked_at: float | None
    alone: bool = True
    result: ToolResult | None = None
    returned: Returned | None = None
    answered_at: float | None = None
    notice: Notice | None = None


def tool_request(call: CallRecord) -> ToolRequestItem:
    """Return the model's request, as it was sent where it could not be parsed."""
    given = call.asked.input
    unparsed = given.get(_UNPARSED) if isinstance(given, dict) else None
    raw = unparsed.get("raw") if isinstance(unparsed, dict) else None
    text = raw if isinstance(raw, str) else json.dumps(given, ensure_ascii=False)
    return ToolRequestItem(tool_call_id=call.asked.id, tool_name=call.asked.name, arguments=text)


def tool_result(call: CallRecord) -> ToolResultItem | None:
    """Return what the model was told, without Claude Code's words about how a command ended."""
    if call.result is None:
        return None
    text, code = call.result.text, None
    if call.asked.name == SHELL:
        failed = _FAILED.match(text) if call.result.is_error else None
        if failed is not None:
            text, code = text[failed.end() :], int(failed[1])
        elif text == _SILENT and not call.result.is_error:
            text = ""
        code = code if code is not None else _exit_code(call)
    return ToolResultItem(tool_call_id=call.asked.id, output=text, exit_code=code)


def tool_call(call: CallRecord, invocation_id: str) -> tuple[ToolCall, Gap | None]:
    """Return the observation of a call, and a gap for what nothing tells."""
    status, error_type = _outcome(call)
    started, completed = _times(call)
    duration = None
    if started is not None and completed is not None:
        duration = round(max(0.0, completed - started) * 1000, 3)
    record = ToolCall(
        invocation_id=invocation_id,
        tool_call_id=call.asked.id,
        tool_name=call.asked.name,
        started_at=started,
        completed_at=completed,
        duration_ms=duration,
        timing_source="artifact" if started is not None or completed is not None else None,
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
    return call.result is not None and not call.result.text.startswith(_NOT_RUN)


def _in_background(call: CallRecord) -> bool:
    back = call.returned
    return back is not None and (back.background_task is not None or back.is_async)


def _lacking(call: CallRecord, record: ToolCall) -> tuple[str, str] | None:
    if record.status is ToolStatus.INCOMPLETE:
        if _in_background(call):
            return TOOL_OUTCOME_UNAVAILABLE, "it went to the background and no notice tells its end"
        return TOOL_OUTCOME_UNAVAILABLE, "the transcript ends before its result"
    if record.status is ToolStatus.UNKNOWN:
        return TOOL_OUTCOME_UNAVAILABLE, "its result does not say how it ended"
    if ran(call) and (record.started_at is None or record.completed_at is None):
        return TOOL_TIMING_UNAVAILABLE, "only the end of each call of an answer is recorded"
    return None


def _outcome(call: CallRecord) -> Outcome:
    if call.result is None:
        return ToolStatus.INCOMPLETE, None
    if _in_background(call):
        return _outcome_of_notice(call.notice)
    if call.result.is_error:
        return ToolStatus.FAILED, _why_failed(call.asked.name, call.result.text)
    if call.returned is not None and call.returned.interrupted:
        return ToolStatus.CANCELLED, "interrupted"
    if call.returned is not None and call.returned.harmless is not None:
        return ToolStatus.FAILED, "exit_code"
    return ToolStatus.COMPLETED, None


def _why_failed(name: str, text: str) -> str:
    if text.startswith(_INVALID):
        return "invalid_arguments"
    if text.startswith(_NOT_RUN):
        return "not_run"
    return "exit_code" if name == SHELL and _FAILED.match(text) else "tool_error"


def _outcome_of_notice(notice: Notice | None) -> Outcome:
    if notice is None:
        return ToolStatus.INCOMPLETE, None
    status, error_type = _ENDS.get(notice.status, (ToolStatus.UNKNOWN, short(notice.status)))
    if status is ToolStatus.FAILED and _NOTICE_CODE.search(notice.summary):
        return status, "exit_code"
    return status, error_type


def _exit_code(call: CallRecord) -> int | None:
    """Return the exit code that a command without an error result has."""
    if _in_background(call):
        code = _NOTICE_CODE.search(call.notice.summary) if call.notice is not None else None
        return int(code[1]) if code is not None else None
    status, _ = _outcome(call)
    return 0 if status is ToolStatus.COMPLETED and call.returned is not None else None


def _times(call: CallRecord) -> tuple[float | None, float | None]:
    """Return when a call ran, as far as that is recorded: calls of one answer may wait."""
    if not ran(call):
        return None, None
    end = call.answered_at
    if _in_background(call):
        end = call.notice.at if call.notice is not None else None
    return call.asked_at if call.alone else None, end
