"""Which variables a harness gets, and which its tools get.

Tools get the task's environment as it is. The harness gets what is left of it after everything that
could change its behaviour is taken out: an image that sets ``OPENAI_BASE_URL`` or ``LD_PRELOAD``
means its own programs, not the harness.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from sandbox.evidence.records import Record

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_VENDORS = (
    "AI_GATEWAY_*",
    "ANTHROPIC_*",
    "AWS_*",
    "AZURE_*",
    "CLAUDE_*",
    "CLAWHUB_*",
    "CLOUDFLARE_*",
    "CODEX_*",
    "GEMINI_*",
    "GH_*",
    "GITHUB_*",
    "GITLAB_*",
    "GOOGLE_*",
    "HERMES_*",
    "KILO_*",
    "OLLAMA_*",
    "OPENAI_*",
    "OPENCLAW_*",
    "OPENCODE_*",
    "OPENROUTER_*",
    "PI_*",
    "*_API_KEY",
    "*_BASE_URL",
)
_RUNTIMES = (
    "BUN_*",
    "DENO_*",
    "GLIBC_TUNABLES",
    "LD_*",
    "MALLOC_*",
    "NODE_*",
    "NPM_CONFIG_*",
    "PYTHON*",
    "RUST_*",
    "UV_*",
    "VIRTUAL_ENV",
    "YARN_*",
)
_NETWORK = (
    "*_PROXY",
    "HOSTALIASES",
    "LOCALDOMAIN",
    "PROXY",
    "RES_OPTIONS",
    "SSL_CERT_*",
    "SSLKEYLOGFILE",
    "OTEL_*",
    "SENTRY_*",
)
_PLACES = (
    "BASH_ENV",  # sourced by every bash that is not interactive
    "CDPATH",
    "DBUS_*",  # a key ring
    "ENV",
    "GIT_*",  # the harness asks git about the workdir
    "HOME",
    "OLDPWD",
    "PWD",  # OpenCode believes it more than its working directory
    "SHELL",
    "SHLVL",
    "TEMP",
    "TMP",
    "TMPDIR",
    "XDG_*",
    "ZDOTDIR",
    "_",
)
_DROPPED = (*_VENDORS, *_RUNTIMES, *_NETWORK, *_PLACES)


class Environments(Record):
    """The two environments; ``dropped`` are the names that only the tools have, sorted."""

    harness: dict[str, str]
    tools: dict[str, str]
    dropped: tuple[str, ...]


def divide(task_env: Mapping[str, str]) -> Environments:
    """Divide the task's environment; the harness always gets a PATH."""
    kept = {name: value for name, value in task_env.items() if not changes_a_harness(name)}
    return Environments(
        harness={"PATH": DEFAULT_PATH, **kept},
        tools=dict(task_env),
        dropped=tuple(sorted(set(task_env) - set(kept))),
    )


def changes_a_harness(name: str) -> bool:
    """Whether a variable could change what a harness does (names are compared without case)."""
    return any(fnmatchcase(name.upper(), pattern) for pattern in _DROPPED)
