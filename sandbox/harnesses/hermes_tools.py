"""One tool call of Hermes: from its request, result and journal entries to observations.

The terminal tool answers with a JSON object: ``output``, ``exit_code``, ``error``. Hermes' own
codes in it: 124 with a note for a time-out, 130 with a note for an interrupt, -1 for a command that
it did not run. Other tools answer with a JSON object that may hold ``error``, or with a text.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import JsonValue

from sandbox.evidence.observations import Gap, ToolCall, ToolRequestItem, ToolResultItem, ToolStatus
from sandbox.harnesses.hermes_database import MessageRow
from sandbox.harnesses.hermes_journal import ToolTimes
from sandbox.harnesses.native import (
    TOOL_OUTCOME_UNAVAILABLE,
    TOOL_TIMING_UNAVAILABLE,
    json_value,
    short,
)

SHELL = "terminal"

_NOT_RUN = -1
_TIMEOUT = (124, "[Command timed out after ")
_INTERRUPT = (130, "[Command interrupted]")
_SKIPPED = "[Tool execution cancelled"
_REFUSED = ("Error executing tool ", "Error: Invalid JSON", "Invalid JSON", "Tool '")


@dataclass(frozen=True, kw_only=True)
class Request:
    """A call as the model asked for it."""

    session_id: str
    call_id: str
    name: str
    arguments: str

    def item(self) -> ToolRequestItem:
        """Return its place in the conversation."""
        return ToolRequestItem(
            tool_call_id=self.call_id, tool_name=self.name, arguments=self.arguments
        )


def requests(message: MessageRow) -> list[Request]:
    """Return the calls of an answer.

    Raises:
        TypeError, ValueError, RecursionError: its column of calls cannot be read.
    """
    return [_request(message, call) for call in message.calls()]


def _request(message: MessageRow, call: dict[str, JsonValue]) -> Request:
    function = call.get("function")
    said = function if isinstance(function, dict) else {}
    identity, name, arguments = call.get("id"), said.get("name"), said.get("arguments")
    if not isinstance(identity, str) or not isinstance(name, str):
        raise TypeError("a tool call has no id or no name")
    return Request(
        session_id=message.session_id,
        call_id=identity,
        name=name,
        arguments=arguments if isinstance(arguments, str) else "",
    )


def tool_result(message: MessageRow) -> ToolResultItem:
    """Return what the model was told."""
    answer = _answer(message)
    output = answer.get("output")
    return ToolResultItem(
        tool_call_id=message.tool_call_id or "",
        output=output if isinstance(output, str) else message.content or "",
        exit_code=_exit_code(answer),
    )


def tool_call(
    request: Request, result: MessageRow | None, times: ToolTimes | None
) -> tuple[ToolCall, list[Gap]]:
    """Return the observation of a call, and gaps for what nothing tells."""
    status, error_type = _outcome(request, result, times)
    began = times.began if times else None
    ended = times.ended if times else None
    took = None
    if began is not None and ended is not None:
        took = round(max(0.0, ended - began) * 1000, 3)
    record = ToolCall(
        invocation_id=request.session_id,
        tool_call_id=request.call_id,
        tool_name=request.name,
        started_at=began,
        completed_at=ended,
        duration_ms=took,
        timing_source=None if began is None and ended is None else "harness",
        status=status,
        error_type=error_type,
    )
    gaps = []
    if status in (ToolStatus.INCOMPLETE, ToolStatus.UNKNOWN):
        gaps.append(_gap(request, TOOL_OUTCOME_UNAVAILABLE, "no result tells how it ended"))
    elif took is None and error_type not in _NEVER_BEGAN:
        gaps.append(_gap(request, TOOL_TIMING_UNAVAILABLE, "the journal does not tell its times"))
    return record, gaps


_NEVER_BEGAN = {"invalid_call", "skipped"}
_STOPPED: dict[str | None, tuple[ToolStatus, str]] = {
    "timeout": (ToolStatus.TIMEOUT, "timeout"),
    "cancelled": (ToolStatus.CANCELLED, "interrupted"),
}


def _outcome(
    request: Request, result: MessageRow | None, times: ToolTimes | None
) -> tuple[ToolStatus, str | None]:
    if times is not None and times.status in _STOPPED:
        return _STOPPED[times.status]
    if result is None:
        return ToolStatus.INCOMPLETE, None
    text = result.content or ""
    if text.startswith(_SKIPPED):
        return ToolStatus.CANCELLED, "skipped"
    if times is None and text.startswith(_REFUSED):
        return ToolStatus.FAILED, "invalid_call"
    answer = _answer(result)
    if request.name == SHELL:
        return _outcome_of_command(answer)
    failed = bool(answer.get("error")) or text.startswith(_REFUSED)
    return (ToolStatus.FAILED, "tool_error") if failed else (ToolStatus.COMPLETED, None)


def _outcome_of_command(answer: dict[str, JsonValue]) -> tuple[ToolStatus, str | None]:
    code = _exit_code(answer)
    if code is None:
        # A command that was run tells its code; a refusal has an error instead.
        refused = bool(answer.get("error"))
        return (ToolStatus.FAILED, "tool_error") if refused else (ToolStatus.UNKNOWN, None)
    said = f"{answer.get('output')}{answer.get('error')}"
    if code == _TIMEOUT[0] and ("Command timed out after " in said or _TIMEOUT[1] in said):
        return ToolStatus.TIMEOUT, "timeout"
    if code == _INTERRUPT[0] and _INTERRUPT[1] in said:
        return ToolStatus.CANCELLED, "interrupted"
    if code == _NOT_RUN:
        return ToolStatus.FAILED, "tool_error"
    return (ToolStatus.FAILED, "exit_code") if code else (ToolStatus.COMPLETED, None)


def _exit_code(answer: dict[str, JsonValue]) -> int | None:
    code = answer.get("exit_code")
    return code if isinstance(code, int) and not isinstance(code, bool) else None


def _answer(message: MessageRow) -> dict[str, JsonValue]:
    """Return a result's JSON object; nothing where it is a text.

    Hints found beside the files of a call follow the object: only its first value counts.
    """
    text = message.content or ""
    try:
        value = json_value(_first_object(text))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _first_object(text: str) -> str:
    end = text.find("}\n\n")
    return text if end < 0 else text[: end + 1]


def _gap(request: Request, code: str, why: str) -> Gap:
    return Gap(
        code=code, invocation_id=request.session_id, detail=short(f"{request.call_id}: {why}")
    )
