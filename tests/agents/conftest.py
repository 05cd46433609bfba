"""Fixtures: a sandbox for each image and user, and the supervisor under each shell it meets."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from sandbox.agents.supervisor import Command, Supervisor
from sandbox.engine.client import Engine
from sandbox.engine.images import ensure_image, image_definition
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.evidence.records import CleanupReceipt
from sandbox.progress import PlainProgress

PATH = "/usr/local/bin:/usr/bin:/bin"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/agents" in str(item.path):
            item.add_marker(pytest.mark.docker)


@dataclass(frozen=True)
class Setting:
    """An image, a user and a shell that the supervisor must work alike in."""

    image: str
    user: str
    shell: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.image}-{'-'.join(self.shell)}-{self.user.partition(':')[0]}"


ROOT, PLAIN = "0:0", "1000:1000"
SETTINGS = (
    Setting("debian-12", PLAIN, ("dash",)),
    Setting("debian-12", ROOT, ("bash",)),
    Setting("alpine-3.23", ROOT, ("sh",)),
    Setting("alpine-3.23", PLAIN, ("busybox", "ash")),
)


@pytest.fixture(scope="session")
def make(engine: Engine) -> Callable[..., Sandbox]:
    """Give a maker of sandboxes that are not started yet, by the image's name."""
    owner = Ownership.current(run_id=f"agents-{uuid.uuid4().hex[:8]}", cell_id="agents")

    def made(image: str, **options: Any) -> Sandbox:
        found = ensure_image(engine, image_definition(image), PlainProgress(quiet=True))
        return Sandbox(engine, found.ref, owner=owner, **options)

    return made


@pytest.fixture(scope="session")
def boxes(make: Callable[..., Sandbox]) -> Iterator[Callable[[str, str], Sandbox]]:
    """Give the sandbox that all tests of one image and user share: leave it as you found it."""
    with ExitStack() as stack:
        started: dict[tuple[str, str], Sandbox] = {}

        def box(image: str, user: str) -> Sandbox:
            if (image, user) not in started:
                made = make(image, user=user, workdir="/workspace")
                started[image, user] = stack.enter_context(made)
            return started[image, user]

        yield box


@dataclass
class Bench:
    """A sandbox and a shell, with a fresh folder for each supervisor."""

    box: Sandbox
    shell: tuple[str, ...] = ("sh",)

    def supervisor(
        self, *, exclusive: bool = True, grace_s: float = 0.3, folder: str | None = None
    ) -> Supervisor:
        """Make a supervisor in a new folder, which it says as ``folder``."""
        self.folder = folder or f"/tmp/run-{uuid.uuid4().hex[:12]}"
        self.do("mkdir", "-p", "-m", "0700", self.folder)
        made = Supervisor(
            self.box,
            self.folder,
            exclusive=exclusive,
            grace_s=grace_s,
            margin_s=10,
            shell=self.shell,
        )
        made.install()
        return made

    def run(
        self,
        script: str,
        *args: str,
        deadline_s: float = 20,
        env: dict[str, str] | None = None,
        cwd: str = "/workspace",
        exclusive: bool = True,
        grace_s: float = 0.3,
    ) -> CleanupReceipt:
        """Supervise a shell script to its end."""
        made = self.supervisor(exclusive=exclusive, grace_s=grace_s)
        return made.run(self.command(script, *args, env=env, cwd=cwd), deadline_s=deadline_s)

    @staticmethod
    def command(
        script: str, *args: str, env: dict[str, str] | None = None, cwd: str = "/workspace"
    ) -> Command:
        """Give the command that runs a shell script."""
        return Command(
            argv=["sh", "-c", script, "sh", *args], env={"PATH": PATH, **(env or {})}, cwd=cwd
        )

    def do(self, *argv: str) -> str:
        """Run a command that must work."""
        done = self.box.exec(argv, deadline_s=30)
        assert done.exit_code == 0, done.stderr.text
        return done.stdout.text

    def kill(self, *pids: int, signal: str = "KILL") -> None:
        """Send a signal; images have no kill command but their shell's."""
        script = 'signal=$1; shift; for pid do kill -"$signal" "$pid"; done; true'
        self.do("sh", "-c", script, "sh", signal, *map(str, pids))

    def gone(self, *pids: int) -> None:
        """Kill processes and wait until they are gone."""
        self.kill(*pids)
        end = time.monotonic() + 60
        while {p.pid for p in self.box.processes()} & set(pids):
            assert time.monotonic() < end, "it lives on"
            time.sleep(0.02)

    def text(self, name: str) -> str:
        """Read a file of the last supervisor's folder."""
        return self.box.read(f"{self.folder}/{name}").decode()

    def running(self, words: str) -> list[int]:
        """Find the processes whose command line is ``words``."""
        return [p.pid for p in self.box.processes() if " ".join(p.argv) == words]


@pytest.fixture(params=SETTINGS, ids=str)
def bench(request: pytest.FixtureRequest, boxes: Callable[[str, str], Sandbox]) -> Iterator[Bench]:
    """Give each setting; a test that leaves a process running fails."""
    setting: Setting = request.param
    made = Bench(boxes(setting.image, setting.user), setting.shell)
    yield made
    left = made.box.processes()
    made.kill(*(process.pid for process in left))
    assert left == ()


@pytest.fixture(params=["debian-12", "alpine-3.23"])
def own_bench(request: pytest.FixtureRequest, make: Callable[..., Sandbox]) -> Iterator[Bench]:
    """Give a root sandbox of the test's own, that it may break."""
    with make(request.param, workdir="/workspace") as box:
        yield Bench(box)
