"""Install Debian and Ubuntu packages as root, unattended, also beside another apt."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sandbox.engine.hostcommands import Completed, HostCommands
from sandbox.errors import PrerequisiteMissing

LISTS = Path("/var/lib/apt/lists")
JOURNAL = Path("/var/lib/dpkg/updates")
LOCK_DEADLINE_S = 300.0
_LISTS_FRESH_S = 86_400.0
_DEADLINE_S = 1_200.0
_PAUSE_S = 2.0
_TAIL_LINES = 15
_LOCKED = "Could not get lock"  # apt's words under LC_ALL=C; it has no exit code for it
_ENV = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C", "NEEDRESTART_SUSPEND": "1"}


class Apt:
    """The host's apt-get.

    Args:
        commands: how programs are run.
        lists: apt's folder of package lists.
        journal: dpkg's folder of unfinished work.
    """

    def __init__(
        self,
        commands: HostCommands,
        *,
        lists: Path = LISTS,
        journal: Path = JOURNAL,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._commands = commands
        self._lists = lists
        self._journal = journal
        self._sleep = sleep

    def usable(self) -> bool:
        """Tell whether packages can be installed here: apt-get is there and we are root."""
        return self._commands.is_root() and self._commands.which("apt-get") is not None

    def install(self, packages: Sequence[str]) -> None:
        """Install ``packages`` without recommended ones; waits for another apt or dpkg to end.

        Raises:
            PrerequisiteMissing: apt failed; the message ends with its last lines.
        """
        self._finish_interrupted()
        fresh = not self._lists_are_fresh()
        if fresh:
            self._update()
        argv = (
            "apt-get",
            f"-oDPkg::Lock::Timeout={LOCK_DEADLINE_S:.0f}",
            "-oDpkg::Use-Pty=0",
            "-oAcquire::Retries=3",
            "-y",
            "--no-install-recommends",
            "install",
            *packages,
        )
        done = self._run(argv)
        if done.exit_code != 0 and not fresh:  # lists older than the archive name missing files
            self._update()
            done = self._run(argv)
        if done.exit_code != 0:
            raise _failed(f"cannot install {' '.join(packages)}", argv, done)

    def _lists_are_fresh(self) -> bool:
        if not any(self._lists.glob("*_Packages*")):
            return False
        return time.time() - self._lists.stat().st_mtime < _LISTS_FRESH_S

    def _update(self) -> None:
        """Refresh the lists; their lock is one that apt does not wait for by itself."""
        argv = ("apt-get", "-oAcquire::Retries=3", "update")
        for _ in range(int(LOCK_DEADLINE_S / _PAUSE_S)):
            done = self._run(argv)
            if done.exit_code == 0:
                return
            if _LOCKED not in done.output:
                break
            self._sleep(_PAUSE_S)
        raise _failed("cannot refresh the package lists", argv, done)

    def _finish_interrupted(self) -> None:
        """Let dpkg finish what a killed run left half done: apt refuses to work before that."""
        if any(entry.name.isdigit() for entry in self._journal.glob("*")):
            argv = ("dpkg", "--configure", "-a")
            done = self._run(argv)
            if done.exit_code != 0:
                raise _failed("cannot finish an interrupted installation", argv, done)

    def _run(self, argv: Sequence[str]) -> Completed:
        try:
            return self._commands.run(argv, deadline_s=_DEADLINE_S, env=_ENV)
        except TimeoutError as error:
            raise PrerequisiteMissing(
                f"{' '.join(argv)}: {error}", cure="run it by hand and look where it waits"
            ) from error


def _failed(what: str, argv: Sequence[str], done: Completed) -> PrerequisiteMissing:
    tail = "\n".join(f"  | {line}" for line in done.output.splitlines()[-_TAIL_LINES:])
    return PrerequisiteMissing(
        f"{what}: apt ended with {done.exit_code}\n{tail}",
        cure=f"run it by hand as root: {' '.join(argv)}",
    )
