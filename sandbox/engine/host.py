"""Make sure that a Docker engine answers: use the one that does, else install and start one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from docker.context.config import get_current_context_name

from sandbox.cache import cache_root, locked
from sandbox.engine.apt import Apt
from sandbox.engine.client import Engine
from sandbox.engine.hostcommands import HostCommands, LocalCommands
from sandbox.engine.owner import start_ticks
from sandbox.errors import PrerequisiteMissing
from sandbox.progress import Progress

PACKAGES = ("docker.io", "iptables")
INSTALL_CURE = (
    f"as root on Debian or Ubuntu: apt-get update && apt-get install {' '.join(PACKAGES)}; "
    "elsewhere install Docker Engine; then start it: systemctl start docker, or dockerd"
)
GROUP_CURE = "sudo usermod -aG docker $USER and log in again, or run as root"
READY_DEADLINE_S = 60.0
_EARLY_END_S = 3.0
_PAUSE_S = 0.1
_CONTAINERD_DEADLINE_S = 5.0
_SERVICE_DEADLINE_S = 120.0
_LOG_LIMIT = 8 << 20
_TAIL_LINES = 20
_TAIL_OCTETS = 16_384


@dataclass(frozen=True, kw_only=True)
class Daemon:
    """The engine to start when none answers.

    Args:
        argv: the command; it stays in the foreground.
        host: where it will answer, as in DOCKER_HOST; None: wherever ``Engine.connect`` looks.
        pidfile: where it writes its pid; it refuses to start when a process has that pid.
        containerd_pidfile: the same for its containerd; it waits in vain when a process has it.
        service: the systemd unit that is started in its place where systemd runs the host.
        state: folder of its log, and of the lock that keeps two runs from starting two.
    """

    argv: tuple[str, ...] = ("dockerd",)
    host: str | None = None
    pidfile: Path = Path("/var/run/docker.pid")
    containerd_pidfile: Path = Path("/var/run/docker/containerd/containerd.pid")
    service: str | None = "docker"
    state: Path = field(default_factory=lambda: cache_root() / "engine")

    @property
    def log(self) -> Path:
        """Where both streams of ``argv`` go."""
        return self.state / "dockerd.log"


def ensure_engine(
    progress: Progress,
    *,
    daemon: Daemon | None = None,
    commands: HostCommands | None = None,
    apt: Apt | None = None,
    connect: Callable[[str | None], Engine] = Engine.connect,
    environ: Mapping[str, str] | None = None,
    deadline_s: float = READY_DEADLINE_S,
) -> Engine:
    """Return a connected engine; where none answers, start one and install it if need be.

    An engine that the user chose (DOCKER_HOST, a docker context) is never replaced by another.
    What is started survives this process: the next run finds it answering.

    Args:
        progress: gets one line that says what was done, if anything was.
        daemon: what to start.
        commands: how programs of the host are run.
        apt: how packages are installed.
        connect: how an engine is reached.
        environ: where the user's choice is read from; this process's environment by default.
        deadline_s: how long a started engine may take to answer.

    Raises:
        PrerequisiteMissing: there is no engine and none can be had; the cure says what to do.
    """
    daemon = daemon or Daemon()
    start = _Start(
        daemon=daemon,
        commands=commands or LocalCommands(),
        progress=progress,
        look=lambda: _look(connect, daemon.host),
        deadline_s=deadline_s,
    )
    found = start.look()
    if isinstance(found, Engine):
        return found
    chosen = None if daemon.host else chosen_engine(os.environ if environ is None else environ)
    if chosen is not None:
        way, undo = chosen
        raise PrerequisiteMissing(
            f"{found.message} (chosen by {way}, so no other engine is started)",
            cure=f"start that engine, or go back to the local one: {undo}",
        ) from found
    apt = apt or Apt(start.commands)
    start.refuse_or_not(found, apt)
    with locked(daemon.state / "start"):
        found = start.look()  # another run may have started one while we waited for the lock
        return found if isinstance(found, Engine) else start.run(apt)


def chosen_engine(
    environ: Mapping[str, str], *, context: Callable[[], str] = get_current_context_name
) -> tuple[str, str] | None:
    """Name what points at an engine that the user chose, and how to undo that; None: nothing."""
    for variable in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        if environ.get(variable):
            return variable, f"unset {variable}"
    name = context()
    return (
        None if name == "default" else (f"the docker context {name}", "docker context use default")
    )


def _look(
    connect: Callable[[str | None], Engine], host: str | None
) -> Engine | PrerequisiteMissing:
    try:
        return connect(host)
    except PrerequisiteMissing as error:
        return error


@dataclass(frozen=True, kw_only=True)
class _Start:
    """Installing and starting one engine."""

    daemon: Daemon
    commands: HostCommands
    progress: Progress
    look: Callable[[], Engine | PrerequisiteMissing]
    deadline_s: float

    @property
    def program(self) -> str:
        return self.daemon.argv[0]

    def refuse_or_not(self, found: PrerequisiteMissing, apt: Apt) -> None:
        """Raise what is missing when this process may not start an engine here."""
        if isinstance(found.__cause__, PermissionError):
            raise PrerequisiteMissing(found.message, cure=GROUP_CURE) from found
        if not self.commands.is_root():
            raise PrerequisiteMissing(
                f"{found.message}, and only root can start one", cure=INSTALL_CURE
            ) from found
        if self.commands.which(self.program) is None and not apt.usable():
            raise PrerequisiteMissing(
                f"{found.message}, {self.program} is not installed and there is no apt-get",
                cure=INSTALL_CURE,
            ) from found

    def run(self, apt: Apt) -> Engine:
        """Install and start the engine, and say so."""
        done = "started"
        if self.commands.which(self.program) is None:
            with self.progress.step(f"Installing the Docker engine ({', '.join(PACKAGES)})"):
                apt.install(PACKAGES)
            done = f"installed ({', '.join(PACKAGES)}) and started"
        with self.progress.step("Starting the Docker engine"):
            how, engine = self._start()
        self.progress.say(f"Docker engine {engine.info.version}: {done} {how}")
        return engine

    def _start(self) -> tuple[str, Engine]:
        """Start the engine; return how, for people, and the engine."""
        service = self.daemon.service
        if service is not None and self.commands.has_service_manager():
            self._start_service(service)
            return f"as the service {service}", self._await(None, 0)
        offset = _log_size(self.daemon.log)
        pid = running(self.daemon.pidfile, "dockerd")
        if pid is not None:  # somebody else's, which has not got so far yet
            return f"by somebody else as process {pid}", self._await(None, offset)
        self._await_end_of_killed_one()
        pid = self.commands.spawn(self.daemon.argv, log=self.daemon.log)
        engine = self._await(pid, offset)
        return f"as process {pid}, log {self.daemon.log}; it stays when this command ends", engine

    def _start_service(self, service: str) -> None:
        argv = ("systemctl", "start", service)
        done = self.commands.run(argv, deadline_s=_SERVICE_DEADLINE_S)
        if done.exit_code != 0:
            raise PrerequisiteMissing(
                f"the service {service} does not start: {done.output.strip()}",
                cure=f"look at: journalctl -u {service}",
            )

    def _await_end_of_killed_one(self) -> None:
        """Let the containerd of a killed engine go: the kernel kills it too, a little later.

        An engine that is started meanwhile relies on it and fails half a minute later. One that
        stays is taken over by the new engine.
        """
        ends = time.monotonic() + _CONTAINERD_DEADLINE_S
        while running(self.daemon.containerd_pidfile, "containerd") is not None:
            if time.monotonic() >= ends:
                return
            time.sleep(_PAUSE_S)

    def _await(self, pid: int | None, offset: int) -> Engine:
        """Wait until the engine answers; ``pid`` is the process we started, if we did."""
        began = time.monotonic()
        ends = began + self.deadline_s
        ended, asked = False, 0
        while True:
            found = self.look()
            asked += 1
            if isinstance(found, Engine):
                return found
            if pid is not None and not ended and self.commands.has_ended(pid):
                ended = True  # it may have lost against another one that is about to answer
                ends = min(ends, time.monotonic() + _EARLY_END_S)
            if time.monotonic() >= ends:
                break
            time.sleep(_PAUSE_S)
        waited = time.monotonic() - began
        state = "it has ended" if ended else f"still running as process {pid}"
        raise PrerequisiteMissing(
            f"the engine was started but did not answer within {waited:.0f} s, asked {asked} "
            f"times{'' if pid is None else f' ({state})'}; last answer: {found.message}"
            f"{_tail(self.daemon.log, offset)}",
            cure=f"look at {self.daemon.log}, or start an engine by hand and run again",
        ) from found


def running(pidfile: Path, name: str) -> int | None:
    """Return the pid in ``pidfile`` if program ``name`` has it; else None, and the file goes.

    The engine takes any process with that pid for its predecessor. After a kill or a restored
    disk the number may belong to another program, or to a zombie that nobody buries.
    """
    try:
        pid = int(pidfile.read_text())
        found = Path(f"/proc/{pid}/comm").read_text().strip()
    except (OSError, ValueError):
        pid, found = 0, ""
    if found == name and start_ticks(pid) is not None:
        return pid
    pidfile.unlink(missing_ok=True)
    return None


def _log_size(log: Path) -> int:
    """Return the size of ``log``; a large one of earlier engines is removed first."""
    size = log.stat().st_size if log.exists() else 0
    if size <= _LOG_LIMIT:
        return size
    log.unlink()
    return 0


def _tail(log: Path, offset: int) -> str:
    """Return the end of what was written to ``log`` after ``offset``, as lines to append."""
    try:
        with log.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(min(offset, size), size - _TAIL_OCTETS))
            text = stream.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return "".join(f"\n  | {line}" for line in text.splitlines()[-_TAIL_LINES:])
