"""The shell that OpenClaw's tools run in: the task's environment instead of the harness's.

OpenClaw runs its commands in ``$SHELL`` with its own environment, plus the variables that the model
asks for with a call. The script below takes the shell's place: it undoes what the harness has for
itself, leaves what the model asked for, and becomes the real shell. A harness that does not find
it has no shell, so it cannot be passed by; each start leaves a line in a receipt.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePosixPath

from sandbox.harnesses.base import PlannedFile

_MODE = 0o700
_SHELLS = {"ash", "bash", "dash", "ksh", "mksh", "sh", "zsh"}  # those that take -c as sh does
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN = (  # what OpenClaw puts into its own environment while it runs
    "NODE_NO_WARNINGS",
    "OPENCLAW_NODE_OPTIONS_READY",
    "OPENCLAW_PATH_BOOTSTRAPPED",
)
_NEVER_ASKED = {"HOME", "PATH", "SHELL"}  # OpenClaw changes PATH, and lets no model set these


def shell_script(
    path: str,
    *,
    harness_env: Mapping[str, str],
    tool_env: Mapping[str, str],
    secret: Collection[str],
    receipt: str,
) -> PlannedFile:
    """Return the script to name in SHELL.

    Args:
        path: where the script is to be.
        harness_env: the complete environment of the harness.
        tool_env: the complete environment of the task's shells.
        secret: variables of the harness whose values the script must not hold.
        receipt: file that gets the process id of each shell.
    """
    lines = [
        "#!/bin/sh",
        f'{{ echo "$$" >>{shlex.quote(receipt)}; }} 2>/dev/null',
        *_replaced(harness_env, tool_env, always={*_NEVER_ASKED, *secret}),
        *_added(harness_env, tool_env),
        f"unset {' '.join(name for name in _OWN if name not in tool_env)}",
        f"shell={shlex.quote(_shell(tool_env))}",
        '[ -x "$shell" ] || shell=/bin/sh',
        f'exec {_odd_names(tool_env)}"$shell" "$@"',
    ]
    return PlannedFile(
        path=path, data=("\n".join(lines) + "\n").encode("utf-8", "surrogateescape"), mode=_MODE
    )


def _replaced(
    harness_env: Mapping[str, str], tool_env: Mapping[str, str], *, always: Collection[str]
) -> Iterator[str]:
    """Undo each variable of the harness that still has the harness's value."""
    for name, value in sorted(harness_env.items()):
        wanted = tool_env.get(name)
        if not _PLAIN.fullmatch(name) or (wanted == value and name not in always):
            continue
        action = f"unset {name}" if wanted is None else _export(name, wanted)
        if name in always:
            yield action
        else:
            yield f'[ "${{{name}-}}" != {shlex.quote(value)} ] || {action}'


def _added(harness_env: Mapping[str, str], tool_env: Mapping[str, str]) -> Iterator[str]:
    """Set each variable of the task that the harness must not have."""
    for name, value in sorted(tool_env.items()):
        if name not in harness_env and _PLAIN.fullmatch(name):
            yield f'[ "${{{name}+set}}" ] || {_export(name, value)}'


def _export(name: str, value: str) -> str:
    return f"export {name}={shlex.quote(value)}"


def _odd_names(tool_env: Mapping[str, str]) -> str:
    """Return the ``env`` command for variables whose names a shell cannot hold."""
    odd = {name: value for name, value in tool_env.items() if not _PLAIN.fullmatch(name)}
    words = [shlex.quote(f"{name}={value}") for name, value in sorted(odd.items())]
    return f"/usr/bin/env {' '.join(words)} " if odd else ""


def _shell(tool_env: Mapping[str, str]) -> str:
    named = tool_env.get("SHELL", "")
    return named if PurePosixPath(named).name in _SHELLS and named.startswith("/") else "/bin/sh"
