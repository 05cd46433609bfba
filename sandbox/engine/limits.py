"""What a sandbox may use, and what it may see of the host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sandbox.errors import UsageError

LEAST_MEMORY_MIB = 6  # the engine refuses less


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Upper bounds of one sandbox; memory includes what lies in /tmp, and there is no swap."""

    memory_mib: int = 4096
    pids: int = 1024
    tmp_mib: int = 1024

    def __post_init__(self) -> None:
        if self.memory_mib < LEAST_MEMORY_MIB or self.pids < 1 or self.tmp_mib < 1:
            raise UsageError(
                f"these limits leave no room for a process: {self}",
                cure=f"memory_mib at least {LEAST_MEMORY_MIB}, pids and tmp_mib at least 1",
            )


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, kw_only=True)
class ReadOnlyMount:
    """A host file or folder shown read-only at ``target`` in the sandbox.

    The engine's host has to have ``source``: for a remote engine use ``put`` instead.
    """

    source: Path
    target: str

    def __post_init__(self) -> None:
        if not self.source.is_absolute() or not PurePosixPath(self.target).is_absolute():
            raise UsageError(f"a mount needs absolute paths: {self.source} at {self.target}")
