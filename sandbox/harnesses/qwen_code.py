"""Qwen Code: private HOME and QWEN_HOME, ``qwen --output-format stream-json``, Chat Completions.

Measured with 0.24.4. It looks up no names and writes nothing outside of the session folder. Two
things together keep the task's folder from configuring it: safe mode (instruction files, skills,
hooks, MCP servers, commands) and a folder that is not trusted (``.qwen/settings.json``, ``.env``).
In such a folder its tools need leave, so that each is allowed by name.

Its tool runs the first ``bash`` on PATH: the task's shell stands there under that name. It has no
session header: the model's own headers carry the session's id, which is therefore given to it; a
subagent's requests carry it too. Requests are retried on two levels, by the client and by itself,
about every error but a refusal; without an answer they end by ``timeout``, but a stream that stalls
is waited for without end. Arguments that are no JSON, and those of an answer that was cut at the
output limit, are repaired and executed; a text that was cut there passes for a whole one.
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

_KEY_VARIABLE = "SANDBOX_MODEL_KEY"
_CONTEXT_WINDOW = 200_000
_OUTPUT_LIMIT = 8192
_SESSION_HEADER = "x-session-id"
# The tools that would ask for leave.
_ALLOWED = ("run_shell_command", "edit", "write_file", "notebook_edit", "agent")


class QwenCode:
    """The adapter of Qwen Code."""

    name = "qwen-code"
    capabilities = Capabilities(
        dialect="chat",
        session_header=_SESSION_HEADER,
        response_ids=True,
        parallel_tools=False,
        subagents=True,
        compaction=True,
        needs_bash=False,
        request_deadline=True,
        stream_deadline=False,
        project_instructions="none",
        tools_see_key=False,
        peak_memory_mib=220,
        slow_start_s=40.0,
    )

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        """Return how to launch Qwen Code."""
        session = ctx.session_dir
        prompt = f"{session}/prompt"
        env = harness_env(ctx.task_env)
        return LaunchPlan(
            argv=with_prompt(_command(ctx), prompt),
            env={
                **env,
                "PATH": f"{session}/bin:{env['PATH']}",
                "HOME": f"{session}/home",
                "TMPDIR": f"{session}/scratch",
                "QWEN_HOME": f"{session}/qwen",
                "QWEN_RUNTIME_DIR": f"{session}/runtime",
                "QWEN_CODE_SYSTEM_SETTINGS_PATH": f"{session}/settings.json",
                "QWEN_CODE_SYSTEM_DEFAULTS_PATH": f"{session}/defaults.json",
                "QWEN_CODE_TRUSTED_FOLDERS_PATH": f"{session}/trusted.json",
                "QWEN_CODE_NO_RELAUNCH": "true",
                "QWEN_SANDBOX": "false",
                _KEY_VARIABLE: ctx.api_key,
            },
            files=(
                prompt_file(prompt, ctx.prompt),
                _json(f"{session}/settings.json", _settings(ctx)),
                _json(f"{session}/defaults.json", {}),
                _json(f"{session}/trusted.json", {ctx.workdir: "DO_NOT_TRUST"}),
                task_shell(
                    f"{session}/bin/bash",
                    tool_env=ctx.task_env,
                    receipt=f"{session}/receipt/{RECEIPT}",
                ),
                *(_empty(f"{session}/{folder}") for folder in _FOLDERS),
            ),
            native=(f"{session}/runtime/projects", f"{session}/receipt"),
        )

    def parse(self, native: Path, context: NativeContext) -> Observations:
        """Return what the session files say, and stdout of how the run ended."""
        from sandbox.harnesses.qwen_code_transcript import parse_qwen_code  # noqa: PLC0415 - on need: slow

        return parse_qwen_code(native, context, receipt=RECEIPT)


_FOLDERS = ("home", "scratch", "qwen", "runtime", "receipt")


def _command(ctx: LaunchContext) -> tuple[str, ...]:
    return (
        f"{ctx.prefix}/bin/qwen-code",
        "--output-format",
        "stream-json",
        "--safe-mode",
        "--auth-type",
        "openai",
        "--model",
        ctx.model,
        "--session-id",
        _session_id(ctx),
        "--chat-recording",
        "--approval-mode",
        "default",
        "--allowed-tools",
        ",".join(_ALLOWED),
    )


def _session_id(ctx: LaunchContext) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{ctx.rollout_id} {ctx.session_dir}"))


def _settings(ctx: LaunchContext) -> dict[str, object]:
    limits = deadlines_for(ctx.deadline_s)
    return {
        "$version": 4,
        "general": {
            "enableAutoUpdate": False,
            "chatRecording": True,
            "preventSystemSleep": False,
            "gitCoAuthor": {"commit": False, "pr": False},
        },
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "security": {
            "folderTrust": {"enabled": True},
            "auth": {"selectedType": "openai"},
        },
        "tools": {"shell": {"enableInteractiveShell": False}},
        "ide": {"enabled": False},
        "model": {"name": ctx.model},
        "modelProviders": {
            "openai": [
                {
                    "id": ctx.model,
                    "envKey": _KEY_VARIABLE,
                    "baseUrl": ctx.base_url,
                    "generationConfig": {
                        "timeout": limits.headers_ms,
                        "maxRetries": 1,  # the client's; Qwen Code's own come on top
                        "contextWindowSize": _CONTEXT_WINDOW,
                        "customHeaders": {_SESSION_HEADER: _session_id(ctx)},
                        "samplingParams": {"max_tokens": _OUTPUT_LIMIT},
                    },
                }
            ]
        },
    }


def _json(path: str, value: object) -> PlannedFile:
    return PlannedFile(path=path, data=json.dumps(value).encode())


def _empty(folder: str) -> PlannedFile:
    return PlannedFile(path=f"{folder}/.keep", data=b"")


QWEN_CODE = QwenCode()
