"""OpenCode: private HOME and XDG folders, ``opencode run --format json``, Chat Completions.

Measured with 1.18.18. It looks up no names and writes nothing outside of the session folder: Bun
unpacks a 5 MB library into TMPDIR, which therefore must allow execution. What cannot be switched
off: an ``AGENTS.md`` or ``CLAUDE.md`` *below* the workdir is read when the model reads a file
beside it. The names of the switches were read from the binary.
"""

from __future__ import annotations

from pathlib import Path

from sandbox.evidence.observations import Observations
from sandbox.harnesses.base import Capabilities, LaunchContext, LaunchPlan, NativeContext
from sandbox.harnesses.environment import divide
from sandbox.harnesses.opencode_launch import (
    KEY_VARIABLE,
    config_text,
    empty,
    pretend_installed,
    private_env,
    run_command,
    search_path,
    shell_plugin,
)
from sandbox.harnesses.prompt import prompt_file, with_prompt

RECEIPT = "shell-env-receipt.jsonl"
DATABASE = "opencode.db"

_OFF = (
    "OPENCODE_DISABLE_AUTOUPDATE",
    "OPENCODE_DISABLE_CLAUDE_CODE",  # CLAUDE.md and .claude/skills
    "OPENCODE_DISABLE_DEFAULT_PLUGINS",
    "OPENCODE_DISABLE_EXTERNAL_SKILLS",  # .agents/skills
    "OPENCODE_DISABLE_LSP_DOWNLOAD",
    "OPENCODE_DISABLE_MODELS_FETCH",
    "OPENCODE_DISABLE_PROJECT_CONFIG",  # opencode.json, .opencode/, AGENTS.md of the task
    "OPENCODE_DISABLE_SHARE",
)


class OpenCode:
    """The adapter of OpenCode."""

    name = "opencode"
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
        peak_memory_mib=530,
        slow_start_s=20.0,
    )

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        """Return how to launch OpenCode."""
        session = ctx.session_dir
        prompt = f"{session}/prompt"
        receipt = f"{session}/receipt/{RECEIPT}"
        environments = divide(ctx.task_env)
        return LaunchPlan(
            argv=with_prompt(run_command(ctx, "opencode"), prompt),
            env={
                **environments.harness,
                "PATH": search_path(ctx, environments.harness["PATH"]),
                **private_env(session),
                **_settings(ctx),
            },
            files=(
                prompt_file(prompt, ctx.prompt),
                *shell_plugin(_plugin(session), tool_env=environments.tools, receipt=receipt),
                *pretend_installed(f"{session}/config/opencode", "@opencode-ai/plugin"),
                *(empty(f"{session}/{folder}") for folder in _FOLDERS),
            ),
            native=(f"{session}/db", f"{session}/receipt", f"{session}/data/opencode/log"),
            proof=(receipt,),
        )

    def parse(self, native: Path, context: NativeContext) -> Observations:
        """Return what the database says, and stdout where there is none."""
        del context  # OpenCode names no call of the model server
        from sandbox.harnesses.opencode_transcript import parse_opencode  # noqa: PLC0415 - on need: slow

        return parse_opencode(native, database=DATABASE, receipt=RECEIPT)


_FOLDERS = ("home", "data", "state", "cache", "scratch", "managed", "db", "receipt")


def _settings(ctx: LaunchContext) -> dict[str, str]:
    return {
        **dict.fromkeys(_OFF, "1"),
        "OPENCODE_CONFIG_CONTENT": config_text(
            ctx, plugins=[_plugin(ctx.session_dir)], permission="allow"
        ),
        "OPENCODE_DB": f"{ctx.session_dir}/db/{DATABASE}",
        # /etc/opencode of the image would win over everything.
        "OPENCODE_TEST_MANAGED_CONFIG_DIR": f"{ctx.session_dir}/managed",
        KEY_VARIABLE: ctx.api_key,
    }


def _plugin(session: str) -> str:
    return f"{session}/plugin/plugin.js"


OPENCODE = OpenCode()
