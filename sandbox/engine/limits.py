"""What a sandbox may use, and what it may see of the host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from sandbox.errors import UsageError

LEAST_MEMORY_MIB = 6  # the engine refuses less
ROOMY_PIDS = 128
ROOMY_MEMORY_MIB = 256


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Upper bounds of one sandbox; memory includes what lies in /tmp, and there is no swap.

    Attributes:
        memory_mib: of all processes and of what lies in memory.
        pids: processes and threads.
        tmp_mib: size of /tmp.
        shm_mib: size of /dev/shm.
        tmp: "open" to everybody, and programs may be run from it; "noexec": they may not;
            "read-only": nobody can write there.
        read_only_root: the root file system cannot be written; the workdir is then a volume.
    """

    memory_mib: int = 4096
    pids: int = 1024
    tmp_mib: int = 1024
    shm_mib: int = 64
    tmp: Literal["open", "noexec", "read-only"] = "open"
    read_only_root: bool = False

    def __post_init__(self) -> None:
        least = min(self.pids, self.tmp_mib, self.shm_mib)
        if self.memory_mib < LEAST_MEMORY_MIB or least < 1:
            raise UsageError(
                f"these limits leave no room for a process: {self}",
                cure=f"memory_mib at least {LEAST_MEMORY_MIB}, the others at least 1",
            )

    @property
    def leaves_room(self) -> bool:
        """Tell whether a few idle shells take nothing from a task that it could miss."""
        return self.pids >= ROOMY_PIDS and self.memory_mib >= ROOMY_MEMORY_MIB

    @property
    def tmp_options(self) -> str:
        """Give the mount options of /tmp."""
        execution = "noexec" if self.tmp == "noexec" else "exec"
        writing = "ro," if self.tmp == "read-only" else ""
        return f"{writing}{execution},nosuid,nodev,mode=1777,size={self.tmp_mib}m"


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, kw_only=True)
class ReadOnlyMount:
    """A host file or folder shown read-only at ``target`` in the sandbox.

    The engine's host has to have ``source``: for a remote engine use a ``VolumeMount`` or ``put``.
    """

    source: Path
    target: str

    def __post_init__(self) -> None:
        if not self.source.is_absolute() or not PurePosixPath(self.target).is_absolute():
            raise UsageError(f"a mount needs absolute paths: {self.source} at {self.target}")

    @property
    def binding(self) -> tuple[str, str]:
        """What is mounted and how, in the engine's words."""
        return str(self.source), "ro"


@dataclass(frozen=True, kw_only=True)
class VolumeMount:
    """A named volume of the engine, shown at ``target`` read-only unless ``writable``."""

    volume: str
    target: str
    writable: bool = False

    def __post_init__(self) -> None:
        if "/" in self.volume or not PurePosixPath(self.target).is_absolute():
            raise UsageError(f"a volume needs a name and a place: {self.volume} at {self.target}")

    @property
    def binding(self) -> tuple[str, str]:
        """What is mounted and how, in the engine's words."""
        return self.volume, "rw" if self.writable else "ro"


Mounted = ReadOnlyMount | VolumeMount
