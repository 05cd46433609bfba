"""Runs commands in a container: launch, deadline, cancellation, end of the process tree."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

import docker.errors

from sandbox.engine.command import Command
from sandbox.engine.failure import FOREIGN, engine_errors
from sandbox.engine.output import Demultiplexer, Sink
from sandbox.engine.pump import HELD_S, ON_ITS_WAY_S, Ending, Pump
from sandbox.engine.stream import start_exec
from sandbox.engine.tracker import ExecState, Track, Tracker
from sandbox.errors import ContainerGone, EngineFailure, SandboxError, Unsupported

LAUNCH_GRACE_S = 10.0  # what is not there yet at the deadline cannot be ended; normal: 0.05
ABANDON_S = 1.0
DRAIN_S = 3.0
KILLED = 137
SECOND_LOOKS_S = (0.0, 0.05, 0.1)
END_S = 10.0  # between the end of a container's init and the engine's word for it; normal: 0.05
END_POLL_S = 0.05
START_REFUSED = (125, 126, 127)  # Podman says 125 for a folder that is none
KEEPER_REFUSED = (126, 127)  # init's own code when it cannot run the keeper, which never gives it


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one run of a command ended; ``started`` is False when the runtime refused it."""

    exit_code: int | None
    started: bool = True
    timed_out: bool = False
    cancelled: bool = False
    sandbox_killed: bool = False


def exec_state(api: Any, exec_id: str) -> ExecState:
    """Ask the engine how an exec is; raises what the SDK raises."""
    said: dict[str, Any] = api.exec_inspect(exec_id)
    return ExecState(
        running=bool(said["Running"]),
        exit_code=said.get("ExitCode"),
        pid=int(said.get("Pid") or 0),
    )


def silence_of(ask: Callable[[], ExecState], track: Track) -> float | None:
    """Say how long the output of a command must be silent to be complete; None while it runs.

    An engine says that a command has ended before it has passed all of its output on.
    """
    if ask().running:
        return None
    return HELD_S if track.may_live() else ON_ITS_WAY_S


