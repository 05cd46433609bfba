"""When an engine is used, started, installed or refused; no engine is needed for it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sandbox.engine.apt import Apt
from sandbox.engine.client import Engine, EngineInfo
from sandbox.engine.host import Daemon, chosen_engine, ensure_engine, running
from sandbox.engine.hostcommands import Completed
from sandbox.errors import ExitCode, PrerequisiteMissing

INFO = EngineInfo(
    host="unix:///var/run/docker.sock",
    version="20.10.24",
    api_version="1.41",
    product="docker",
    architecture="x86_64",
    kernel="6.1",
    cgroup_version=2,
    cgroup_driver="systemd",
    storage_driver="overlay2",
    root_dir="/var/lib/docker",
    is_local=True,
    can_enter_namespaces=True,
)


@dataclass
class Machine:
    """A host that only remembers what it was asked, and the engine on it."""

    root: bool = True
    systemd: bool = False
    programs: set[str] = field(default_factory=lambda: {"dockerd", "apt-get"})
    answers_after: int | None = 0
    dies: bool = False
    why: type[OSError] = ConnectionRefusedError
    fails: dict[str, Completed] = field(default_factory=dict)
    ran: list[tuple[str, ...]] = field(default_factory=list)
    asked: int = 0
    said: list[str] = field(default_factory=list)

    # HostCommands

    def is_root(self) -> bool:
        return self.root

    def has_service_manager(self) -> bool:
        return self.systemd

    def which(self, name: str) -> str | None:
        return f"/usr/bin/{name}" if name in self.programs else None

    def run(
        self, argv: Sequence[str], *, deadline_s: float, env: Mapping[str, str] | None = None
    ) -> Completed:
        self.ran.append(tuple(argv))
        if argv[0] == "apt-get" and "install" in argv:
            self.programs.add("dockerd")
        return self.fails.get(argv[0], Completed(exit_code=0, output=""))

    def spawn(self, argv: Sequence[str], *, log: Path) -> int:
        self.ran.append(tuple(argv))
        log.write_text("level=info msg=starting\nlevel=fatal msg=broken\n")
        return 4242

    def has_ended(self, pid: int) -> bool:
        return self.dies

    # the engine

    def connect(self, host: str | None) -> Engine:
        self.asked += 1
        if self.answers_after is None or self.asked <= self.answers_after:
            raise PrerequisiteMissing("no Docker engine answers") from self.why()
        return Engine(None, INFO)

    # Progress

    def say(self, line: str) -> None:
        self.said.append(line)

    def step(self, label: str) -> AbstractContextManager[Any]:
        self.said.append(label)
        return nullcontext()


@pytest.fixture
def ensure(tmp_path: Path) -> Callable[..., Engine]:
    def call(machine: Machine, **environ: str) -> Engine:
        lists = tmp_path / "lists"
        lists.mkdir()
        return ensure_engine(
            machine,
            daemon=Daemon(
                pidfile=tmp_path / "docker.pid",
                containerd_pidfile=tmp_path / "containerd.pid",
                state=tmp_path / "state",
            ),
            commands=machine,
            apt=Apt(machine, lists=lists, journal=tmp_path / "updates"),
            connect=machine.connect,
            environ=environ,
            deadline_s=0.3,
        )

    return call


def test_an_answering_engine_is_used_in_silence(ensure: Callable[..., Engine]) -> None:
    machine = Machine()
    assert ensure(machine).info == INFO
    assert (machine.ran, machine.said, machine.asked) == ([], [], 1)


def test_an_installed_engine_is_only_started(ensure: Callable[..., Engine]) -> None:
    machine = Machine(answers_after=3)
    ensure(machine)
    assert machine.ran == [("dockerd",)]
    assert machine.said[-1].startswith("Docker engine 20.10.24: started as process 4242")


def test_a_missing_engine_is_installed_then_started(ensure: Callable[..., Engine]) -> None:
    machine = Machine(answers_after=3, programs={"apt-get"})
    ensure(machine)
    assert [(argv[0], *argv[-3:]) for argv in machine.ran[:2]] == [
        ("apt-get", "apt-get", "-oAcquire::Retries=3", "update"),
        ("apt-get", "install", "docker.io", "iptables"),
    ]
    assert machine.ran[2] == ("dockerd",)
    assert "installed (docker.io, iptables) and started" in machine.said[-1]


def test_somebody_else_may_win_the_race_for_the_lock(ensure: Callable[..., Engine]) -> None:
    machine = Machine(answers_after=1)
    ensure(machine)
    assert (machine.ran, machine.said) == ([], [])


def test_systemd_starts_its_own_service(ensure: Callable[..., Engine]) -> None:
    machine = Machine(answers_after=3, systemd=True)
    ensure(machine)
    assert machine.ran == [("systemctl", "start", "docker")]
    assert machine.said[-1] == "Docker engine 20.10.24: started as the service docker"


def test_a_service_that_does_not_start_says_why(ensure: Callable[..., Engine]) -> None:
    failed = Completed(exit_code=1, output="Unit docker.service is masked.\n")
    machine = Machine(answers_after=None, systemd=True, fails={"systemctl": failed})
    with pytest.raises(PrerequisiteMissing, match="is masked") as caught:
        ensure(machine)
    assert "journalctl -u docker" in (caught.value.cure or "")


@pytest.mark.parametrize("variable", ["DOCKER_HOST", "DOCKER_CONTEXT"])
def test_a_chosen_engine_is_never_replaced(ensure: Callable[..., Engine], variable: str) -> None:
    machine = Machine(answers_after=None)
    with pytest.raises(PrerequisiteMissing, match=f"chosen by {variable}") as caught:
        ensure(machine, **{variable: "tcp://127.0.0.1:1"})
    assert machine.ran == []
    assert variable in (caught.value.cure or "")
    assert caught.value.exit_code == ExitCode.PREREQUISITE


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        pytest.param(Machine(root=False), "only root", id="not root"),
        pytest.param(Machine(programs=set()), "no apt-get", id="no apt"),
        pytest.param(Machine(root=False, why=PermissionError), "no Docker engine", id="no right"),
    ],
)
def test_without_the_means_the_cure_has_the_commands(
    ensure: Callable[..., Engine], machine: Machine, words: str
) -> None:
    machine.answers_after = None
    with pytest.raises(PrerequisiteMissing, match=words) as caught:
        ensure(machine)
    wanted = "usermod -aG docker" if machine.why is PermissionError else "apt-get install docker.io"
    assert wanted in (caught.value.cure or "")
    assert machine.ran == []


@pytest.mark.parametrize("dies", [True, False])
def test_an_engine_that_never_answers_shows_its_log(
    ensure: Callable[..., Engine], dies: bool
) -> None:
    with pytest.raises(PrerequisiteMissing) as caught:
        ensure(Machine(answers_after=None, dies=dies))
    message = caught.value.message
    assert "last answer: no Docker engine answers" in message
    assert "  | level=fatal msg=broken" in message
    assert ("it has ended" in message) == dies
    assert ("still running as process 4242" in message) != dies


def test_an_engine_that_somebody_starts_just_now_is_waited_for(
    ensure: Callable[..., Engine], tmp_path: Path, sleeper: Callable[[str], int]
) -> None:
    pid = sleeper("dockerd")
    (tmp_path / "docker.pid").write_text(str(pid))
    machine = Machine(answers_after=4)
    ensure(machine)
    assert machine.ran == []
    assert f"started by somebody else as process {pid}" in machine.said[-1]


@pytest.fixture
def sleeper(tmp_path: Path) -> Any:
    made: list[subprocess.Popen[bytes]] = []

    def start(name: str) -> int:
        program = tmp_path / name
        program.symlink_to("/bin/sleep")
        made.append(subprocess.Popen([program, "60"]))
        comm = Path(f"/proc/{made[-1].pid}/comm")
        while comm.read_text() != f"{name}\n":  # the kernel sets it a little after exec
            time.sleep(0.001)
        return made[-1].pid

    yield start
    for process in made:
        process.kill()
        process.wait()


def test_pid_files(tmp_path: Path, sleeper: Callable[[str], int]) -> None:
    pidfile = tmp_path / "pid"
    assert running(pidfile, "dockerd") is None
    pid = sleeper("dockerd")
    pidfile.write_text(f"{pid}\n")
    assert running(pidfile, "dockerd") == pid
    assert running(pidfile, "containerd") is None
    assert not pidfile.exists()


@pytest.mark.parametrize(
    "content",
    ["", "x", "0", str(2**22 + 5), str(os.getpid())],
    ids=["empty", "no number", "zero", "no process", "another program"],
)
def test_stale_pid_files_go(tmp_path: Path, content: str) -> None:
    pidfile = tmp_path / "pid"
    pidfile.write_text(content)
    assert running(pidfile, "dockerd") is None
    assert not pidfile.exists()


def test_a_zombie_is_not_running(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    try:
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        pidfile = tmp_path / "pid"
        pidfile.write_text(str(child))
        name = Path(f"/proc/{child}/comm").read_text().strip()
        assert running(pidfile, name) is None
    finally:
        os.waitpid(child, 0)


@pytest.mark.parametrize(
    ("environ", "context", "way"),
    [
        pytest.param({"DOCKER_HOST": ""}, "default", None, id="nothing"),
        pytest.param({"DOCKER_HOST": "x"}, "default", "DOCKER_HOST", id="host"),
        pytest.param({"DOCKER_CONTEXT": "x"}, "default", "DOCKER_CONTEXT", id="variable"),
        pytest.param({}, "lab", "the docker context lab", id="context"),
    ],
)
def test_what_an_engine_is_chosen_by(
    environ: dict[str, str], context: str, way: str | None
) -> None:
    chosen = chosen_engine(environ, context=lambda: context)
    assert (None if chosen is None else chosen[0]) == way
