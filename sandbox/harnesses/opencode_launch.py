"""What OpenCode and its forks are launched with: private folders, configuration, shell plugin."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import PurePosixPath

from sandbox.harnesses.base import LaunchContext, PlannedFile
from sandbox.harnesses.deadlines import deadlines_for

PROVIDER = "sandbox"
KEY_VARIABLE = "SANDBOX_MODEL_KEY"
TITLE = "episode"
"""A session without a title asks the model for one."""

_CONTEXT_WINDOW = 200_000
_OUTPUT_LIMIT = 8192


def private_env(session: str) -> dict[str, str]:
    """Return the variables that name the harness's own folders, all below the session's."""
    return {
        "HOME": f"{session}/home",
        "XDG_CONFIG_HOME": f"{session}/config",
        "XDG_DATA_HOME": f"{session}/data",
        "XDG_STATE_HOME": f"{session}/state",
        "XDG_CACHE_HOME": f"{session}/cache",
        "TMPDIR": f"{session}/scratch",
    }


def run_command(ctx: LaunchContext, program: str, *options: str) -> tuple[str, ...]:
    """Return the command of one turn: events to stdout, the prompt from stdin."""
    return (
        f"{ctx.prefix}/bin/{program}",
        "run",
        *options,
        "--format",
        "json",
        "--title",
        TITLE,
        "--model",
        f"{PROVIDER}/{ctx.model}",
        "--dir",
        ctx.workdir,
    )


def search_path(ctx: LaunchContext, path: str) -> str:
    """Return the harness's PATH: the runtime's own ``rg`` comes first.

    The search tools run ``rg``, and download one where PATH has none.
    """
    return f"{ctx.prefix}/path:{path}"


def config_text(ctx: LaunchContext, *, plugins: Sequence[str], permission: object) -> str:
    """Return the configuration: one provider, one model, nothing of the task or the network.

    Args:
        ctx: the activation.
        plugins: paths of the plugins to load.
        permission: what tools may do without being asked.
    """
    limits = deadlines_for(ctx.deadline_s)
    model = f"{PROVIDER}/{ctx.model}"
    config = {
        "model": model,
        "small_model": model,
        "enabled_providers": [PROVIDER],
        "plugin": [PurePosixPath(path).as_uri() for path in plugins],
        "permission": permission,
        "share": "disabled",
        "autoupdate": False,
        "snapshot": False,  # no copy of the task's files
        "lsp": False,
        "formatter": False,
        "provider": {
            PROVIDER: {
                "npm": "@ai-sdk/openai-compatible",
                "name": PROVIDER,
                "options": {
                    "baseURL": ctx.base_url,
                    "apiKey": KEY_VARIABLE,
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

    ``{env:NAME}`` and ``{file:PATH}`` are replaced in the text before it is parsed, so that neither
    may come from a value.
    """
    text = json.dumps(config)
    for opening in ("{env:", "{file:"):
        text = text.replace(opening, f"\\u007b{opening[1:]}")
    return text.replace(f'"apiKey": "{KEY_VARIABLE}"', f'"apiKey": "{{env:{KEY_VARIABLE}}}"')


def shell_plugin(
    path: str, *, tool_env: Mapping[str, str], receipt: str
) -> tuple[PlannedFile, ...]:
    """Return the plugin that gives tools the task's environment and leaves a receipt.

    Args:
        path: where its code is to be; what it has to know is beside it.
        tool_env: the complete environment of the tools.
        receipt: file that gets a line when it is loaded, and one for each shell.
    """
    facts = {"receipt": receipt, "env": dict(tool_env)}
    folder = PurePosixPath(path).parent
    return (
        PlannedFile(path=path, data=plugin_code("opencode_plugin.js")),
        PlannedFile(path=f"{folder}/shell-env.json", data=json.dumps(facts).encode()),
    )


def plugin_code(name: str) -> bytes:
    """Return the code of a plugin of this package."""
    return resources.files("sandbox.harnesses").joinpath(name).read_bytes()


def pretend_installed(folder: str, package: str) -> tuple[PlannedFile, ...]:
    """Make the background install of the plugin package believe that it was here before."""
    lock = {"packages": {"": {"dependencies": {package: "*"}}}}
    return (
        PlannedFile(path=f"{folder}/package-lock.json", data=json.dumps(lock).encode()),
        empty(f"{folder}/node_modules"),
    )


def empty(folder: str) -> PlannedFile:
    """Return what makes an empty folder."""
    return PlannedFile(path=f"{folder}/.keep", data=b"")
