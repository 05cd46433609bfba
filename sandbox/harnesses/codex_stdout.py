"""The events that ``codex exec --json`` prints: the second source, where the rollout says less."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from sandbox.evidence.observations import Gap, InvocationStatus
from sandbox.harnesses.native import find_files, json_lines, short


@dataclass(frozen=True, kw_only=True)
class StdoutFacts:
    """What stdout says: the thread, and how its turn ended (None: it does not say)."""

    thread_id: str | None = None
    status: InvocationStatus | None = None
    message: str | None = None


def read_stdout(native: Path) -> StdoutFacts:
    """Read the events; lines that are none (a warning, half a line) are left alone."""
    thread_id: str | None = None
    status: InvocationStatus | None = None
    message: str | None = None
    for path in find_files(native, "stdout"):
        for _, event in json_lines(path):
            if isinstance(event, Gap) or not isinstance(event, dict):
                continue
            kind = event.get("type")
            if kind == "thread.started":
                thread_id = _text(event.get("thread_id")) or thread_id
            elif kind == "turn.started":
                status = None
            elif kind == "turn.completed":
                status = InvocationStatus.COMPLETED
            elif kind == "turn.failed":
                status = InvocationStatus.FAILED
                message = _message(event.get("error"))
    return StdoutFacts(thread_id=thread_id, status=status, message=message)


def _message(error: JsonValue) -> str | None:
    text = _text(error.get("message")) if isinstance(error, dict) else None
    return short(text) if text is not None else None


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and value else None
