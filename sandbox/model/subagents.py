"""The subagent tool: which of the advertised tools starts one, and how a call of it is filled in.

A further harness is one more row, by the tool's name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from sandbox.model.dialect import Call, Tool
from sandbox.model.schema import fill, properties


@dataclass(frozen=True)
class _Form:
    """The tool's name, its property for the prompt, and what else a good call has."""

    name: str
    prompt: str
    others: Mapping[str, JsonValue] = field(default_factory=dict)


_FORMS = (
    _Form("Agent", "prompt", {"subagent_type": "general-purpose", "run_in_background": False}),
    _Form("agent", "prompt", {"subagent_type": "general-purpose", "run_in_background": False}),
    _Form("Task", "prompt", {"subagent_type": "general-purpose"}),
    _Form("task", "prompt", {"subagent_type": "general"}),
    _Form("spawn_agent", "message", {}),
    _Form("delegate_task", "goal", {}),
    _Form("sessions_spawn", "task", {}),
)


def subagent_call(tools: Sequence[Tool], call_id: str, prompt: str) -> Call | None:
    """A call that starts a subagent with ``prompt``; None when no advertised tool does."""
    for tool in tools:
        form = next((form for form in _FORMS if form.name == tool.name), None)
        if form is None or form.prompt not in properties(tool.schema):
            continue
        known = {key: value for key, value in form.others.items() if key in properties(tool.schema)}
        taken = frozenset({form.prompt, *known})
        arguments = {**fill(tool.schema, skip=taken), **known, form.prompt: prompt}
        return Call(
            call_id=call_id,
            name=tool.name,
            arguments=json.dumps(arguments, ensure_ascii=False),
            namespace=tool.namespace,
        )
    return None
