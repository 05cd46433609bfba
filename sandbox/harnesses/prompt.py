"""How a prompt reaches a harness: as a file on stdin, byte for byte.

An argument would not do. The kernel refuses one above 128 kB; OpenCode puts quotes around an
argument with a space in it and fails on one that looks like a number; every user of the sandbox can
read arguments. A file ends by itself, so no harness waits for more (an open pipe is never read to
its end).
"""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.harnesses.base import PlannedFile

_SCRIPT = 'prompt=$1; shift; exec "$@" <"$prompt"'


def prompt_file(path: str, prompt: str) -> PlannedFile:
    """Return the file that holds the prompt."""
    return PlannedFile(path=path, data=prompt.encode("utf-8", "replace"))


def with_prompt(argv: Sequence[str], path: str) -> tuple[str, ...]:
    """Return the command that becomes ``argv`` with the file on its stdin."""
    return ("/bin/sh", "-c", _SCRIPT, "sh", path, *argv)
