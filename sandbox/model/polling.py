"""Calls that yielded early: harnesses that answer "still running" and are to be asked again.

Codex ends a call of ``exec_command`` after ``yield_time_ms`` with a session number and offers
``write_stdin`` to wait on; OpenClaw does the same with ``exec`` and ``process``. A step whose
command ends by itself is polled until its result is final. The polls have ids of their own, made
from the step's call id, so they too follow from the history alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sandbox.model.dialect import Call, Tool


@dataclass(frozen=True)
class _Yield:
    """How a harness says that a call still runs, and the tool call that waits for it."""

    pattern: re.Pattern[str]
    tool: str
    arguments: Mapping[str, Any]
    session_key: str
    session_type: type[int | str]


_YIELDS = (
    _Yield(
        pattern=re.compile(r"^Process running with session ID (\d+)", re.MULTILINE),
        tool="write_stdin",
        arguments={"chars": "", "yield_time_ms": 30_000},
        session_key="session_id",
        session_type=int,
    ),
    _Yield(
        pattern=re.compile(r"Command still running \(session ([\w-]+)"),
        tool="process",
        arguments={"action": "poll", "timeout": 30_000},
        session_key="sessionId",
        session_type=str,
    ),
)


def pending_poll(call_id: str, results: Mapping[str, str], tools: Sequence[Tool]) -> Call | None:
    """The poll that is due for a call whose latest result is not final; None when it is final.

    Args:
        call_id: id of a scripted call that has a result.
        results: tool call ids to result texts, from the request.
        tools: the advertised tools; a yield without its polling tool counts as final.
    """
    latest, number = results[call_id], 0
    session: str | None = None
    while True:
        known = next((known for known in _YIELDS if known.pattern.search(latest)), None)
        if known is None:
            return None
        found = known.pattern.search(latest)
        session = found.group(1) if found else session
        number += 1
        poll_id = f"{call_id}p{number}"
        if poll_id not in results:
            return _poll(known, poll_id, str(session), tools)
        latest = results[poll_id]


def _poll(known: _Yield, poll_id: str, session: str, tools: Sequence[Tool]) -> Call | None:
    tool = next((tool for tool in tools if tool.name == known.tool), None)
    if tool is None:
        return None
    arguments = {known.session_key: known.session_type(session), **known.arguments}
    return Call(
        call_id=poll_id,
        name=tool.name,
        arguments=json.dumps(arguments),
        namespace=tool.namespace,
    )
