"""One kept shell in a sandbox: an exec of the engine that runs one command after another.

The shell and all that it starts are born in one control group. So which processes are a command's
needs no finding out: all members but the shell. A shell is used again only when it is alone there.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from sandbox.engine.command import Command
from sandbox.engine.failure import FOREIGN, engine_errors
from sandbox.engine.framing import Reply, request
from sandbox.engine.output import Demultiplexer, Sink
from sandbox.engine.owner import is_ending
from sandbox.engine.processes import KEPT_SHELL
from sandbox.engine.pump import HELD_S, Ending, Pump
from sandbox.engine.runner import Outcome, exec_state
from sandbox.engine.scripts import script
from sandbox.engine.stream import Connection, start_exec
from sandbox.engine.tracker import CgroupTrack, ExecState
from sandbox.errors import CommandLost, ContainerGone, EngineFailure

OPEN_S = 10.0
DRAIN_S = 3.0
READY = b"ready\n"
READY_OWN_FIRST = b"ready, own tools first\n"
_CMDLINE = "".join(f"{word}\0" for word in KEPT_SHELL).encode()
ENDING_LOOKS_S = (0.001, 0.01, 0.1, 0.0)
# What a pipe's end lets end takes a moment.
ALONE_LOOKS_S = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.0)


class Lane:
    """One kept shell; one command at a time.

    Attributes:
        env: the environment that the engine gives to commands of this user.
        usable: whether another command may be run here.
        own_first: the shell runs tools that it has itself, whatever is in PATH.
    """

    def __init__(self, connection: Connection, track: CgroupTrack) -> None:
        self._connection = connection
        self._track = track
        self._sinks: tuple[Sink, Sink] = (_drop, _drop)
        self._output = Demultiplexer(stdout=self._take_out, stderr=self._take_err)
        self._pid = 0
        self.env: dict[str, str] = {}
        self.usable = False
        self.own_first = False

    def _take_out(self, data: memoryview) -> None:
        self._sinks[0](data)

    def _take_err(self, data: memoryview) -> None:
        self._sinks[1](data)

    @classmethod
    def open(
        cls, api: Any, container: str, *, user: str, track: CgroupTrack, until: float
    ) -> Self | None:
        """Start a shell as ``user``; None when there is none that can be used, or not in time.

        Raises:
            EngineFailure: the engine failed.
        """
        until = min(until, time.monotonic() + OPEN_S)
        lane: Self | None = None
        try:
            if track.prepare(until):
                with engine_errors("start a kept shell", missing=ContainerGone):
                    exec_id = _create(api, container, user)
                    lane = cls(start_exec(api, exec_id), track)
                    lane._greet(lambda: exec_state(api, exec_id), until)
        finally:
            if lane is not None and not lane.usable:
                lane.end()
            elif lane is None:
                track.release()
        return lane if lane is not None and lane.usable else None

    def _greet(self, ask: Callable[[], ExecState], until: float) -> None:
        """Follow the launch, and wait until the shell says that it is ready."""
        states: list[ExecState] = []

        def asked() -> ExecState:
            states.append(ask())
            return states[-1]

        self._track.claim(asked, until, is_it=_is_kept_shell)
        said = bytearray()
        self._sinks = (said.extend, _drop)
        prologue = script("channel").encode()
        pump = self._pump(prologue, lambda: said.endswith(b"\n"))
        pump.run(until)
        self._pid = states[-1].pid
        self.own_first = said == READY_OWN_FIRST
        if not (said == READY or self.own_first) or self._track.members() != [self._pid]:
            return
        with suppress(OSError):
            variables = Path(f"/proc/{self._pid}/environ").read_bytes().split(b"\0")
            pairs = (
                one.decode(errors="surrogateescape").partition("=") for one in variables if one
            )
            self.env = {name: value for name, _, value in pairs}
            self.usable = True

    def run(
        self, command: Command, *, folder: str, until: float, stdout: Sink, stderr: Sink
    ) -> Outcome | None:
        """Run a command until monotonic time ``until``; its output goes to the sinks.

        Returns:
            How it ended; None when it has not begun and never will.

        Raises:
            CommandLost: the shell was lost after the command may have begun; what ran of it was
                ended.
            EngineFailure: the connection was lost, and the same holds.
        """
        ident = secrets.token_hex(16)
        reply = Reply(ident, stdout=stdout, stderr=stderr)
        self._sinks = (reply.out, reply.err)
        self.usable = False
        text = request(ident, command.argv, folder=folder, env=command.env)
        try:
            with engine_errors(f"run {command}", missing=ContainerGone):
                ending = self._pump(text, reply.complete).run(
                    until, cancel=command.cancel, ended=lambda: None if self.is_alive() else HELD_S
                )
                return self._outcome(command, reply, ending, until)
        except BaseException:
            self.end()
            raise

    def is_alive(self) -> bool:
        """Tell whether the shell still runs."""
        return self._pid in self._track.members()

    def end(self) -> bool:
        """Kill the shell with all that it runs; False when something is left."""
        killed = self._track.kill()
        self.close()
        return killed

    def close(self) -> None:
        """Let the shell end by itself; what commands left behind runs on."""
        self.usable = False
        self._connection.close()
        self._track.release()

    def _outcome(
        self, command: Command, reply: Reply, ending: Ending, until: float
    ) -> Outcome | None:
        if ending is Ending.FINISHED and reply.complete():
            if self._is_alone():
                self.usable = True
            elif not reply.refused:
                ending = self._take_late_output(command.cancel, until)
            if ending is Ending.FINISHED:
                if not self.usable:
                    self.close()
                return None if reply.refused else Outcome(exit_code=reply.status)
        if ending is Ending.FINISHED:
            certain = self._has_ended()
            self._kill_and_drain(reply)
            if not certain:
                raise EngineFailure(f"the engine ended the answer while {command} ran")
            if not reply.began:
                return None
            raise CommandLost(
                f"the kept shell that ran {command} has ended: nobody knows how the command did",
                cure="a command that ends other processes of its user is to be run apart",
            )
        return self._stopped(reply, ending)

    def _stopped(self, reply: Reply, ending: Ending) -> Outcome:
        """End the command with the shell, and take the last output."""
        return Outcome(
            exit_code=None,
            sandbox_killed=not self._kill_and_drain(reply),
            timed_out=ending is Ending.TIMED_OUT,
            cancelled=ending is Ending.CANCELLED,
        )

    def _kill_and_drain(self, reply: Reply) -> bool:
        killed = self._track.kill()
        with suppress(EngineFailure, *FOREIGN):
            Pump(self._connection, self._output, None).drain(DRAIN_S)
        reply.flush()
        self.close()
        return killed

    def _has_ended(self) -> bool:
        """Tell whether it is the shell that ended an answer: its last byte can come before that."""
        for pause in ENDING_LOOKS_S:
            if not self.is_alive() or is_ending(self._pid):
                return True
            time.sleep(pause)
        return False

    def _is_alone(self) -> bool:
        for pause in ALONE_LOOKS_S:
            if self._track.members() == [self._pid]:
                return True
            time.sleep(pause)
        return False

    def _take_late_output(self, cancel: threading.Event | None, until: float) -> Ending:
        """Take what processes in the background still write, as long as the engine's exec would."""
        self._connection.close_write()
        late = Pump(self._connection, self._output, None)
        return late.run(until, cancel=cancel, ended=lambda: HELD_S)

    def _pump(self, text: bytes, complete: Callable[[], bool]) -> Pump:
        return Pump(
            self._connection, self._output, iter((text,)), stays_open=True, complete=complete
        )


def _is_kept_shell(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().endswith(_CMDLINE)  # below an emulator
    return False


def _create(api: Any, container: str, user: str) -> str:
    created = api.exec_create(container, list(KEPT_SHELL), stdin=True, user=user, workdir="/")
    return str(created["Id"])


def _drop(data: memoryview) -> None:
    """Take output that nobody wants."""
