"""Run programs of the host, and start one that outlives this process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
_WITH_DEFAULT_SIGNALS = (
    *(sys.executable, "-I", "-S"),
    str(Path(__file__).with_name("defaultsignals.py")),
)
_GRACE_S = 10.0
_DETACHED = 'cd / && umask 022 && exec "$@"'


@dataclass(frozen=True, kw_only=True)
class Completed:
    """How a program ended: its exit code (negative: the signal), and its two streams as one."""

    exit_code: int
    output: str


class HostCommands(Protocol):
    """What the engine room asks of the host; tests give one that asks nothing."""

    def is_root(self) -> bool:
        """Tell whether this process may install packages and start an engine."""

    def has_service_manager(self) -> bool:
        """Tell whether systemd runs this host."""

    def which(self, name: str) -> str | None:
        """Return the path of program ``name``, also when it is in a folder for administrators."""

    def run(
        self, argv: Sequence[str], *, deadline_s: float, env: Mapping[str, str] | None = None
    ) -> Completed:
        """Run ``argv`` with ``env`` on top of this process's environment, without input.

        Raises:
            TimeoutError: it did not end in time and was stopped.
        """

    def spawn(self, argv: Sequence[str], *, log: Path) -> int:
        """Start ``argv`` in a session of its own with both streams appended to ``log``.

        It inherits no open file and no ignored signal, and survives this process. Returns its pid.
        """

    def has_ended(self, pid: int) -> bool:
        """Tell whether a process that ``spawn`` started has ended."""


class LocalCommands:
    """The host this process runs on."""

    def is_root(self) -> bool:
        """Tell whether the effective user is root."""
        return os.geteuid() == 0

    def has_service_manager(self) -> bool:
        """Tell whether systemd runs this host (sd_booted(3))."""
        return Path("/run/systemd/system").is_dir()

    def which(self, name: str) -> str | None:
        """Look in PATH and in the sbin folders, which are not in every user's PATH."""
        return shutil.which(name, path=_search_path())

    def run(
        self, argv: Sequence[str], *, deadline_s: float, env: Mapping[str, str] | None = None
    ) -> Completed:
        """Run ``argv``; on expiry it is asked to end and after a grace period made to."""
        with subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment() | dict(env or {}),
            encoding="utf-8",
            errors="replace",
        ) as process:
            try:
                output, _ = process.communicate(timeout=deadline_s)
            except subprocess.TimeoutExpired as error:
                _stop(process)
                raise TimeoutError(f"{argv[0]} did not end within {deadline_s:g} s") from error
            except BaseException:
                _stop(process)
                raise
        return Completed(exit_code=process.returncode, output=output)

    def spawn(self, argv: Sequence[str], *, log: Path) -> int:
        """Start ``argv``, detached."""
        with log.open("ab") as stream:
            # Popen, unlike os.posix_spawn, closes what the caller holds open.
            process = subprocess.Popen(
                [*_WITH_DEFAULT_SIGNALS, "/bin/sh", "-c", _DETACHED, "sh", *argv],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        process.returncode = 0  # nobody waits through this object: has_ended asks the kernel
        return process.pid

    def has_ended(self, pid: int) -> bool:
        """Ask the kernel, and let it forget the child when it has ended."""
        try:
            return os.waitpid(pid, os.WNOHANG)[0] == pid
        except ChildProcessError:
            return True


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _search_path() -> str:
    folders = os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin").split(os.pathsep)
    return os.pathsep.join([*folders, *(name for name in _SBIN if name not in folders)])


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": _search_path()}
