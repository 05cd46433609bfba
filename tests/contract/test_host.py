"""Starting an engine for real: a second one, in a network namespace of its own."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sandbox.engine.client import Engine
from sandbox.engine.host import Daemon, ensure_engine
from sandbox.engine.link import open_link
from sandbox.engine.owner import Ownership
from sandbox.errors import PrerequisiteMissing, Unsupported
from sandbox.progress import PlainProgress
from tests.contract.second_engine import NEEDS, second_engine, stop

pytestmark = [pytest.mark.docker, *NEEDS]

DEFAULT_NETWORKS = ["bridge", "host", "none"]


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with second_engine() as made:
        yield made


def starts(daemon: Daemon) -> int:
    return len((daemon.state.parent / "starts").read_text().splitlines())


def test_it_starts_once_and_says_so(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    with ensure_engine(PlainProgress(), daemon=daemon) as engine:
        assert engine.info.host == daemon.host
        assert engine.sdk.containers.list(all=True) == []
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert said[0].startswith("Starting")
    assert said[1].startswith(f"Docker engine {engine.info.version}: started as process")
    assert str(daemon.log) in said[1]

    with ensure_engine(PlainProgress(), daemon=daemon):
        assert capsys.readouterr().err == ""
    assert starts(daemon) == 1


def test_it_is_detached_from_its_starter(daemon: Daemon) -> None:
    ensure_engine(PlainProgress(quiet=True), daemon=daemon).close()
    pid = int(daemon.pidfile.read_text())
    assert os.getsid(pid) != os.getsid(0)
    assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
    files = {n: str(Path(f"/proc/{pid}/fd/{n}").readlink()) for n in range(3)}
    assert files == {0: "/dev/null", 1: str(daemon.log), 2: str(daemon.log)}
    held = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # the engine opens and closes files meanwhile
            held.add(str(entry.readlink()))
    assert not any(name.startswith(str(daemon.state / "start")) for name in held)


def ensure_in_child(daemon: Daemon) -> None:
    ensure_engine(PlainProgress(quiet=True), daemon=daemon).close()


def test_two_runs_at_once_start_one_which_outlives_both(daemon: Daemon) -> None:
    spawn = multiprocessing.get_context("spawn")
    runs = [spawn.Process(target=ensure_in_child, args=(daemon,)) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join(300)
        assert run.exitcode == 0
        run.close()
    assert starts(daemon) == 1
    Engine.connect(daemon.host).close()


def test_after_a_kill_it_starts_again_though_the_pid_file_is_there(daemon: Daemon) -> None:
    ensure_engine(PlainProgress(quiet=True), daemon=daemon).close()
    stop(daemon, signal.SIGKILL)
    assert daemon.pidfile.exists()
    ensure_engine(PlainProgress(quiet=True), daemon=daemon).close()
    assert starts(daemon) == 2


def test_a_recycled_pid_in_the_pid_file_does_not_stop_it(daemon: Daemon) -> None:
    daemon.pidfile.write_text(str(os.getpid()))
    ensure_engine(PlainProgress(quiet=True), daemon=daemon).close()
    assert int(daemon.pidfile.read_text()) != os.getpid()


def test_a_bridge_that_is_not_on_this_hosts_network_is_refused(daemon: Daemon) -> None:
    owner = Ownership.current(run_id="host-test")
    with ensure_engine(PlainProgress(quiet=True), daemon=daemon) as engine:
        assert engine.info.is_local
        with (
            pytest.raises(Unsupported, match="on another machine or network namespace"),
            open_link(engine, owner, isolation="bridge"),
        ):
            pass
        assert sorted(network.name for network in engine.sdk.networks.list()) == DEFAULT_NETWORKS


def test_an_engine_that_fails_shows_its_last_words(daemon: Daemon) -> None:
    script = "echo cannot mount the thing >&2; exit 3"
    broken = dataclasses.replace(daemon, argv=("sh", "-c", script))
    with pytest.raises(PrerequisiteMissing) as caught:
        ensure_engine(PlainProgress(quiet=True), daemon=broken)
    assert "  | cannot mount the thing" in caught.value.message
    assert "it has ended" in caught.value.message
    assert str(daemon.log) in (caught.value.cure or "")


if __name__ == "__main__":  # spawned children import this file
    sys.exit(pytest.main([__file__]))
