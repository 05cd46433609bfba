"""The constant POSIX sh scripts that the engine room runs inside sandboxes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources


@cache
def script(name: str) -> str:
    """Give the text of ``name``.sh beside this module."""
    return resources.files(__package__).joinpath(f"{name}.sh").read_text()


def sh(name: str, arguments: Sequence[str] = ()) -> list[str]:
    """Give the argv that runs script ``name`` with ``arguments``."""
    return ["/bin/sh", "-c", script(name), f"sandbox-{name}", *arguments]
