"""OpenCode: private HOME and XDG folders, ``opencode run --format json``, Chat Completions.

Measured with 1.18.18. It looks up no names and writes nothing outside of the session folder: Bun
unpacks a 5 MB library into TMPDIR, which therefore must allow execution. What cannot be switched
off: an ``AGENTS.md`` or ``CLAUDE.md`` *below* the workdir is read when the model reads a file
beside it. The names of the switches were read from the binary.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path, PurePosixPath

from sandbox.evidence.records import Observations
from sandbox.harnesses.base import (
    Capabilities,
    LaunchContext,
    LaunchPlan,
    NativeContext,
    PlannedFile,
)
from sandbox.harnesses.deadlines import deadlines_for
from sandbox.harnesses.environment import divide
from sandbox.harnesses.opencode_transcript import parse_opencode
from sandbox.harnesses.prompt import prompt_file, with_prompt

RECEIPT = "shell-env-receipt.jsonl"
DATABASE = "opencode.db"

_PROVIDER = "sandbox"
_KEY_VARIABLE = "SANDBOX_MODEL_KEY"
_CONTEXT_WINDOW = 200_000
_OUTPUT_LIMIT = 8192
_TITLE = "episode"  # a session without a title asks the model for one

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
    )

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        """Return how to launch OpenCode."""
        session = ctx.session_dir
        prompt = f"{session}/prompt"
        receipt = f"{session}/receipt/{RECEIPT}"
        environments = divide(ctx.task_env)
        return LaunchPlan(
            argv=with_prompt(_command(ctx), prompt),
            env={**environments.harness, **_private(session), **_settings(ctx)},
            files=(
                prompt_file(prompt, ctx.prompt),
                *_plugin(session, environments.tools, receipt),
                *_no_plugin_install(f"{session}/config/opencode"),
                *(_empty(f"{session}/{folder}") for folder in _FOLDERS),
            ),
            native=(f"{session}/db", f"{session}/receipt", f"{session}/data/opencode/log"),
            proof=(receipt,),
        )

    def parse(self, native: Path, context: NativeContext) -> Observations:
        """Return what the database says, and stdout where there is none."""
        del context  # OpenCode names no call of the model server
        return parse_opencode(native, database=DATABASE, receipt=RECEIPT)


_FOLDERS = ("home", "data", "state", "cache", "scratch", "managed", "db", "receipt")


def _command(ctx: LaunchContext) -> tuple[str, ...]:
    return (
        f"{ctx.prefix}/bin/opencode",
        "run",
        "--format",
        "json",
        "--title",
        _TITLE,
        "--model",
        f"{_PROVIDER}/{ctx.model}",
        "--dir",
        ctx.workdir,
    )


def _private(session: str) -> dict[str, str]:
    return {
        "HOME": f"{session}/home",
        "XDG_CONFIG_HOME": f"{session}/config",
        "XDG_DATA_HOME": f"{session}/data",
        "XDG_STATE_HOME": f"{session}/state",
        "XDG_CACHE_HOME": f"{session}/cache",
        "TMPDIR": f"{session}/scratch",
    }


def _settings(ctx: LaunchContext) -> dict[str, str]:
    return {
        **dict.fromkeys(_OFF, "1"),
        "OPENCODE_CONFIG_CONTENT": _config(ctx),
        "OPENCODE_DB": f"{ctx.session_dir}/db/{DATABASE}",
        # /etc/opencode of the image would win over everything.
        "OPENCODE_TEST_MANAGED_CONFIG_DIR": f"{ctx.session_dir}/managed",
        _KEY_VARIABLE: ctx.api_key,
    }


def _config(ctx: LaunchContext) -> str:
    limits = deadlines_for(ctx.deadline_s)
    model = f"{_PROVIDER}/{ctx.model}"
    plugin = PurePosixPath(_plugin_folder(ctx.session_dir), "plugin.js").as_uri()
    config = {
        "model": model,
        "small_model": model,
        "enabled_providers": [_PROVIDER],
        "plugin": [plugin],
        "permission": "allow",
        "share": "disabled",
        "autoupdate": False,
        "snapshot": False,  # no copy of the task's files
        "lsp": False,
        "formatter": False,
        "provider": {
            _PROVIDER: {
                "npm": "@ai-sdk/openai-compatible",
                "name": _PROVIDER,
                "options": {
                    "baseURL": ctx.base_url,
                    "apiKey": _KEY_VARIABLE,
                    "timeout": limits.request_ms,
                    "headerTimeout": limits.headers_ms,
                    "chunkTimeout": limits.idle_ms,
                },
                "models": {
                    ctx.model: {
                        "name": ctx.model,
                        "limit": {"context": _CONTEXT_WINDOW, "output": _OUTPUT_LIMIT},
                    }
                },
            }
        },
    }
    return _with_key_by_name(config)


def _with_key_by_name(config: dict[str, object]) -> str:
    """Return the config with the one substitution that is wanted.

    OpenCode replaces ``{env:NAME}`` and ``{file:PATH}`` in the text before it parses it, so that
    neither may come from a value.
    """
    text = json.dumps(config)
    for opening in ("{env:", "{file:"):
        text = text.replace(opening, f"\\u007b{opening[1:]}")
    return text.replace(f'"apiKey": "{_KEY_VARIABLE}"', f'"apiKey": "{{env:{_KEY_VARIABLE}}}"')


def _plugin_folder(session: str) -> str:
    return f"{session}/plugin"


def _plugin(session: str, tool_env: dict[str, str], receipt: str) -> tuple[PlannedFile, ...]:
    folder = _plugin_folder(session)
    code = resources.files("sandbox.harnesses").joinpath("opencode_plugin.js").read_bytes()
    facts = json.dumps({"receipt": receipt, "env": tool_env})
    return (
        PlannedFile(path=f"{folder}/plugin.js", data=code),
        PlannedFile(path=f"{folder}/shell-env.json", data=facts.encode()),
    )


def _no_plugin_install(folder: str) -> tuple[PlannedFile, ...]:
    """Make the background install of the plugin package believe that it was here before."""
    lock = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}
    return (
        PlannedFile(path=f"{folder}/package-lock.json", data=json.dumps(lock).encode()),
        _empty(f"{folder}/node_modules"),
    )


def _empty(folder: str) -> PlannedFile:
    return PlannedFile(path=f"{folder}/.keep", data=b"")


OPENCODE = OpenCode()
