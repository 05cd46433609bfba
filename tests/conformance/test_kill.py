"""``kill -9`` of a run in each phase of a cell: nothing of it stays, nothing of others goes."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.engine.client import Engine
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from tests.conformance.cli import sandbox, start
from tests.conftest import FaultClock

pytestmark = pytest.mark.docker

CELL = "codex/alpine-3.23/run_timeout"
PHASE_DEADLINE_S = 300.0


def containers_of(engine: Engine, pid: int) -> list[str]:
    label = {"label": [f"sandbox.pid={pid}"]}
    return [str(one["Id"]) for one in engine.sdk.api.containers(all=True, filters=label)]


def commands_in(engine: Engine, pid: int) -> str:
    """Everything that runs in the containers of that process, as text."""
    found = []
    for container in containers_of(engine, pid):
        try:
            found += [" ".join(row) for row in engine.sdk.api.top(container)["Processes"] or ()]
        except Exception:  # it may have ended meanwhile: look again
            continue
    return "\n".join(found)


PHASES: dict[str, Callable[[Engine, int, Path], bool]] = {
    "sandbox": lambda engine, pid, _: bool(containers_of(engine, pid)),
    "install": lambda engine, pid, _: "install.sh" in commands_in(engine, pid),
    "activate": lambda engine, pid, _: "codex exec" in commands_in(engine, pid),
    "tool": lambda engine, pid, _: "probe-1.txt" in commands_in(engine, pid),
}


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A run that is killed at the end of the block if the block did not."""
    process = start(*words)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def wait_for(reached: Callable[[], bool], process: subprocess.Popen[bytes], what: str) -> None:
    until = time.monotonic() + PHASE_DEADLINE_S
    while not reached():
        assert process.poll() is None, f"the run ended with {process.returncode} before {what}"
        assert time.monotonic() < until, f"{what} was not reached within {PHASE_DEADLINE_S:.0f} s"
        time.sleep(0.02)


@pytest.mark.parametrize("phase", PHASES)
def test_a_killed_run_is_swept_and_a_living_one_is_not(
    phase: str, engine: Engine, image_refs: dict[str, str], tmp_path: Path, fault: FaultClock
) -> None:
    living = Ownership.current(run_id="kill-test-living", cell_id="living")
    with Sandbox(engine, image_refs["alpine-3.23"], owner=living) as other:
        folder = tmp_path / "results"
        # a copy takes long enough to be seen; what a mount's install does is a part of it
        words = ("conformance", CELL, "--install", "copy", "--output", str(folder))
        with running(*words) as process:
            wait_for(lambda: PHASES[phase](engine, process.pid, folder), process, phase)
            fault.strikes(lambda: process.send_signal(signal.SIGKILL))
            assert process.wait() == -signal.SIGKILL, "it had ended before: no test"
        swept = sandbox("sweep")
        assert swept.code == 0, swept.err
        fault.ended("swept by the next start")
        assert containers_of(engine, process.pid) == []
        assert other.exec(["true"], deadline_s=30).exit_code == 0
    judged = sandbox("judge", str(folder))
    assert judged.code == 4
    assert "planned and not recorded" in judged.out


def test_an_interrupted_run_cleans_up_and_keeps_what_it_saw(engine: Engine, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    with running("conformance", CELL, "--output", str(folder)) as process:
        wait_for(lambda: PHASES["tool"](engine, process.pid, folder), process, "tool")
        process.send_signal(signal.SIGINT)
        assert process.wait(180) == 130
    assert containers_of(engine, process.pid) == []
    assert (folder / "cells" / CELL / "exchanges.jsonl").is_file()
    assert (folder / "summary.md").is_file()


def test_a_second_interrupt_ends_at_once_and_the_next_start_sweeps(
    engine: Engine, tmp_path: Path
) -> None:
    folder = tmp_path / "results"
    with running("conformance", CELL, "--output", str(folder)) as process:
        wait_for(lambda: PHASES["tool"](engine, process.pid, folder), process, "tool")
        process.send_signal(signal.SIGINT)
        until = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until:
            time.sleep(0.1)  # as a finger does: two that come together are one to the kernel
            process.send_signal(signal.SIGINT)
        assert process.wait(10) == -signal.SIGINT
    assert not (folder / "summary.md").exists()
    again = sandbox("conformance", "codex/alpine-3.23/tool_success", "--output", f"{folder}2")
    assert again.code == 0, again.err
    assert containers_of(engine, process.pid) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda one: one.name)
def test_a_bench_that_is_ended_leaves_no_container(number: signal.Signals, engine: Engine) -> None:
    words = ("bench", "--part", "install", "--harness", "codex", "--image", "alpine-3.23")
    with running(*words) as process:
        wait_for(lambda: len(containers_of(engine, process.pid)) == 2, process, "both containers")
        process.send_signal(number)
        assert process.wait(180) == 130
    assert containers_of(engine, process.pid) == []
