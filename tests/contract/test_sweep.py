"""Sweeping a real engine after a run was killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import docker.errors
import pytest

from sandbox.engine.client import Engine
from sandbox.engine.images import ensure_image, image_definition
from sandbox.engine.sweep import SweepReport, sweep
from sandbox.progress import PlainProgress

pytestmark = pytest.mark.docker

# A run: it makes one of everything on a link's network, says so and waits.
RUN = """
import sys, time
from contextlib import ExitStack
from sandbox.engine.client import Engine
from sandbox.engine.link import open_link
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
image, run_id = sys.argv[1:]
owner = Ownership.current(run_id=run_id)
with ExitStack() as stack:
    engine = stack.enter_context(Engine.connect())
    link = stack.enter_context(open_link(engine, owner, isolation="bridge"))
    stack.enter_context(Sandbox(engine, image, owner=owner, link=link))
    volume = engine.sdk.volumes.create(name=run_id, labels=owner.labels())
    stack.callback(volume.remove)
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def image(engine: Engine) -> str:
    return ensure_image(engine, image_definition("alpine-3.23"), PlainProgress(quiet=True)).ref


@dataclass
class Run:
    """A run in a process of its own."""

    run_id: str
    process: subprocess.Popen[str]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def running(engine: Engine, image: str, *, ready: bool = True) -> Iterator[Run]:
    run_id = f"sweep-test-{uuid.uuid4().hex[:8]}"
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, image, run_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        if ready:
            assert process.stdout.readline() == "ready\n"
        yield Run(run_id, process)
    finally:
        process.communicate(timeout=300)
        sweep(engine, include_run=run_id)


def things(engine: Engine, run_id: str) -> list[str]:
    mine = {"label": [f"sandbox.run_id={run_id}"]}
    api = engine.sdk.api
    found = ["container" for _ in api.containers(all=True, filters=mine)]
    found += ["network" for _ in api.networks(filters=mine)]
    return found + ["volume" for _ in api.volumes(filters=mine)["Volumes"] or ()]


EVERYTHING = ["container", "network", "volume"]


def of_run(report: SweepReport, run_id: str) -> list[str]:
    return [item.kind for item in report.removed if item.run_id == run_id]


def test_a_killed_runs_things_go_and_a_living_ones_stay(engine: Engine, image: str) -> None:
    with running(engine, image) as living:
        for _ in range(5):  # another run on this machine may be the first to sweep
            report = swept_after_a_kill(engine, image, living)
            if report == EVERYTHING:
                break
        assert report == EVERYTHING
    assert things(engine, living.run_id) == []  # it ended by itself


def swept_after_a_kill(engine: Engine, image: str, living: Run) -> list[str]:
    """Kill a run beside a living one, and sweep: what this sweep says to have removed of it."""
    with running(engine, image) as killed:
        report = sweep(engine)
        assert of_run(report, killed.run_id) == of_run(report, living.run_id) == []
        assert things(engine, killed.run_id) == EVERYTHING

        killed.kill()
        report = sweep(engine)
        assert things(engine, killed.run_id) == []
        kept = [k for k in report.kept if k.item.run_id == living.run_id]
        assert [k.item.kind for k in kept] == EVERYTHING
        assert all(k.owner_lives for k in kept)
        assert things(engine, living.run_id) == EVERYTHING

        assert of_run(sweep(engine), killed.run_id) == []
        return of_run(report, killed.run_id)


@pytest.mark.parametrize("moment_s", [0.0, 0.05, 0.1, 0.2, 0.3])
def test_a_run_killed_while_it_makes_things(engine: Engine, image: str, moment_s: float) -> None:
    with running(engine, image, ready=False) as killed:
        deadline = time.monotonic() + 120
        while not things(engine, killed.run_id):
            assert time.monotonic() < deadline
        time.sleep(moment_s)
        killed.kill()
        sweep(engine)
        while things(engine, killed.run_id):  # what it asked for last may come after the sweep
            assert time.monotonic() < deadline + 60
            sweep(engine)


def test_sweeps_at_once_share_the_work(engine: Engine, image: str) -> None:
    with running(engine, image) as killed:
        killed.kill()
        with ThreadPoolExecutor(4) as pool:
            reports = list(pool.map(sweep, [engine] * 4))
        assert things(engine, killed.run_id) == []
        mine = [k for report in reports for k in report.unsettled if k.item.run_id == killed.run_id]
        assert mine == []


def test_other_projects_are_not_touched(engine: Engine) -> None:
    name = f"other-{uuid.uuid4().hex[:8]}"
    labels = {"other.project": "x", "sandbox.pid": "1", "sandbox.project": "sandbox-of-another"}
    engine.sdk.volumes.create(name=name, labels=labels)
    try:
        report = sweep(engine)
        assert name not in {item.name for item in report.removed}
        engine.sdk.volumes.get(name)
    finally:
        with suppress(docker.errors.NotFound):
            engine.sdk.volumes.get(name).remove()
