"""One error tree; every class says which exit code it ends a command with.

SandboxError
├── UsageError                 2   a wrong option, name or configuration file
├── NothingSelected            3   the filters left no cell
├── CouldNotFindOut            4   we have no answer: never the same as "it failed"
│   ├── EngineFailure          4   the engine answered with an error, or not at all
│   │   ├── ContainerGone      4   the sandbox's container is no longer running
│   │   ├── CommandLost        4   a command's kept shell was ended, and with it the command
│   │   └── NotFound           4   a path, image, command or user does not exist there
│   ├── IntegrityError         4   bytes are not the pinned ones
│   ├── FetchError             4   a registry could not be read (see ``retryable``)
│   │   └── NotServed          4   a registry answers, and does not hold what is asked for
│   ├── ClusterLost            4   the cluster's scheduler or its last worker is gone
│   └── InstallError           4   the installer refused or its result is not the pin
├── Unsupported                4   this combination cannot work, with reason and cure
├── PrerequisiteMissing        5   engine, tool, pin or space is missing, with the cure
│   └── CacheUnusable          5   the cache folder is full, read-only or unreadable
└── Interrupted              130   Ctrl-C, after cleaning up
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command (DESIGN.md section 8)."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOTHING_SELECTED = 3
    ERROR = 4
    PREREQUISITE = 5
    INTERRUPTED = 130


class SandboxError(Exception):
    """Base of all errors a user can meet: what happened, where, and what to do.

    Args:
        message: what happened and to which cell, image or file.
        cure: what the user can do about it; printed on a line of its own.
    """

    exit_code: ExitCode = ExitCode.ERROR

    def __init__(self, message: str, *, cure: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.cure = cure

    def __str__(self) -> str:
        return self.message if self.cure is None else f"{self.message}\n  what to do: {self.cure}"


class UsageError(SandboxError):
    """A wrong option, name or configuration file."""

    exit_code = ExitCode.USAGE


class NothingSelected(SandboxError):
    """The filters left no cell."""

    exit_code = ExitCode.NOTHING_SELECTED


class CouldNotFindOut(SandboxError):
    """There is no answer; never the same as a failed check."""


class EngineFailure(CouldNotFindOut):
    """The engine answered with an error, or not at all."""


class ContainerGone(EngineFailure):
    """The sandbox's container is no longer running."""


class CommandLost(EngineFailure):
    """The kept shell that ran a command was ended, so what ran of the command was ended too."""


class NotFound(EngineFailure, LookupError):
    """A path, image, command or user that the engine was asked for does not exist."""


class IntegrityError(CouldNotFindOut):
    """Bytes are not the pinned ones; nothing of them was used."""


class FetchError(CouldNotFindOut, ConnectionError):
    """A registry could not be read.

    Args:
        retryable: whether asking again may help (time-out, 5xx), or not (404).
    """

    def __init__(self, message: str, *, cure: str | None = None, retryable: bool = False) -> None:
        super().__init__(message, cure=cure)
        self.retryable = retryable


class NotServed(FetchError):
    """A registry answers, and does not hold what is asked for."""


class ClusterLost(CouldNotFindOut):
    """The cluster's scheduler or its last worker is gone; what came until then is kept."""


class InstallError(CouldNotFindOut):
    """The installer refused, or what it installed is not the pin."""


class Unsupported(SandboxError):
    """This combination cannot work; reason and cure are known before anything is fetched."""


class PrerequisiteMissing(SandboxError):
    """An engine, tool, pin or space is missing."""

    exit_code = ExitCode.PREREQUISITE


class CacheUnusable(PrerequisiteMissing, OSError):
    """The cache folder is full, read-only or unreadable."""


class Interrupted(SandboxError):
    """Ctrl-C, after everything was cleaned up."""

    exit_code = ExitCode.INTERRUPTED