class Runner:
    """Runs commands in one container; threads may share it.

    Args:
        api: the engine's.
        container: its id.
        user: whom commands run as that name nobody.
        ending: tells of a host's pid whether the kernel ends that process; only where the
            engine's processes are this machine's.
    """

    def __init__(
        self,
        api: Any,
        container: str,
        *,
        user: str,
        ending: Callable[[int], bool] = lambda pid: False,  # noqa: ARG005 - nobody can tell
    ) -> None:
        self._api = api
        self._container = container
        self._user = user
        self._ending = ending

    def run(
        self, command: Command, tracker: Tracker, *, until: float, stdout: Sink, stderr: Sink
    ) -> Outcome:
        """Run ``command`` until monotonic time ``until``; its output goes to the sinks.

        Raises:
            ContainerGone: the container is not running, or ended while the command ran.
            EngineFailure: the engine failed or went away; what runs is ended if it can be.
        """
        if command.cancel is not None and command.cancel.is_set():
            return Outcome(exit_code=None, started=False, cancelled=True)
        track = tracker.track(command.user)
        try:
            if not track.prepare(until):
                return Outcome(exit_code=None, started=False, timed_out=True)
            with engine_errors(f"run {command}", missing=ContainerGone):
                return self._run(command, track, until, Demultiplexer(stdout=stdout, stderr=stderr))
        except EngineFailure as error:
            self.expect_container_stays()  # the engine has many words for one that is gone
            if isinstance(error, ContainerGone):  # it is there, paused for one
                raise EngineFailure(error.message) from error
            raise
        finally:
            track.release()

    def _run(self, command: Command, track: Track, until: float, output: Demultiplexer) -> Outcome:
        exec_id = self._create(command, track)

        def ask() -> ExecState:
            return exec_state(self._api, exec_id)

        try:
            with closing(start_exec(self._api, exec_id)) as connection:
                track.claim(ask, until + LAUNCH_GRACE_S)
                pump = Pump(connection, output, command.stdin)
                ending = pump.run(
                    until, cancel=command.cancel, ended=lambda: silence_of(ask, track)
                )
                if ending is Ending.FINISHED:
                    ending, state = self._wait(exec_id, command, until)
                if ending is Ending.FINISHED:
                    return self._finished(state, output)
                return self._end(track, pump, ending)
        except BaseException:
            with suppress(SandboxError, *FOREIGN):  # what is under way matters more
                track.claim(ask, time.monotonic() + ABANDON_S)
                self._end_tree(track)
            raise

    def _create(self, command: Command, track: Track) -> str:
        environment = {**command.env, **track.env}
        created = self._api.exec_create(
            self._container,
            list(command.argv),
            stdin=command.stdin is not None,
            environment=[f"{name}={value}" for name, value in environment.items()],
            user=self._user if command.user is None else command.user,
            workdir=command.cwd,
        )
        return str(created["Id"])

    def _wait(self, exec_id: str, command: Command, until: float) -> tuple[Ending, ExecState]:
        """Wait for the exit code: it comes a little after the output's end, or much later."""
        pause, next_look = 0.001, time.monotonic() + 0.5
        while True:
            state = exec_state(self._api, exec_id)
            now = time.monotonic()
            if not state.running and state.exit_code is not None:
                return Ending.FINISHED, state
            if command.cancel is not None and command.cancel.is_set():
                return Ending.CANCELLED, state
            if now >= until:
                return Ending.TIMED_OUT, state
            if now >= next_look:
                self.expect_container()
                next_look = now + 1.0
            time.sleep(min(pause, until - now))
            pause = min(pause * 2, 0.05)

    def _finished(self, state: ExecState, output: Demultiplexer) -> Outcome:
        if not output.finished():
            raise EngineFailure("the engine cut the output in the middle")
        if state.exit_code == KILLED:
            self.expect_container_stays()
        refused = state.pid == 0 and state.exit_code in START_REFUSED
        return Outcome(exit_code=state.exit_code, started=not refused)

    def _end(self, track: Track, pump: Pump, ending: Ending) -> Outcome:
        """End the process tree and take the last output."""
        alone = self._end_tree(track)
        pump.drain(DRAIN_S)
        return Outcome(
            exit_code=None,
            timed_out=ending is Ending.TIMED_OUT,
            cancelled=ending is Ending.CANCELLED,
            sandbox_killed=not alone,
        )

    def _end_tree(self, track: Track) -> bool:
        """End the process tree; False when the whole container had to end with it."""
        if track.kill():
            return True
        self._api.kill(self._container)
        return False

    def expect_container_stays(self) -> None:
        """Raise ContainerGone unless the container is running, and not about to end.

        For when something was killed or refused: that can be told before the container's end.
        """
        until = time.monotonic() + END_S
        for pause in SECOND_LOOKS_S:
            time.sleep(pause)
            init = self.expect_container()
        while self._ending(init) and time.monotonic() < until:
            time.sleep(END_POLL_S)
            init = self.expect_container()  # the engine has yet to hear of it

    def _state(self) -> dict[str, Any]:
        """Ask how the container is; twice, since Podman can fail at one that it is removing."""
        try:
            said = self._api.inspect_container(self._container)
        except docker.errors.APIError as error:
            if not error.is_server_error():
                raise
            said = self._api.inspect_container(self._container)
        state: dict[str, Any] = said["State"]
        return state

    def expect_container(self) -> int:
        """Give the host pid of the container's init.

        Raises:
            ContainerGone: the container is not running.
            Unsupported: the container ended since its image has no sh to keep it.
        """
        name = self._container[:12]
        with engine_errors(f"use container {name}", missing=ContainerGone):
            state = self._state()
        if state["Running"]:
            return int(state["Pid"])
        if state["ExitCode"] in KEEPER_REFUSED:
            raise Unsupported(
                "the image has no /bin/sh that runs here",
                cure="use an image of this platform with a POSIX sh",
            )
        raise ContainerGone(
            f"container {name} has ended with exit code {state['ExitCode']}"
            f" at {state['FinishedAt']}",
            cure="start another sandbox; what ended it: docker events --since 10m",
        )
