"""The journal of our plugin in Hermes: when tools began and ended, which requests failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from sandbox.evidence.observations import Gap
from sandbox.harnesses.native import find_files, json_lines, seconds

_Entry = Mapping[str, JsonValue]


@dataclass
class ToolTimes:
    """When a tool call began and ended; ``status`` and ``error_type`` are Hermes' words."""

    began: float | None = None
    ended: float | None = None
    status: str | None = None
    error_type: str | None = None


@dataclass
class SessionEnd:
    """How a session's requests and turn ended.

    ``error_type`` is that of the last request when it failed. ``completed`` and ``interrupted``
    are None while no turn has ended.
    """

    error_type: str | None = None
    completed: bool | None = None
    interrupted: bool | None = None
    first_at: float | None = None
    last_at: float | None = None


@dataclass
class Journal:
    """Facts by session and by (session, tool call). ``loaded``: the plugin was there."""

    loaded: bool = False
    sessions: dict[str, SessionEnd] = field(default_factory=dict)
    tools: dict[tuple[str, str], ToolTimes] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)


def read_journal(native: Path, name: str) -> Journal:
    """Read the journal files of that name; a line that cannot be read is a gap."""
    found = Journal()
    for path in find_files(native, name):
        for _, entry in json_lines(path):
            if isinstance(entry, Gap):
                found.gaps.append(entry)
            elif isinstance(entry, dict):
                _enter(found, entry)
    return found


def _enter(found: Journal, entry: _Entry) -> None:
    event = entry.get("event")
    found.loaded |= event == "loaded"
    session = entry.get("session_id")
    if not isinstance(session, str) or not session:
        return
    at = _time(entry.get("at"))
    end = found.sessions.setdefault(session, SessionEnd(first_at=at))
    end.last_at = at
    if event == "post_api_request":
        end.error_type = None
    elif event == "api_request_error":
        end.error_type = _text(entry.get("error_type")) or "error"
    elif event == "on_session_end":
        end.completed = entry.get("completed") is True
        end.interrupted = entry.get("interrupted") is True
    elif event in ("pre_tool_call", "post_tool_call"):
        _enter_tool(found, entry, session, at)


def _enter_tool(found: Journal, entry: _Entry, session: str, at: float | None) -> None:
    call = entry.get("tool_call_id")
    if not isinstance(call, str):
        return
    times = found.tools.setdefault((session, call), ToolTimes())
    if entry.get("event") == "pre_tool_call":
        times.began = at if times.began is None else times.began
        return
    times.ended = at
    times.status = _text(entry.get("status"))
    times.error_type = _text(entry.get("error_type"))


def _time(value: JsonValue) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return seconds(value * 1000)


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and value else None
