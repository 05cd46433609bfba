"""Pi: a private agent folder, ``pi --mode json``, Chat Completions.

Measured with 1.6.0. It looks up no names and writes nothing outside of the session folder. It trims
white space off both ends of the prompt. Its tool runs ``/bin/bash``, a bash on PATH or ``sh``, in
this order; the task's shell keeps that order. It has no session header: the provider's own headers
carry the session's id, which is therefore given to it. One limit serves for the wait for an answer
and for silence within it.
"""

from __future__ import annotations

import json
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
from sandbox.harnesses.prompt import prompt_file, with_prompt
from sandbox.harnesses.task_shell import harness_env, task_shell

RECEIPT = "shells"

_PROVIDER = "sandbox"
_KEY_VARIABLE = "SANDBOX_MODEL_KEY"
_CONTEXT_WINDOW = 200_000
_OUTPUT_LIMIT = 8192

# The system prompt tells the model that its commands see these.
_FOR_TOOLS = ("PI_MODEL", "PI_PROVIDER", "PI_REASONING_LEVEL", "PI_SESSION_FILE", "PI_SESSION_ID")
_COMPAT = {
    "supportsDeveloperRole": False,
    "supportsReasoningEffort": False,
    "supportsStore": False,
}
_SESSION_HEADER = "x-session-id"


class Pi:
    """The adapter of Pi."""

    name = "pi"
    capabilities = Capabilities(
        dialect="chat",
        session_header=_SESSION_HEADER,
        response_ids=True,
        parallel_tools=True,
        subagents=False,
        compaction=True,
        needs_bash=False,
        request_deadline=True,
        project_instructions="none",
        tools_see_key=False,
        peak_memory_mib=110,
    )

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        """Return how to launch Pi."""
        session = ctx.session_dir
        prompt = f"{session}/prompt"
        return LaunchPlan(
            argv=with_prompt(_command(ctx), prompt),
            env={
                **harness_env(ctx.task_env),
                "HOME": f"{session}/home",
                "TMPDIR": f"{session}/scratch",
                "PI_CODING_AGENT_DIR": f"{session}/agent",
                "PI_OFFLINE": "1",
                "PI_SKIP_VERSION_CHECK": "1",
                "PI_TELEMETRY": "0",
                _KEY_VARIABLE: ctx.api_key,
            },
            files=(
                prompt_file(prompt, ctx.prompt),
                _json(f"{session}/agent/models.json", _models(ctx)),
                _json(f"{session}/agent/settings.json", _settings(ctx)),
                task_shell(
                    _shell(ctx),
                    tool_env=ctx.task_env,
                    receipt=f"{session}/receipt/{RECEIPT}",
                    keep=_FOR_TOOLS,
                ),
                *(_empty(f"{session}/{folder}") for folder in _FOLDERS),
            ),
            native=(f"{session}/sessions", f"{session}/receipt"),
        )

    def parse(self, native: Path, context: NativeContext) -> Observations:
        """Return what the session file says, and stdout where there is none."""
        from sandbox.harnesses.pi_transcript import parse_pi  # noqa: PLC0415 - on need: slow

        return parse_pi(native, context, receipt=RECEIPT)


_FOLDERS = ("home", "scratch", "sessions", "receipt")


def _command(ctx: LaunchContext) -> tuple[str, ...]:
    return (
        f"{ctx.prefix}/bin/pi",
        "--print",
        "--mode",
        "json",
        "--provider",
        _PROVIDER,
        "--model",
        ctx.model,
        "--thinking",
        "off",
        "--session-id",
        _session_id(ctx),
        "--session-dir",
        f"{ctx.session_dir}/sessions",
        "--no-approve",
        "--no-context-files",
        "--no-extensions",
        "--no-skills",
        "--no-prompt-templates",
        "--no-themes",
    )


def _session_id(ctx: LaunchContext) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{ctx.rollout_id} {ctx.session_dir}"))


def _models(ctx: LaunchContext) -> dict[str, object]:
    return {
        "providers": {
            _PROVIDER: {
                "baseUrl": ctx.base_url,
                "api": "openai-completions",
                "apiKey": f"${_KEY_VARIABLE}",
                "headers": {_SESSION_HEADER: _session_id(ctx)},
                "compat": _COMPAT,
                "models": [
                    {
                        "id": ctx.model,
                        "reasoning": False,
                        "input": ["text"],
                        "contextWindow": _CONTEXT_WINDOW,
                        "maxTokens": _OUTPUT_LIMIT,
                    }
                ],
            }
        }
    }


def _settings(ctx: LaunchContext) -> dict[str, object]:
    limits = deadlines_for(ctx.deadline_s)
    return {
        "defaultProjectTrust": "never",
        "enableInstallTelemetry": False,
        "enableAnalytics": False,
        "cacheWarming": "off",
        "shellPath": _shell(ctx),
        "httpIdleTimeoutMs": limits.headers_ms,
        "retry": {
            "enabled": True,
            "maxRetries": 3 if limits.patient else 2,
            "baseDelayMs": 2000 if limits.patient else 500,
        },
    }


def _shell(ctx: LaunchContext) -> str:
    return f"{ctx.session_dir}/shell"


def _json(path: str, value: object) -> PlannedFile:
    return PlannedFile(path=path, data=json.dumps(value).encode())


def _empty(folder: str) -> PlannedFile:
    return PlannedFile(path=f"{folder}/.keep", data=b"")


PI = Pi()
