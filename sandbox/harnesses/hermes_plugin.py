"""Runs inside Hermes, as a plugin: a journal of what its database does not keep.

One JSON line for each event: the plugin was loaded, a model request ended or failed, a tool began
or ended, a subagent began, the turn ended. Each model request also gets the session's id as a
header, so that it can be told whose it was even when it failed. A run without the journal did not
run as planned. It uses nothing but Hermes' own plugin interface and the standard library.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

_HEADER = "x-session-id"
_JOURNAL = "SANDBOX_JOURNAL"
_KEPT = {
    "post_api_request": ("session_id", "finish_reason", "started_at", "ended_at"),
    "api_request_error": ("session_id", "error_type", "error_message", "status_code"),
    "pre_tool_call": ("session_id", "tool_call_id", "tool_name"),
    "post_tool_call": ("session_id", "tool_call_id", "duration_ms", "status", "error_type"),
    "subagent_start": ("parent_session_id", "child_session_id"),
    "on_session_end": ("session_id", "completed", "interrupted", "reason"),
}
_lock = threading.Lock()


def register(ctx: Any) -> None:
    """Called by Hermes when it loads the plugin."""
    for hook, names in _KEPT.items():
        ctx.register_hook(hook, _observer(hook, names))
    ctx.register_middleware("llm_request", _with_header)
    _note({"event": "loaded"})


def _observer(hook: str, names: tuple[str, ...]) -> Any:
    def observe(**facts: Any) -> None:
        error = facts.get("error")
        if isinstance(error, dict):
            facts["error_type"], facts["error_message"] = error.get("type"), error.get("message")
        _note({"event": hook, **{name: _plain(facts.get(name)) for name in names}})

    return observe


def _plain(value: Any) -> Any:
    known = value is None or isinstance(value, bool | int | float | str)
    return value if known else str(value)[:1000]


def _with_header(request: Any = None, session_id: str = "", **_: Any) -> Any:
    if not isinstance(request, dict) or not session_id:
        return None
    headers = {**(request.get("extra_headers") or {}), _HEADER: session_id}
    return {"request": {**request, "extra_headers": headers}}


def _note(entry: dict[str, Any]) -> None:
    line = json.dumps({**entry, "at": time.time()}) + "\n"
    with _lock, Path(os.environ[_JOURNAL]).open("a", encoding="utf-8") as journal:
        journal.write(line)
