"""The events that ``pi --mode json`` prints: the second source, where the session says less."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from sandbox.evidence.observations import Gap
from sandbox.harnesses.native import find_files, json_lines


@dataclass(frozen=True, kw_only=True)
class StdoutFacts:
    """The session, how its last answer stopped, and whether Pi said that this was the end."""

    session_id: str | None = None
    stop_reason: str | None = None
    error_message: str | None = None
    settled: bool = False


def read_stdout(native: Path) -> StdoutFacts:
    """Read the events; lines that are none (a warning, half a line) are left alone."""
    session_id: str | None = None
    answer: dict[str, JsonValue] = {}
    settled = False
    for path in find_files(native, "stdout"):
        for _, event in json_lines(path):
            if isinstance(event, Gap) or not isinstance(event, dict):
                continue
            kind = event.get("type")
            if kind == "session":
                session_id = session_id or _text(event.get("id"))
            elif kind == "agent_start":
                settled = False
            elif kind == "agent_settled":
                settled = True
            elif kind == "message_end":
                message = event.get("message")
                if isinstance(message, dict) and message.get("role") == "assistant":
                    answer = message
    return StdoutFacts(
        session_id=session_id,
        stop_reason=_text(answer.get("stopReason")),
        error_message=_text(answer.get("errorMessage")),
        settled=settled,
    )


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and value else None
