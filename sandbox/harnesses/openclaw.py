"""OpenClaw: a private state folder, ``openclaw agent --local --json``, Chat Completions.

Measured with 2026.6.11. Of the task's folder it reads nothing for itself: no instruction files, no
skills, plugins or hooks; and it is started in another folder, since it takes variables from a
``.env`` where it starts. What cannot be switched off: an empty ``/tmp/openclaw`` is left behind,
and invisible characters (Unicode's format and control ones) are taken out of what commands print.

The session's id is chosen here and sent along in a header by the root agent's provider alone;
subagents have a provider of their own, so that no attempt of theirs counts as the root's.
"""

from __future__ import annotations

import json
import math
import uuid
from pathlib import Path

from sandbox.evidence.observations import Observations
from sandbox.harnesses.base import (
    Capabilities,
    LaunchContext,
    LaunchPlan,
    NativeContext,
    PlannedFile,
)
from sandbox.harnesses.deadlines import deadlines_for
from sandbox.harnesses.environment import divide
from sandbox.harnesses.openclaw_shell import shell_script
from sandbox.harnesses.prompt import prompt_file

RECEIPT = "shells"

_ROOT = "sandbox"  # the root agent's provider
_SUBAGENTS = "sandbox-subagents"
_KEY_VARIABLE = "SANDBOX_MODEL_KEY"
_CONTEXT_WINDOW = 200_000
_OUTPUT_LIMIT = 8192
_SESSIONS = uuid.UUID("6a1f4c3e-0e0b-4d5e-9a49-1d3f5b2c7e80")
_ELSEWHERE = 'cd -- "$1" && shift && exec "$@"'
_FOLDERS = (
    "cache",
    "data",
    "home",
    "logs",
    "receipt",
    "scratch",
    "state",
    "xdg-config",
    "xdg-state",
)


class OpenClaw:
    """The adapter of OpenClaw."""

    name = "openclaw"
    capabilities = Capabilities(
        dialect="chat",
        session_header="x-session-id",
        response_ids=True,
        parallel_tools=True,
        subagents=True,
        compaction=True,
        needs_bash=False,
        request_deadline=True,
        project_instructions="none",
        tools_see_key=False,
        peak_memory_mib=560,
        slow_start_s=45.0,
    )

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        """Return how to launch OpenClaw."""
        session = ctx.session_dir
        environments = divide(ctx.task_env)
        env = {**environments.harness, **_private(session), **_settings(ctx)}
        session_id = str(uuid.uuid5(_SESSIONS, ctx.rollout_id))
        transcripts = f"{session}/state/agents"
        return LaunchPlan(
            argv=("/bin/sh", "-c", _ELSEWHERE, "sh", f"{session}/home", *_command(ctx, session_id)),
            env=env,
            files=(
                prompt_file(f"{session}/prompt", ctx.prompt),
                PlannedFile(
                    path=env["OPENCLAW_CONFIG_PATH"],
                    data=json.dumps(_config(ctx, session_id)).encode(),
                ),
                shell_script(
                    env["SHELL"],
                    harness_env=env,
                    tool_env=environments.tools,
                    secret=(_KEY_VARIABLE,),
                    receipt=f"{session}/receipt/{RECEIPT}",
                ),
                *(_empty(f"{session}/{folder}") for folder in _FOLDERS),
            ),
            native=(transcripts, f"{session}/receipt"),
            proof=(f"{transcripts}/main/sessions/{session_id}.jsonl",),
        )

    def parse(self, native: Path, context: NativeContext) -> Observations:
        """Return what the session files say, and stdout where there is none."""
        from sandbox.harnesses.openclaw_transcript import parse_openclaw  # noqa: PLC0415 - on need: slow

        return parse_openclaw(native, context, receipt=RECEIPT, subagents=_SUBAGENTS)


def _command(ctx: LaunchContext, session_id: str) -> tuple[str, ...]:
    return (
        f"{ctx.prefix}/bin/openclaw",
        "agent",
        "--local",
        "--json",
        "--agent",
        "main",
        "--session-id",
        session_id,
        "--thinking",
        "off",
        "--model",
        f"{_ROOT}/{ctx.model}",
        "--timeout",
        str(math.ceil(ctx.deadline_s)),  # after the supervisor's: it exits 0 when it expires
        "--message-file",
        f"{ctx.session_dir}/prompt",
    )


def _private(session: str) -> dict[str, str]:
    return {
        "HOME": f"{session}/home",
        "OPENCLAW_STATE_DIR": f"{session}/state",
        "SHELL": f"{session}/bin/sh",  # named as what it becomes: the model is told
        "TMPDIR": f"{session}/scratch",
        "XDG_CACHE_HOME": f"{session}/cache",
        "XDG_CONFIG_HOME": f"{session}/xdg-config",
        "XDG_DATA_HOME": f"{session}/data",
        "XDG_STATE_HOME": f"{session}/xdg-state",
    }


def _settings(ctx: LaunchContext) -> dict[str, str]:
    return {
        "CLAWHUB_DISABLE_TELEMETRY": "1",
        "NODE_DISABLE_COMPILE_CACHE": "1",  # 20 MB that no later run would read
        "NODE_NO_WARNINGS": "1",
        "OPENCLAW_CONFIG_PATH": f"{ctx.session_dir}/config/openclaw.json",
        "OPENCLAW_NO_RESPAWN": "1",  # else the agent is a child that outlives a kill of its parent
        "OPENCLAW_TELEMETRY": "0",
        _KEY_VARIABLE: ctx.api_key,
    }


def _config(ctx: LaunchContext, session_id: str) -> dict[str, object]:
    """Return the configuration. One unknown key makes OpenClaw refuse all of it."""
    provider = _provider(ctx)
    named = {**provider, "headers": {"x-session-id": session_id}}
    return {
        "models": {"mode": "replace", "providers": {_ROOT: named, _SUBAGENTS: provider}},
        "agents": {
            "defaults": {
                "workspace": ctx.workdir,
                "skipBootstrap": True,  # no AGENTS.md and its like are made
                "contextInjection": "never",  # nor read
                "skills": [],
                "model": {"primary": f"{_ROOT}/{ctx.model}"},
                "subagents": {"model": f"{_SUBAGENTS}/{ctx.model}"},
                "timeoutSeconds": math.ceil(ctx.deadline_s),
            }
        },
        "tools": {
            "deny": ["message"],  # to people, through chat services
            "exec": {"host": "gateway", "security": "full", "ask": "off"},
        },
        "logging": {"file": f"{ctx.session_dir}/logs/openclaw.log"},
        "update": {"checkOnStart": False},
    }


def _provider(ctx: LaunchContext) -> dict[str, object]:
    limits = deadlines_for(ctx.deadline_s)
    return {
        "api": "openai-completions",
        "baseUrl": ctx.base_url,
        "apiKey": f"${{{_KEY_VARIABLE}}}",
        "timeoutSeconds": max(1, limits.headers_ms // 1000),  # of silence, and of a whole request
        "models": [
            {
                "id": ctx.model,
                "name": ctx.model,
                "reasoning": True,  # else what a reply says of it is thrown away
                "compat": {"supportsReasoningEffort": False},
                "input": ["text"],
                "contextWindow": _CONTEXT_WINDOW,
                "maxTokens": _OUTPUT_LIMIT,
                "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
            }
        ],
    }


def _empty(folder: str) -> PlannedFile:
    return PlannedFile(path=f"{folder}/.keep", data=b"")


OPENCLAW = OpenClaw()
