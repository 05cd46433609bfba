"""How a turn of Codex ended, from its terminal record."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic import JsonValue

from sandbox.evidence.observations import InvocationStatus
from sandbox.harnesses.codex_rollout import TaskComplete, TurnAborted
from sandbox.harnesses.native import short

_INCOMPLETE = re.compile(r"Incomplete response returned, reason: (\w{1,64})")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of an invocation."""

    status: InvocationStatus
    error_type: str | None = None
    duration_ms: float | None = None


def outcome_of_completion(done: TaskComplete) -> Outcome:
    """Return the outcome that ``task_complete`` tells: with an error it is none."""
    if done.error is None:
        return Outcome(status=InvocationStatus.COMPLETED, duration_ms=done.duration_ms)
    message = done.error.get("message")
    return incomplete_or_failed(
        message if isinstance(message, str) else None,
        _error_name(done.error.get("codex_error_info")),
        done.duration_ms,
    )


def outcome_of_abort(aborted: TurnAborted) -> Outcome:
    """Return the outcome of a turn that was stopped."""
    return Outcome(
        status=InvocationStatus.INCOMPLETE,
        error_type=f"turn_aborted_{short(aborted.reason)}",
        duration_ms=aborted.duration_ms,
    )


def incomplete_or_failed(
    message: str | None, error_name: str, duration_ms: float | None = None
) -> Outcome:
    """Tell an answer that hit its limit from an error: Codex says the former by text only."""
    match = _INCOMPLETE.match(message or "")
    if match is not None:
        return Outcome(
            status=InvocationStatus.INCOMPLETE, error_type=match[1], duration_ms=duration_ms
        )
    return Outcome(status=InvocationStatus.FAILED, error_type=error_name, duration_ms=duration_ms)


def _error_name(info: JsonValue) -> str:
    """Return the name in ``codex_error_info``, which is a string or an object of one key."""
    if isinstance(info, str) and info:
        return short(info)
    if isinstance(info, dict) and len(info) == 1:
        name, detail = next(iter(info.items()))
        status = detail.get("http_status_code") if isinstance(detail, dict) else None
        return short(f"{name}_{status}" if isinstance(status, int) else name)
    return "other"
