"""Hermes: private HOME and HERMES_HOME, ``hermes chat -Q``, Chat Completions over SSE.

Measured with 0.19.0. Two supported ways in carry what the configuration cannot say: a plugin of
ours (``hermes_plugin.py``) names each request's session and keeps a journal, and bash reads
``BASH_ENV`` before every command of the terminal tool, so that the command sees the task's
environment and nothing of the harness's.

What cannot be switched off: files named AGENTS.md, CLAUDE.md or .cursorrules *below* the workdir
are added to the result of a tool that looks there; a model server on a private address is asked
for ``/api/v1/models``, ``/api/tags``, ``/v1/props``, ``/props`` and ``/version`` beside its ``/v1``
(404 is taken for an answer); a prompt that begins with the path of an image that exists is sent
with that image; the prompt is an argument, so that it is limited to 128 kB. The terminal tool
strips white space around a command's output.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path

from sandbox.errors import UsageError
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
from sandbox.harnesses.prompt import prompt_file

DATABASE = "state.db"
JOURNAL = "hermes-journal.jsonl"
SHELLS = "hermes-shells"

_KEY_VARIABLE = "SANDBOX_MODEL_KEY"
_PLUGIN = "sandbox-journal"
_CONTEXT_WINDOW = 200_000
_MOST_TURNS = 1000  # the episode's deadline ends a run, not a count
_LONGEST_PROMPT = 128 * 1024 - 64  # what the kernel takes as one argument, with the option's name

# Variables beyond the common ones that Hermes reads.
_OWN = ("TERMINAL_*", "BROWSER_*", "SUDO_*", "_HERMES_*", "KUBERNETES_SERVICE_HOST")

# The prompt comes from a file, byte for byte: $(...) alone would drop the newlines at its end.
_LAUNCH = 'prompt=$(cat <"$1" && echo .) || exit; shift; exec "$@" --query="${prompt%.}"'

# Read by every bash that Hermes starts. PWD, OLDPWD and SHLVL are the shell's own.
_SHELL_START = """\
for name in $(compgen -e); do
    case $name in PWD | OLDPWD | SHLVL) ;; *) unset -v "$name" ;; esac
