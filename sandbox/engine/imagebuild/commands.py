"""Run the host's tools for a build: bounded in time, gone when we are gone, installable by apt."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from sandbox.cache import cache_root
from sandbox.engine.apt import Apt
from sandbox.engine.hostcommands import HostCommands, LocalCommands
from sandbox.errors import CacheUnusable, PrerequisiteMissing
from sandbox.progress import Progress

_TAIL = 4000
_FULL = 1 << 20
_STDOUT_LIMIT = 4 << 20
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SECRET_IN_URL = re.compile(r"(://)[^/@\s]+@")


@dataclass(frozen=True, kw_only=True)
class Completed:
    """How a tool ended: exit code (None past its deadline), output, end of its messages."""

    code: int | None
    stdout: str = ""
    tail: str = ""


class Runner(Protocol):
    """Runs a tool to its end."""

    def __call__(
        self, argv: Sequence[str], *, env: Mapping[str, str], deadline_s: float
    ) -> Completed:
        """Run ``argv`` with exactly ``env``; a missing tool ends with 127, as in a shell."""


def run_tool(argv: Sequence[str], *, env: Mapping[str, str], deadline_s: float) -> Completed:
    """Run a tool on this host without a terminal; see ``Runner``.

    It never outlives this process where ``setpriv`` exists: a tool that builds into a folder
    that the next run removes must not go on writing to it.
    """
    tether = [found, "--pdeathsig", "KILL"] if (found := shutil.which("setpriv")) else []
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(
                [*tether, *argv],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=dict(env),
                start_new_session=True,
                umask=0o022,  # what packages' scripts make must not depend on the caller's umask
            )
        except FileNotFoundError as error:
            return Completed(code=127, tail=str(error))
        try:
            code: int | None = process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
        return Completed(code=code, stdout=_head(out), tail=_tail(err))


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _head(stream: BinaryIO) -> str:
    stream.seek(0)
    return stream.read(_STDOUT_LIMIT).decode(errors="replace")


def _tail(stream: BinaryIO) -> str:
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - _TAIL))
    return _SECRET_IN_URL.sub(r"\1***@", stream.read().decode(errors="replace").strip())


@dataclass(frozen=True, kw_only=True)
class Host:
    """What a build uses of the machine it runs on; tests give their own.

    ``run`` is for the build's own tools, which end with us; ``commands`` for looking and for apt,
    which must never be cut off.
    """

    cache: Path = field(default_factory=cache_root)
    run: Runner = run_tool
    commands: HostCommands = field(default_factory=LocalCommands)
    exists: Callable[[Path], bool] = Path.exists
    machine: str = field(default_factory=lambda: os.uname().machine)
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def images(self) -> Path:
        """Say where built images and what they are built from are kept."""
        return self.cache / "images"


def tool_env(host: Host, **more: str) -> dict[str, str]:
    """Give a tool's environment: the caller's proxies and home, nothing else that may vary."""
    kept = {
        name: value
        for name, value in host.environ.items()
        if name == "HOME" or name.lower() in {"http_proxy", "https_proxy", "ftp_proxy", "no_proxy"}
    }
    return {"PATH": _SYSTEM_PATH, "LC_ALL": "C.UTF-8", "TZ": "UTC", **kept, **more}


def ensure_packages(host: Host, packages: Sequence[str], *, need: str, progress: Progress) -> None:
    """Install Debian ``packages`` on this host, as root with apt.

    Args:
        host: the machine.
        packages: Debian package names.
        need: what they are needed for, for the messages.
        progress: where the one line about it goes.

    Raises:
        PrerequisiteMissing: not root, no apt, or apt fails; the cure names the packages.
    """
    names = " ".join(packages)
    apt = Apt(host.commands)
    if not apt.usable():
        raise PrerequisiteMissing(
            f"{need} needs {names}, which is not installed",
            cure=f"install it as root: apt-get install {names}",
        )
    with progress.step(f"{need}: apt installs {names} on this host"):
        apt.install(packages)


def is_full(folder: Path) -> bool:
    """Say whether the disk below ``folder`` has no space, which is how a tool's failure is told."""
    return shutil.disk_usage(folder).free < _FULL


def no_space(title: str, folder: Path) -> CacheUnusable:
    """Give the error for a tool that failed on a full disk."""
    return CacheUnusable(
        f"{title}: no space is left below {folder}",
        cure="free space there, or point XDG_CACHE_HOME at a folder with space that you own",
    )
