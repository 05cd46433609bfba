"""Calls that yielded early: harnesses that answer "still running" and are to be asked again.

Codex ends a call of ``exec_command`` after ``yield_time_ms`` with a session number and offers
``write_stdin`` to wait on (its ``unified_exec`` result header); its ``spawn_agent`` answers with
the subagent's id, for ``wait_agent``. OpenClaw's ``exec`` yields a session's name for ``process``.
A step whose command ends by itself is polled until its result is final. The polls have ids of
their own, made from the step's call id, so they too follow from the history alone. A further
harness is one more row.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from sandbox.model.dialect import Call, Tool


@dataclass(frozen=True)
class _Yield:
    """How a harness says that a call still runs, and the tool call that waits for it."""

    pattern: re.Pattern[str]
    tool: str
    arguments: Callable[[str], Mapping[str, JsonValue]]


_YIELDS = (
    _Yield(
        # in the header only: what follows "Output:" is the command's own
        pattern=re.compile(r"\A(?:(?!Output:\n).*\n){0,5}?Process running with session ID (\d+)\n"),
        tool="write_stdin",
        arguments=lambda session: {
            "session_id": int(session),
            "chars": "",
            "yield_time_ms": 30_000,
        },
    ),
    _Yield(
        pattern=re.compile(r'\A\{"agent_id":"([^"]+)"'),
        tool="wait_agent",
        arguments=lambda session: {"targets": [session], "timeout_ms": 60_000},
    ),
    _Yield(
        pattern=re.compile(r"(?:\A|\n)Command still running \(session ([^,\s)]+)"),
        tool="process",
        arguments=lambda session: {"action": "poll", "sessionId": session, "timeout": 30_000},
    ),
)


def pending_poll(call_id: str, results: Mapping[str, str], tools: Sequence[Tool]) -> Call | None:
    """The poll that is due for a call whose latest result is not final; None when it is final.

    Args:
        call_id: id of a scripted call that has a result.
        results: tool call ids to result texts, from the request.
        tools: the advertised tools; a yield without its polling tool counts as final.
    """
    latest = results[call_id]
    for number in itertools.count(1):
        known, session = _yielded(latest)
        poll_id = f"{call_id}p{number}"
        if known is None:
            return None
        if poll_id not in results:
            return _poll(known, poll_id, session, tools)
        latest = results[poll_id]
    return None


def _yielded(result: str) -> tuple[_Yield | None, str]:
    """The form in which a result says that its call still runs, and the session's name."""
    for known in _YIELDS:
        found = known.pattern.search(result)
        if found is not None:
            return known, found.group(1)
    return None, ""


def _poll(known: _Yield, poll_id: str, session: str, tools: Sequence[Tool]) -> Call | None:
    tool = next((tool for tool in tools if tool.name == known.tool), None)
    if tool is None:
        return None
    return Call(
        call_id=poll_id,
        name=tool.name,
        arguments=json.dumps(known.arguments(session)),
        namespace=tool.namespace,
    )