done 2>/dev/null
unset -v name
{exports}echo shell >>{shells}
"""

# For images without bash, and for commands in the background: Hermes starts those with "-lic", and
# a login shell's profile resets PATH.
_SHELL = """\
#!/bin/sh
[ "${{1:-}}" != -lic ] || {{ shift; set -- -c "$@"; }}
bash=$(command -v bash) || bash={bash}
BASH_ENV={start} exec "$bash" "$@"
"""


class Hermes:
    """The adapter of Hermes."""

    name = "hermes"
    capabilities = Capabilities(
        dialect="chat",
        session_header="x-session-id",
        response_ids=False,
        parallel_tools=False,  # only tools that read; commands of one reply run in turn
        subagents=True,
        compaction=True,
        needs_bash=False,
        request_deadline=True,
        project_instructions="nested",
        tools_see_key=False,
        peak_memory_mib=130,
        slow_start_s=30.0,
    )

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        """Return how to launch Hermes.

        Raises:
            UsageError: the prompt is longer than an argument can be.
        """
        session = ctx.session_dir
        prompt = prompt_file(f"{session}/prompt", ctx.prompt)
        if len(prompt.data) > _LONGEST_PROMPT:
            raise UsageError(
                f"Hermes takes its prompt as an argument: {len(prompt.data)} bytes are more than "
                f"the {_LONGEST_PROMPT} that fit",
                cure="put the text in a file of the task and name the file in the prompt",
            )
        return LaunchPlan(
            argv=("/bin/sh", "-c", _LAUNCH, "sh", prompt.path, *_command(ctx)),
            env={**_inherited(ctx.task_env), **_private(ctx), **_limits(ctx.deadline_s)},
            files=(
                prompt,
                PlannedFile(path=f"{session}/hermes/config.yaml", data=_config(ctx)),
                # Else it asks the package index for a newer version.
                PlannedFile(path=f"{session}/hermes/.install_method", data=b"docker\n"),
                *_plugin(f"{session}/hermes/plugins/{_PLUGIN}"),
                *_shell(ctx),
                *(_empty(f"{session}/{folder}") for folder in _FOLDERS),
            ),
            native=(
                *(f"{session}/hermes/{DATABASE}{suffix}" for suffix in ("", "-wal")),
                f"{session}/hermes/logs",
                f"{session}/receipt",
            ),
            proof=(f"{session}/receipt/{JOURNAL}",),
        )

    def parse(self, native: Path, context: NativeContext) -> Observations:
        """Return what the database and the journal say."""
        del context  # Hermes names no call of the model server
        from sandbox.harnesses.hermes_transcript import parse_hermes  # noqa: PLC0415 - on need: slow

        return parse_hermes(native, database=DATABASE, journal=JOURNAL, shells=SHELLS)


_FOLDERS = ("home", "config", "data", "state", "cache", "scratch", "managed", "receipt")


def _command(ctx: LaunchContext) -> tuple[str, ...]:
    return (
        f"{ctx.prefix}/bin/hermes",
        "chat",
        "--quiet",
        "--yolo",
        "--ignore-rules",  # AGENTS.md and the like of the workdir, SOUL.md, memory
        "--max-turns",
        str(_MOST_TURNS),
    )


def _inherited(task_env: Mapping[str, str]) -> dict[str, str]:
    kept = divide(task_env).harness
    return {
        name: value
        for name, value in kept.items()
        if not any(fnmatchcase(name.upper(), pattern) for pattern in _OWN)
    }


def _private(ctx: LaunchContext) -> dict[str, str]:
    session = ctx.session_dir
    return {
        "HOME": f"{session}/home",
        "HERMES_HOME": f"{session}/hermes",
        "HERMES_REAL_HOME": ctx.task_env.get("HOME", "/"),  # "~" of its file tools
        "HERMES_MANAGED_DIR": f"{session}/managed",  # /etc/hermes of the image would win
        "XDG_CONFIG_HOME": f"{session}/config",
        "XDG_DATA_HOME": f"{session}/data",
        "XDG_STATE_HOME": f"{session}/state",
        "XDG_CACHE_HOME": f"{session}/cache",
        "TMPDIR": f"{session}/scratch",
        "BASH_ENV": f"{session}/shell/start.sh",
        "SHELL": f"{session}/shell/bash",
        "SANDBOX_JOURNAL": f"{session}/receipt/{JOURNAL}",
        _KEY_VARIABLE: ctx.api_key,
    }


def _limits(deadline_s: float) -> dict[str, str]:
    """Return Hermes' time limits in seconds.

    It takes exactly 120 and 180 for "not set" and then waits for a private address for 900 s or
    more: hence the last digit.
    """
    limits = deadlines_for(deadline_s)
    return {
        "HERMES_API_TIMEOUT": _seconds(limits.request_ms),
        "HERMES_STREAM_READ_TIMEOUT": _seconds(limits.headers_ms),
        "HERMES_STREAM_STALE_TIMEOUT": _seconds(limits.idle_ms),
        "HERMES_API_CALL_STALE_TIMEOUT": _seconds(limits.idle_ms),
        "HERMES_STREAM_RETRIES": "2" if limits.patient else "1",
    }


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.3f}5"


def _config(ctx: LaunchContext) -> bytes:
    """Return the configuration; JSON is YAML."""
    config = {
        "model": {
            "provider": "custom",
            "default": ctx.model,
            "base_url": ctx.base_url,
            "api_key": f"${{{_KEY_VARIABLE}}}",
            "api_mode": "chat_completions",
            "context_length": _CONTEXT_WINDOW,
        },
        "agent": {
            "api_max_retries": 3 if deadlines_for(ctx.deadline_s).patient else 2,
            "environment_probe": False,
            "coding_context": "off",  # a summary of the task's repository
        },
        "terminal": {"home_mode": "real", "auto_source_bashrc": False},
        "plugins": {"enabled": [_PLUGIN]},
        "approvals": {"mode": "off"},
        "security": {
            "allow_lazy_installs": False,
            "redact_secrets": False,  # the model gets a tool's output as it is
            "tirith_enabled": False,
        },
        "auxiliary": {"title_generation": {"enabled": False}},
        # Background reviews after the answer are model calls of their own.
        "memory": {"memory_enabled": False, "user_profile_enabled": False, "nudge_interval": 0},
        "skills": {"creation_nudge_interval": 0},
        "curator": {"enabled": False},
        "checkpoints": {"enabled": False},
        "lsp": {"enabled": False},
        "model_catalog": {"enabled": False},
        "onboarding": {"profile_build": "off"},
    }
    return json.dumps(config, indent=1).encode()


def _plugin(folder: str) -> tuple[PlannedFile, ...]:
    code = resources.files("sandbox.harnesses").joinpath("hermes_plugin.py").read_bytes()
    manifest = {"name": _PLUGIN, "version": "1.0.0", "kind": "standalone"}
    return (
        PlannedFile(path=f"{folder}/__init__.py", data=code),
        PlannedFile(path=f"{folder}/plugin.yaml", data=json.dumps(manifest).encode()),
    )


def _shell(ctx: LaunchContext) -> tuple[PlannedFile, ...]:
    folder = f"{ctx.session_dir}/shell"
    start = f"{folder}/start.sh"
    exports = "".join(
        f"export {name}={shlex.quote(value)}\n"
        for name, value in sorted(divide(ctx.task_env).tools.items())
        if name.isascii() and name.isidentifier()  # bash passes on the others as they are
    )
    shells = shlex.quote(f"{ctx.session_dir}/receipt/{SHELLS}")
    shell = _SHELL.format(bash=shlex.quote(f"{ctx.prefix}/bin/bash"), start=shlex.quote(start))
    return (
        PlannedFile(path=start, data=_SHELL_START.format(exports=exports, shells=shells).encode()),
        PlannedFile(path=f"{folder}/bash", data=shell.encode(), mode=0o700),
    )


def _empty(folder: str) -> PlannedFile:
    return PlannedFile(path=f"{folder}/.keep", data=b"")


HERMES = Hermes()
