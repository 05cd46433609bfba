"""One tool part of OpenCode: from its state to observations.

OpenCode calls a command that failed, ran out of time or was never run ``completed``; what happened
is in ``metadata.exit``: a number, null when the command did not end by itself, absent for tools
that are no shell.
"""

from __future__ import annotations

import json

from pydantic import JsonValue

from sandbox.evidence.observations import Gap, ToolCall, ToolRequestItem, ToolResultItem, ToolStatus
from sandbox.harnesses.native import (
    TOOL_OUTCOME_UNAVAILABLE,
    TOOL_TIMING_UNAVAILABLE,
    seconds,
    short,
)
from sandbox.harnesses.opencode_database import PartRow

SHELL = "bash"
INVALID = "invalid"  # the tool that answers calls whose arguments cannot be read

NOT_STARTED = "not_started"
"""The error type of a call that was given up before it could be carried out."""

_NOTE = "\n\n<shell_metadata>\n"
_OUT_OF_TIME = "shell tool terminated command after exceeding timeout"
_ABORTED = "User aborted the command"


def tool_name(part: PartRow) -> str:
    """Return the name that the model asked for."""
    asked = _dict(part.state.get("input")).get("tool") if part.tool == INVALID else None
    return asked if isinstance(asked, str) and asked else part.tool


def tool_request(part: PartRow) -> ToolRequestItem:
    """Return the model's request; OpenCode keeps the arguments parsed, not as they were sent."""
    raw = part.state.get("raw")
    if isinstance(raw, str) and raw:
        text = raw
    elif part.tool == INVALID:
        text = ""  # not kept
    else:
        text = json.dumps(part.state.get("input") or {}, ensure_ascii=False)
    return ToolRequestItem(tool_call_id=part.callID, tool_name=tool_name(part), arguments=text)


def tool_result(part: PartRow) -> ToolResultItem | None:
    """Return what the model was told; None while the call was running."""
    text = part.state.get("output", part.state.get("error"))
    if part.state.get("status") not in ("completed", "error") or not isinstance(text, str):
        return None
    return ToolResultItem(tool_call_id=part.callID, output=text, exit_code=_exit_code(part))


def tool_call(part: PartRow, started_at: float | None) -> tuple[ToolCall, list[Gap]]:
    """Return the observation of a call, and gaps for what nothing tells.

    Args:
        part: the tool part.
        started_at: when the call began, from the events.
    """
    status, error_type = _outcome(part)
    completed_at = _end(part)
    timed = started_at is not None and completed_at is not None
    record = ToolCall(
        invocation_id=part.session_id,
        tool_call_id=part.callID,
        tool_name=tool_name(part),
        started_at=started_at,
        completed_at=completed_at,
        duration_ms=round(max(0.0, completed_at - started_at) * 1000, 3)
        if started_at is not None and completed_at is not None
        else None,
        timing_source="artifact" if started_at is not None or completed_at is not None else None,
        status=status,
        error_type=error_type,
    )
    gaps = []
    if status in (ToolStatus.INCOMPLETE, ToolStatus.UNKNOWN):
        said = part.state.get("status")
        gaps.append(_gap(part, TOOL_OUTCOME_UNAVAILABLE, f"its state is {said!r}"))
    elif not timed:
        gaps.append(_gap(part, TOOL_TIMING_UNAVAILABLE, "no event tells when it began"))
    return record, gaps


def _outcome(part: PartRow) -> tuple[ToolStatus, str | None]:
    said = part.state.get("status")
    if said == "completed":
        return _outcome_of_completed(part)
    if said == "error":
        if _metadata(part).get("interrupted") is not True:
            return ToolStatus.FAILED, "tool_error"
        # Without arguments the reply broke before the call was whole.
        return ToolStatus.CANCELLED, "interrupted" if part.state.get("input") else NOT_STARTED
    if said in ("running", "pending"):
        return ToolStatus.INCOMPLETE, None
    return ToolStatus.UNKNOWN, None


def _outcome_of_completed(part: PartRow) -> tuple[ToolStatus, str | None]:
    if part.tool == INVALID:
        return ToolStatus.FAILED, "invalid_arguments"
    if "exit" not in _metadata(part):
        # A shell always tells how it ended, other tools have nothing to tell.
        return (ToolStatus.UNKNOWN if part.tool == SHELL else ToolStatus.COMPLETED), None
    code = _exit_code(part)
    if code is not None:
        return (ToolStatus.FAILED, "exit_code") if code else (ToolStatus.COMPLETED, None)
    note = str(part.state.get("output", "")).rpartition(_NOTE)[2]
    if note.startswith(_OUT_OF_TIME):
        return ToolStatus.TIMEOUT, "timeout"
    return (ToolStatus.CANCELLED, "aborted") if _ABORTED in note else (ToolStatus.UNKNOWN, None)


def _exit_code(part: PartRow) -> int | None:
    code = _metadata(part).get("exit")
    return code if isinstance(code, int) and not isinstance(code, bool) else None


def _end(part: PartRow) -> float | None:
    return seconds(_dict(part.state.get("time")).get("end"))


def _metadata(part: PartRow) -> dict[str, JsonValue]:
    return _dict(part.state.get("metadata"))


def _dict(value: JsonValue) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def _gap(part: PartRow, code: str, why: str) -> Gap:
    return Gap(code=code, invocation_id=part.session_id, detail=short(f"{part.callID}: {why}"))
