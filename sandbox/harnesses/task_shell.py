"""A shell for a harness's tools that has the task's environment, whatever the harness gives it.

For harnesses that cannot be told their tools' environment but can be told which shell to run: the
script below takes that shell's place, puts the environment in order and becomes the real shell.
Each start leaves a line in a receipt, so that a harness that ran another shell is found out.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from sandbox.evidence.observations import Gap
from sandbox.harnesses.base import PlannedFile
from sandbox.harnesses.environment import DEFAULT_PATH, divide
from sandbox.harnesses.native import ARTIFACT_UNAVAILABLE, find_files

_MODE = 0o700
# The task's PATH, since the harness's may hold this very script under the name of bash. A login
# shell would reset PATH.
_SCRIPT = """\
#!/bin/sh
{{ echo "$$" >>{receipt}; }} 2>/dev/null
PATH={path}
for shell in {choice}; do
  [ ! -x "$shell" ] || break
done
if [ "${{1-}}" = -c ] && [ "${{2-}}" = -l ]; then
  shift 2
  set -- -c "$@"
fi
exec /usr/bin/env -i {env} "$shell" "$@"
"""
_OF_THE_IMAGE = '/bin/bash "$(command -v bash)" /bin/sh'
_KEPT = {"LANG", "LANGUAGE", "PATH", "TZ"}


def harness_env(task_env: Mapping[str, str]) -> dict[str, str]:
    """Return what such a harness keeps of the task's environment: no more than it needs itself.

    Its tools get the task's environment from the shell, so nothing has to pass through it.
    """
    kept = divide(task_env).harness
    return {name: kept[name] for name in kept if name in _KEPT or name.startswith("LC_")}


def task_shell(
    path: str,
    *,
    tool_env: Mapping[str, str],
    receipt: str,
    program: str | None = None,
    keep: Sequence[str] = (),
) -> PlannedFile:
    """Return the script to name as the harness's shell.

    Args:
        path: where the script is to be.
        tool_env: the complete environment of the tools.
        receipt: file that gets the process id of each shell.
        program: the real shell, where it is there; else the image's bash, else its sh.
        keep: variables that the harness sets for its tools, kept where the task does not set them.
    """
    kept = [f'${{{name}+"{name}=${name}"}}' for name in keep if name not in tool_env]
    given = [shlex.quote(f"{name}={value}") for name, value in sorted(tool_env.items())]
    text = _SCRIPT.format(
        receipt=shlex.quote(receipt),
        path=shlex.quote(tool_env.get("PATH", DEFAULT_PATH)),
        choice=_OF_THE_IMAGE if program is None else f"{shlex.quote(program)} {_OF_THE_IMAGE}",
        env=" ".join([*kept, *given]),
    )
    return PlannedFile(path=path, data=text.encode("utf-8", "surrogateescape"), mode=_MODE)


def shells_started(native: Path, receipt: str) -> int:
    """Return how many shells the receipt below a folder counts."""
    return sum(path.read_bytes().count(b"\n") for path in find_files(native, receipt))


def shell_gaps(native: Path, receipt: str, *, ran: int) -> tuple[Gap, ...]:
    """Return a gap when more shells ran than the receipt counts.

    Args:
        native: the folder with the evidence.
        receipt: the receipt's file name.
        ran: the number of shells whose result the harness recorded.
    """
    started = shells_started(native, receipt)
    if started >= ran:
        return ()
    detail = (
        f"{ran} shells ran and {started} have a receipt: the others may have seen the harness's "
        "environment"
    )
    return (Gap(code=ARTIFACT_UNAVAILABLE, detail=detail),)
