"""Kilo Code: private HOME and XDG folders, ``kilo run --format json``, Chat Completions.

Measured with 7.7.7 (glibc) and 7.0.33 (musl). Kilo is a fork of OpenCode. Although project
configuration is off, it migrates its predecessor's files in the workdir (rules, modes, MCP servers,
ignore lists): a plugin takes that back before any of it is used, and names the session in every
request, which 7.0.33 does not. Skills are denied, since 7.0.33 takes those of the workdir. What
cannot be switched off: an ``AGENTS.md`` or ``CLAUDE.md`` *below* the workdir is read when the model
reads a file beside it. 7.0.33 puts a line break before the prompt.
"""

from __future__ import annotations

import json
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
from sandbox.harnesses.opencode_launch import (
    KEY_VARIABLE,
    config_text,
    empty,
    plugin_code,
    pretend_installed,
    private_env,
    run_command,
    search_path,
    shell_plugin,
)
from sandbox.harnesses.prompt import prompt_file, with_prompt

RECEIPT = "shell-env-receipt.jsonl"
DATABASE = "kilo.db"

_PERMISSION = {"*": "allow", "skill": "deny"}
_NOBODY = "http://127.0.0.1:9"  # where nothing listens: refused at once, no name looked up
# Further tries of a model request; without a limit 7.7.7 asks an unreachable model for ever.
_TRIES = 5
_HASTY_TRIES = 2

_OFF = (
    "AUTOUPDATE",
    "CLAUDE_CODE",  # CLAUDE.md and .claude/skills
    "CODEBASE_INDEXING",
    "DEFAULT_PLUGINS",
    "EMBEDDED_WEB_UI",
    "EXTERNAL_SKILLS",  # .agents/skills
    "LSP_DOWNLOAD",
    "MODELS_FETCH",
    "PRESENCE",
    "PROJECT_CONFIG",  # kilo.json, opencode.json, .kilo/, .opencode/, AGENTS.md of the task
    "SESSION_INGEST",
    "SHARE",
    "TERMINAL_TITLE",
)
_FOLDERS = ("home", "data/kilo", "state", "cache", "scratch", "managed", "receipt")


class KiloCode:
    """The adapter of Kilo Code."""

    name = "kilocode"
    capabilities = Capabilities(
        dialect="chat",
        session_header="x-session-id",
        response_ids=False,
        parallel_tools=True,
        subagents=True,
        compaction=True,
        needs_bash=False,
        request_deadline=True,
        project_instructions="nested",
        tools_see_key=False,
        peak_memory_mib=700,
        slow_start_s=50.0,
        # 7.0.33 has no limit for a request that gets no answer, nor for a stream that stalls (it
        # does not know chunkTimeout), and asks again for ever.
        exceptions={
            "linux-x64-musl": {
                "request_deadline": False,
                "stream_deadline": False,
                "slow_start_s": 20.0,
            }
        },
    )

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        """Return how to launch Kilo Code."""
        session = ctx.session_dir
        prompt = f"{session}/prompt"
        receipt = f"{session}/receipt/{RECEIPT}"
        environments = divide(ctx.task_env)
        return LaunchPlan(
            argv=with_prompt(run_command(ctx, "kilocode", "--auto"), prompt),
            env={
                **environments.harness,
                "PATH": search_path(ctx, environments.harness["PATH"]),
                **private_env(session),
                **_settings(ctx),
            },
            files=(
                prompt_file(prompt, ctx.prompt),
                *shell_plugin(
                    f"{session}/plugin/shell-env.js", tool_env=environments.tools, receipt=receipt
                ),
                *_own_plugin(session),
                *pretend_installed(f"{session}/config/kilo", "@kilocode/plugin"),
                *(empty(f"{session}/{folder}") for folder in _FOLDERS),
            ),
            native=(f"{session}/data/kilo", f"{session}/receipt"),
            proof=(receipt,),
        )

    def parse(self, native: Path, context: NativeContext) -> Observations:
        """Return what the database says, and stdout where there is none."""
        del context  # Kilo names no call of the model server
        from sandbox.harnesses.kilocode_transcript import parse_kilocode  # noqa: PLC0415 - on need: slow

        return parse_kilocode(native, database=DATABASE, receipt=RECEIPT)


def _settings(ctx: LaunchContext) -> dict[str, str]:
    folder = f"{ctx.session_dir}/plugin"
    plugins = [f"{folder}/shell-env.js", f"{folder}/kilocode.js"]
    patient = deadlines_for(ctx.deadline_s).patient
    return {
        **{f"KILO_DISABLE_{what}": "1" for what in _OFF},
        "KILO_API_URL": _NOBODY,  # 7.0.33 asks it for models whatever is switched off
        "KILO_CONFIG_CONTENT": config_text(ctx, plugins=plugins, permission=_PERMISSION),
        "KILO_DB": f"{ctx.session_dir}/data/kilo/{DATABASE}",  # where 7.0.33 has it anyway
        "KILO_EXPERIMENTAL_DISABLE_FILEWATCHER": "1",
        "KILO_MODELS_URL": _NOBODY,
        "KILO_NO_DAEMON": "1",
        "KILO_SESSION_RETRY_LIMIT": str(_TRIES if patient else _HASTY_TRIES),
        "KILO_TELEMETRY_LEVEL": "off",
        # /etc/kilo of the image would win over everything.
        "KILO_TEST_MANAGED_CONFIG_DIR": f"{ctx.session_dir}/managed",
        # 7.0.33 installs a plugin package in the background: it fails at once.
        "NPM_CONFIG_REGISTRY": f"{_NOBODY}/",
        KEY_VARIABLE: ctx.api_key,
    }


def _own_plugin(session: str) -> tuple[PlannedFile, ...]:
    planned = {"permission": _PERMISSION}
    return (
        PlannedFile(path=f"{session}/plugin/kilocode.js", data=plugin_code("kilocode_plugin.js")),
        PlannedFile(path=f"{session}/plugin/planned.json", data=json.dumps(planned).encode()),
    )


KILOCODE = KiloCode()
