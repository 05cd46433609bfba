"""The kept channel of a sandbox: shells that wait there, so that commands need no exec each.

An exec of the engine costs its runtime's start each time; a shell that waits starts a command in a
few milliseconds. It is a shortcut and never the only way: whatever is not surely the same through a
shell (standard input, a program that the runtime has not started yet, a variable that a shell would
change), or cannot be had (no control groups, an odd shell, more commands at once than shells), goes
by an exec of the engine. docs/decisions tells why.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

from sandbox.engine.command import Command
from sandbox.engine.framing import carries, request
from sandbox.engine.inside import Inside
from sandbox.engine.lane import Lane
from sandbox.engine.observer import HostObserver
from sandbox.engine.output import Sink
from sandbox.engine.place import HostLocator
from sandbox.engine.processes import KEPT_SHELL
from sandbox.engine.programs import Program, Programs
from sandbox.engine.runner import KILLED, Outcome, Runner
from sandbox.engine.tracker import CgroupTracker, Tracker
from sandbox.errors import ContainerGone, EngineFailure

MOST_LANES = 8
MOST_BYTES = 64 * 1024  # a shell may read its requests byte by byte


class Channel:
    """The kept shells of one container, some for each user; threads may share it.

    Args:
        api: the engine's.
        container: its id.
        runner: knows whether the container is there.
        user: whom commands run as that name nobody.
        workdir: where commands run that name no folder.
        path: the PATH of commands that give none.
    """

    def __init__(
        self, api: Any, container: str, runner: Runner, *, user: str, workdir: str, path: str
    ) -> None:
        self._api = api
        self._container = container
        self._runner = runner
        self._user = user
        self._workdir = workdir
        self._path = path
        self._lock = threading.Lock()
        self._idle: dict[str, list[Lane]] = {}
        self._count = 0
        self._unfit: set[str] = set()
        self._closed = False
        self._programs: Programs | None = None
        self._shell: Program | None = None

    def program(self, command: Command, inside: Inside) -> Program | None:
        """Find what a command starts; None when that is the engine's business alone."""
        fits = (
            command.stdin is None
            and isinstance(inside.tracker, CgroupTracker)
            and isinstance(inside.locator, HostLocator)
            and isinstance(inside.observer, HostObserver)
            and not inside.observer.is_paused()  # the engine refuses, and says why
            and carries(command.env)
            and len(request("", command.argv, folder="", env=command.env)) <= MOST_BYTES
        )
        if not fits:
            return None
        assert isinstance(inside.locator, HostLocator)
        with self._lock:
            if self._programs is None:
                self._programs = Programs(inside.locator.root)
                self._shell = self._programs.find(KEPT_SHELL[0], None, "/")
                self._programs.add(self._shell)
            path = command.env.get("PATH", self._path)
            return self._programs.find(command.argv[0], path, command.cwd or self._workdir)

    def learn(self, program: Program | None) -> None:
        """Note that the engine has started this program."""
        with self._lock:
            if self._programs is not None:
                self._programs.add(program)

    def run(
        self,
        command: Command,
        program: Program | None,
        tracker: Tracker,
        *,
        until: float,
        stdout: Sink,
        stderr: Sink,
    ) -> Outcome | None:
        """Run a command until monotonic time ``until``; its output goes to the sinks.

        Returns:
            How it ended; None when it has not begun and is the engine's to run.

        Raises:
            ContainerGone: the container is not running, or ended while the command ran.
            EngineFailure: see ``Lane.run``.
        """
        user = command.user or self._user
        lane = self._take(user, program, tracker, until)
        if lane is None:
            return None
        try:
            if lane.own_first and program != self._shell:
                return None
            outcome = lane.run(
                command,
                folder=command.cwd or self._workdir,
                until=until,
                stdout=stdout,
                stderr=stderr,
            )
        except EngineFailure as error:
            self._runner.expect_container_stays()  # its end can show in a shell's end first
            if isinstance(error, ContainerGone):  # it is there, paused for one
                raise EngineFailure(error.message) from error
            raise
        finally:
            self._give_back(user, lane)
        if outcome is not None and outcome.sandbox_killed:
            self._api.kill(self._container)
        if outcome is not None and outcome.exit_code == KILLED:
            self._runner.expect_container_stays()
        return outcome

    def close(self) -> None:
        """Let all shells end that run nothing; none is started any more."""
        with self._lock:
            self._closed = True
            lanes = [lane for idle in self._idle.values() for lane in idle]
            self._idle.clear()
        for lane in lanes:
            lane.close()

    def _take(
        self, user: str, program: Program | None, tracker: Tracker, until: float
    ) -> Lane | None:
        """Give an idle shell of ``user``, or a new one."""
        with self._lock:
            known = self._programs is not None and self._programs.knows(program)
            if not known or self._closed or user in self._unfit:
                return None
            idle = self._idle.get(user, [])
            while idle:
                lane = idle.pop()
                if lane.is_alive():
                    return lane
                lane.end()
                self._count -= 1
            if self._count >= MOST_LANES:
                return None
            self._count += 1
        return self._open(user, tracker, until)

    def _open(self, user: str, tracker: Tracker, until: float) -> Lane | None:
        """Start a shell, which was counted already; one that is not fit is not tried again."""
        assert isinstance(tracker, CgroupTracker)
        fit, lane = True, None
        try:
            with suppress(EngineFailure):  # the command's own exec meets it too, and explains it
                lane = Lane.open(
                    self._api, self._container, user=user, track=tracker.track(user), until=until
                )
                fit = lane is not None or time.monotonic() >= until
            if lane is not None and not (carries(lane.env) and lane.env.get("PATH") == self._path):
                lane.close()
                fit, lane = False, None
            return lane
        finally:
            with self._lock:
                self._count -= lane is None
                if not fit:
                    self._unfit.add(user)

    def _give_back(self, user: str, lane: Lane) -> None:
        with self._lock:
            if lane.usable and not self._closed:
                self._idle.setdefault(user, []).append(lane)
                return
            self._count -= 1
        lane.close()
