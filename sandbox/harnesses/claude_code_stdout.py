"""The events that ``claude --output-format stream-json`` prints: how a run ended is only there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from sandbox.evidence.observations import Gap, InvocationStatus
from sandbox.harnesses.native import find_files, json_lines, short

Outcome = tuple[InvocationStatus, str | None]

_STOPPED = {
    "aborted_streaming",
    "aborted_tools",
    "background_requested",
    "budget_exhausted",
    "hook_stopped",
    "max_turns",
    "stop_hook_prevented",
    "tool_deferred",
}
_OUTPUT_LIMIT = "max_output_tokens"


@dataclass(frozen=True, kw_only=True)
class StdoutFacts:
    """The session, and how its last turn ended (None: stdout does not say)."""

    session_id: str | None = None
    outcome: Outcome | None = None


def read_stdout(native: Path) -> StdoutFacts:
    """Read the events; lines that are none (a warning, half a line) are left alone."""
    session_id: str | None = None
    outcome: Outcome | None = None
    for path in find_files(native, "stdout"):
        for _, event in json_lines(path):
            if isinstance(event, Gap) or not isinstance(event, dict):
                continue
            session_id = session_id or _text(event.get("session_id"))
            kind = event.get("type")
            if kind == "system" and event.get("subtype") == "init":
                outcome = None  # another turn: of a notice from the background
            elif kind == "result":
                outcome = _outcome(event)
    return StdoutFacts(session_id=session_id, outcome=outcome)


def api_error(error: JsonValue, status: JsonValue) -> Outcome:
    """Return the outcome of a turn whose last request failed, or whose answer hit its limit."""
    if error == _OUTPUT_LIMIT:
        return InvocationStatus.INCOMPLETE, _OUTPUT_LIMIT
    if isinstance(status, int) and not isinstance(status, bool):
        return InvocationStatus.FAILED, f"http_{status}"
    return InvocationStatus.FAILED, short(_text(error) or "error")


def _outcome(result: dict[str, JsonValue]) -> Outcome:
    reason = _text(result.get("terminal_reason"))
    if reason in _STOPPED:
        return InvocationStatus.INCOMPLETE, reason
    if result.get("is_error") is False and reason in ("completed", None):
        return InvocationStatus.COMPLETED, None
    error = result.get("api_error") or result.get("api_error_type") or reason
    return api_error(error, result.get("api_error_status"))


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and value else None
