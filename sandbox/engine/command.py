"""What a command is before it runs, and what is left when it ended."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from sandbox.engine.output import EMPTY, Stream
from sandbox.errors import UsageError

MAX_WORD_BYTES = 128 * 1024 - 1  # Linux MAX_ARG_STRLEN with its terminating zero byte


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command to run in a sandbox; refused here when no kernel could run it.

    Raises:
        UsageError: no argv, a word that is no text, holds a NUL or is too long for Linux, a
            variable without a name, a relative cwd, a deadline that is not in the future.
    """

    argv: Sequence[str]
    deadline_s: float
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    stdin: Iterable[bytes] | None = None
    cancel: threading.Event | None = None

    def __post_init__(self) -> None:
        if isinstance(self.argv, str) or not self.argv or not self.argv[0]:
            raise UsageError(
                f"a command is a non-empty list of words, not {self.argv!r:.80}",
                cure='for a shell line say ["sh", "-c", SCRIPT]',
            )
        for word in self.argv:
            _check_word(word, "argument")
        for name, value in self.env.items():
            if not name or "=" in name:
                raise UsageError(f"{name!r:.80} cannot name an environment variable")
            _check_word(f"{name}={value}", "environment variable")
        if self.cwd is not None and not PurePosixPath(self.cwd).is_absolute():
            raise UsageError(f"a command's folder must be an absolute path, not {self.cwd!r:.80}")
        if not self.deadline_s > 0:
            raise UsageError(f"a deadline must be later than now, not {self.deadline_s} s")

    def __str__(self) -> str:
        return " ".join(self.argv)[:80]


def _check_word(word: object, what: str) -> None:
    if not isinstance(word, str) or "\0" in word:
        raise UsageError(f"an {what} must be text without NUL, not {word!r:.80}")
    size = len(word.encode("utf-8", "surrogateescape"))
    if size > MAX_WORD_BYTES:
        raise UsageError(
            f"an {what} of {size} bytes: Linux takes at most {MAX_WORD_BYTES} bytes in one",
            cure="give it as standard input, or put it in a file",
        )


@dataclass(frozen=True, kw_only=True)
class ExecResult:
    """How a command ended; a command that failed is a value like any other.

    Attributes:
        exit_code: what the command ended with, 128 + n for signal n. The runtime's code (126, or
            1) with its words as output for a file that is there but cannot be run. None when it
            was killed for its deadline or on cancellation.
        stdout: its standard output, bounded.
        stderr: its standard error, bounded.
        timed_out: the deadline passed; its whole process tree is gone.
        cancelled: ``cancel`` was set; its whole process tree is gone.
        oom_killed: the kernel killed a process of this sandbox for its memory limit while the
            command ran (by the cgroup's count, so a concurrent command's kill counts too).
        sandbox_killed: the process tree could only be ended with the whole sandbox.
        duration_s: how long it took by the host's monotonic clock, start-up included.
    """

    exit_code: int | None
    stdout: Stream = EMPTY
    stderr: Stream = EMPTY
    timed_out: bool = False
    cancelled: bool = False
    oom_killed: bool = False
    sandbox_killed: bool = False
    duration_s: float = 0.0

    @property
    def ok(self) -> bool:
        """Tell whether the command ended by itself with exit code 0."""
        return self.exit_code == 0
