"""Kilo Code: private HOME and XDG folders, ``kilo run --format json``, Chat Completions.

Measured with 7.7.7 (glibc) and 7.0.33 (musl). Kilo is a fork of OpenCode. Although project
configuration is off, it migrates its predecessor's files in the workdir (rules, modes, MCP servers,
ignore lists): a plugin takes that back before any of it is used, and names the session in every
request, which 7.0.33 does not. Skills are denied, since 7.0.33 takes those of the workdir. What
cannot be switched off: an ``AGENTS.md`` or ``CLAUDE.md`` *below* the workdir is read when the model
reads a file beside it. 7.0.33 puts a line break before the prompt.

Kilo searches with ``rg`` and downloads one where PATH has none, so the runtime has one.
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
from sandbox.harnesses.deadlines import Deadlines, deadlines_for
from sandbox.harnesses.environment import divide
from sandbox.harnesses.kilocode_transcript import parse_kilocode
from sandbox.harnesses.prompt import prompt_file, with_prompt

RECEIPT = "shell-env-receipt.jsonl"
DATABASE = "kilo.db"

_PROVIDER = "sandbox"
_KEY_VARIABLE = "SANDBOX_MODEL_KEY"
_CONTEXT_WINDOW = 200_000
_OUTPUT_LIMIT = 8192
_TITLE = "episode"  # a session without a title asks the model for one
_PERMISSION = {"*": "allow", "skill": "deny"}
_NOBODY = "http://127.0.0.1:9"  # where nothing listens: refused at once, no name looked up
_TRIES = (
    5  # further tries of a model request; without a limit an unreachable model is asked for ever
)
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
    )

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        """Return how to launch Kilo Code."""
        session = ctx.session_dir
        prompt = f"{session}/prompt"
        receipt = f"{session}/receipt/{RECEIPT}"
        environments = divide(ctx.task_env)
        limits = deadlines_for(ctx.deadline_s)
        search = f"{ctx.prefix}/path:{environments.harness['PATH']}"
        return LaunchPlan(
            argv=with_prompt(_command(ctx), prompt),
            env={
                **environments.harness,
                "PATH": search,
                **_private(session),
                **_settings(ctx, limits),
            },
            files=(
                prompt_file(prompt, ctx.prompt),
                *_plugins(session, environments.tools, receipt),
                *_no_plugin_install(f"{session}/config/kilo"),
                *(_empty(f"{session}/{folder}") for folder in _FOLDERS),
            ),
            native=(f"{session}/data/kilo", f"{session}/receipt"),
            proof=(receipt,),
        )

    def parse(self, native: Path, context: NativeContext) -> Observations:
        """Return what the database says, and stdout where there is none."""
        del context  # Kilo names no call of the model server
        return parse_kilocode(native, database=DATABASE, receipt=RECEIPT)


def _command(ctx: LaunchContext) -> tuple[str, ...]:
    return (
        f"{ctx.prefix}/bin/kilocode",
        "run",
        "--auto",
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


def _settings(ctx: LaunchContext, limits: Deadlines) -> dict[str, str]:
    return {
        **{f"KILO_DISABLE_{what}": "1" for what in _OFF},
        "KILO_API_URL": _NOBODY,  # 7.0.33 asks it for models whatever is switched off
        "KILO_CONFIG_CONTENT": _config(ctx, limits),
        "KILO_DB": f"{ctx.session_dir}/data/kilo/{DATABASE}",  # where 7.0.33 has it anyway
        "KILO_EXPERIMENTAL_DISABLE_FILEWATCHER": "1",
        "KILO_MODELS_URL": _NOBODY,
        "KILO_NO_DAEMON": "1",
        "KILO_SESSION_RETRY_LIMIT": str(_TRIES if limits.patient else _HASTY_TRIES),
        "KILO_TELEMETRY_LEVEL": "off",
        # /etc/kilo of the image would win over everything.
        "KILO_TEST_MANAGED_CONFIG_DIR": f"{ctx.session_dir}/managed",
        # 7.0.33 installs a plugin package in the background: it fails at once.
        "NPM_CONFIG_REGISTRY": f"{_NOBODY}/",
        _KEY_VARIABLE: ctx.api_key,
    }


def _config(ctx: LaunchContext, limits: Deadlines) -> str:
    model = f"{_PROVIDER}/{ctx.model}"
    folder = PurePosixPath(_plugin_folder(ctx.session_dir))
    config = {
        "model": model,
        "small_model": model,
        "enabled_providers": [_PROVIDER],
        "plugin": [(folder / name).as_uri() for name in ("shell-env.js", "kilocode.js")],
        "permission": _PERMISSION,
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

    Kilo replaces ``{env:NAME}`` and ``{file:PATH}`` in the text before it parses it, so that
    neither may come from a value.
    """
    text = json.dumps(config)
    for opening in ("{env:", "{file:"):
        text = text.replace(opening, f"\\u007b{opening[1:]}")
    return text.replace(f'"apiKey": "{_KEY_VARIABLE}"', f'"apiKey": "{{env:{_KEY_VARIABLE}}}"')


def _plugin_folder(session: str) -> str:
    return f"{session}/plugin"


def _plugins(session: str, tool_env: dict[str, str], receipt: str) -> tuple[PlannedFile, ...]:
    folder = _plugin_folder(session)
    code = resources.files("sandbox.harnesses")
    facts = {"receipt": receipt, "env": tool_env}
    return (
        PlannedFile(
            path=f"{folder}/shell-env.js", data=code.joinpath("opencode_plugin.js").read_bytes()
        ),
        PlannedFile(path=f"{folder}/shell-env.json", data=json.dumps(facts).encode()),
        PlannedFile(
            path=f"{folder}/kilocode.js", data=code.joinpath("kilocode_plugin.js").read_bytes()
        ),
        PlannedFile(
            path=f"{folder}/planned.json", data=json.dumps({"permission": _PERMISSION}).encode()
        ),
    )


def _no_plugin_install(folder: str) -> tuple[PlannedFile, ...]:
    """Make 7.7.7's background install of the plugin package believe that it was here before."""
    lock = {"packages": {"": {"dependencies": {"@kilocode/plugin": "*"}}}}
    return (
        PlannedFile(path=f"{folder}/package-lock.json", data=json.dumps(lock).encode()),
        _empty(f"{folder}/node_modules"),
    )


def _empty(folder: str) -> PlannedFile:
    return PlannedFile(path=f"{folder}/.keep", data=b"")


KILOCODE = KiloCode()
