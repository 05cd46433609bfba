"""The events that ``opencode run --format json`` prints: the source when no database was kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from sandbox.evidence.observations import Gap
from sandbox.harnesses.native import find_files, json_lines, short


@dataclass(frozen=True, kw_only=True)
class StdoutFacts:
    """The first session that printed something, and the name of the last error it printed."""

    session_id: str | None = None
    error_name: str | None = None


def read_stdout(native: Path) -> StdoutFacts:
    """Read the events; lines that are none are left alone."""
    session_id: str | None = None
    error_name: str | None = None
    for path in find_files(native, "stdout"):
        for _, event in json_lines(path):
            if isinstance(event, Gap) or not isinstance(event, dict):
                continue
            session_id = session_id or _text(event.get("sessionID"))
            if event.get("type") == "error":
                error = event.get("error")
                named = _text(error.get("name")) if isinstance(error, dict) else None
                error_name = short(named or "error")
    return StdoutFacts(session_id=session_id, error_name=error_name)


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and value else None
