"""Runs commands for a sandbox: a task's own, and the room's scripts and tools beside them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import docker.errors

from sandbox.engine.channel import Channel
from sandbox.engine.command import Command, ExecResult
from sandbox.engine.inside import Inside
from sandbox.engine.output import BoundedOutput, Sink, Stream
from sandbox.engine.runner import Outcome, Runner
from sandbox.engine.scan import HELPER_TAG, RunScript
from sandbox.engine.scripts import sh
from sandbox.engine.tracker import Tracker
from sandbox.errors import EngineFailure, NotFound, Unsupported, UsageError

HELPER_DEADLINE_S = 60.0
TOOL_DEADLINE_S = 900.0
HELPER_CAP = 4 << 20


class Executor:
    """Runs commands in one container; threads may share it.

    ``look_inside`` is asked once, at the first command, how the container can be looked into.
    ``channel`` is tried before an exec of the engine; None to do without.
    """

    def __init__(
        self,
        runner: Runner,
        look_inside: Callable[[RunScript], Inside],
        *,
        workdir: str,
        channel: Channel | None,
    ) -> None:
        self._runner = runner
        self._channel = channel
        self._workdir = workdir
        self._look_inside = look_inside
        self._inside: Inside | None = None
        self._lock = threading.Lock()

    @property
    def inside(self) -> Inside:
        """Give the means to look into the container."""
        with self._lock:
            if self._inside is None:
                self._inside = self._look_inside(self.script)
            return self._inside

    def expect_container(self) -> int:
        """Give the host pid of the container's init; ContainerGone when it is not running."""
        return self._runner.expect_container()

    def expect_container_stays(self) -> None:
        """Raise what ``expect_container`` does, also when the container is about to end."""
        self._runner.expect_container_stays()

    def close(self) -> None:
        """Let go of the container."""
        if self._channel is not None:
            self._channel.close()

    def exec(self, command: Command, cap_bytes: int, *, apart: bool = False) -> ExecResult:
        """Run a task's command; see ``Sandbox.exec``."""
        if cap_bytes < 0:
            raise UsageError(f"cannot keep {cap_bytes} bytes of output")
        began = time.monotonic()
        inside = self.inside
        kills = inside.observer.use().oom_kills
        out, err = BoundedOutput(cap_bytes), BoundedOutput(cap_bytes)
        try:
            outcome = self._run(
                command,
                inside.tracker,
                until=began + command.deadline_s,
                stdout=out.write,
                stderr=err.write,
                apart=apart,
            )
        except EngineFailure as error:
            if isinstance(error.__cause__, docker.errors.APIError):
                self._explain_user(command)  # Podman answers no exec for a user that is missing
            raise
        if not outcome.started and outcome.exit_code is not None:
            self._explain(command, out.stream())
        kills_after = None if outcome.sandbox_killed else inside.observer.use().oom_kills
        return ExecResult(
            exit_code=outcome.exit_code,
            stdout=out.stream(),
            stderr=err.stream(),
            timed_out=outcome.timed_out,
            cancelled=outcome.cancelled,
            oom_killed=(kills_after or 0) > (kills or 0),
            sandbox_killed=outcome.sandbox_killed,
            duration_s=time.monotonic() - began,
        )

    def script(
        self,
        name: str,
        *arguments: str,
        user: str | None,
        cwd: str | None = "/",
        env: Mapping[str, str] | None = None,
    ) -> str:
        """Run one of the room's scripts and give what it printed.

        Raises:
            EngineFailure: it ended otherwise than with 0, or not in time.
        """
        command = Command(
            argv=sh(name, arguments),
            deadline_s=HELPER_DEADLINE_S,
            cwd=cwd,
            env={**HELPER_TAG, **(env or {})},
            user=user,
        )
        out = BoundedOutput(HELPER_CAP)
        self._run_helper(command, f"script {name}", out.write)
        stream = out.stream()
        if stream.truncated:
            raise EngineFailure(f"script {name} printed {stream.total} bytes")
        return stream.data.decode(errors="replace")

    def tool(
        self,
        argv: Sequence[str],
        *,
        stdin: Iterable[bytes] | None = None,
        stdout: Callable[[memoryview], object] | None = None,
    ) -> None:
        """Run a tool of the image as the sandbox's user.

        Raises:
            Unsupported: the image has no such tool.
            EngineFailure: it ended otherwise than with 0, or not in time.
        """
        command = Command(
            argv=argv, deadline_s=TOOL_DEADLINE_S, cwd="/", env=HELPER_TAG, stdin=stdin
        )
        try:
            self._run_helper(command, argv[0], stdout or _drop)
        except NotFound as error:
            raise Unsupported(
                f"the image has no {argv[0]}, which is needed for a file system in memory",
                cure=f"install {argv[0]} in the image, or use a path outside of its tmpfs mounts",
            ) from error

    def _run_helper(
        self, command: Command, what: str, stdout: Callable[[memoryview], object]
    ) -> None:
        begin, err = BoundedOutput(4096), BoundedOutput(4096)

        def keep(data: memoryview) -> None:
            begin.write(data)
            stdout(data)

        outcome = self._run(
            command,
            self.inside.helper_tracker,
            until=time.monotonic() + command.deadline_s,
            stdout=keep,
            stderr=err.write,
        )
        if not outcome.started:
            self._explain(command, begin.stream())
        if outcome.exit_code != 0:
            raise EngineFailure(f"{what} in the sandbox {_how(outcome, err, begin)}")

    def _run(
        self,
        command: Command,
        tracker: Tracker,
        *,
        until: float,
        stdout: Sink,
        stderr: Sink,
        apart: bool = False,
    ) -> Outcome:
        """Run a command through the kept channel if it can be, else by an exec of the engine."""
        channel, program = self._channel, None
        if channel is not None and not apart and not _is_cancelled(command):
            program = channel.program(command, self.inside)
            outcome = channel.run(
                command, program, tracker, until=until, stdout=stdout, stderr=stderr
            )
            if outcome is not None:
                return outcome
        outcome = self._runner.run(command, tracker, until=until, stdout=stdout, stderr=stderr)
        if channel is not None and outcome.started and outcome.exit_code is not None:
            channel.learn(program)
        return outcome

    def _explain(self, command: Command, said: Stream) -> None:
        """Raise NotFound when the runtime refused a command for something that is not there.

        What the runtime says is words, and commands can say the same: the sandbox is asked
        whether user, folder and file are there. Returns when they are (a file without
        permission to run, of another platform, or without its interpreter).
        """
        self._runner.expect_container_stays()
        if command.argv[:1] == ["/bin/sh"] and HELPER_TAG.items() <= command.env.items():
            raise Unsupported(
                f"the image has no /bin/sh to look around with: {said.text.strip()}",
                cure="use an image with a POSIX sh",
            )
        self._explain_user(command)
        folder = command.cwd or self._workdir
        path = {"PATH": command.env["PATH"]} if "PATH" in command.env else {}
        word = command.argv[0]
        missing = self.script("missing", "file", folder, word, user=command.user, env=path).strip()
        if missing == "folder":
            raise NotFound(f"there is no folder {folder!r} in the sandbox: cannot run {command}")
        if missing:
            raise NotFound(f"there is no command {word!r} in the sandbox")

    def _explain_user(self, command: Command) -> None:
        """Raise NotFound when the image has no such user or group as the command names."""
        user = command.user or ""
        missing = self.script("missing", "user", user, user="0").strip() if user else ""
        if missing:
            raise NotFound(f"there is no {missing} {user!r} in the image: cannot run {command}")


def _is_cancelled(command: Command) -> bool:
    return command.cancel is not None and command.cancel.is_set()


def _drop(data: memoryview) -> None:
    """Take output that nobody wants."""


def _how(outcome: Outcome, err: BoundedOutput, out: BoundedOutput) -> str:
    said = (err.stream().text or out.stream().text).strip()
    if outcome.timed_out:
        return f"did not end in time: {said}"
    return f"failed with exit code {outcome.exit_code}: {said}"
