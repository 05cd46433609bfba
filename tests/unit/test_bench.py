"""The bench: one way that breaks is told, the others are measured; an end is heard."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from sandbox.conformance.installbench import compared
from sandbox.conformance.interrupt import interruptible
from sandbox.conformance.processbench import peak_of
from sandbox.conformance.timing import DOCKER, OURS, DockerCli, Subject, in_turn
from sandbox.engine.owner import Ownership
from sandbox.engine.peers.contender import Guarded, find_peer
from sandbox.errors import EngineFailure, InstallError
from sandbox.evidence.benches import LIMIT, Measure, Unmeasured

SUBJECT = Subject(part="engine", image="image", most={DOCKER: 1.0})


def giving(*seconds: float | str) -> Callable[[], float]:
    turns = iter(seconds)

    def do() -> float:
        one = next(turns)
        if isinstance(one, str):
            raise InstallError(one)
        return one

    return do


def told(copy: Callable[[], float], mount: Callable[[], float]) -> dict[str, Measure | Unmeasured]:
    found = compared(
        SUBJECT,
        "install x",
        {"copy": copy, "mount": mount},
        giving(1.0, 2.0, 3.0),
        rounds=3,
        before={"copy": 10.0, "mount": 20.0},
    )
    return {one.operation: one for one in found}


def test_each_way_is_measured_cold_and_warm_against_the_same_copies_by_hand() -> None:
    found = told(giving(1.0, 4.0, 5.0, 9.0), giving(0.5, 0.1, 0.3, 0.2))
    assert all(isinstance(one, Measure) and one.theirs[DOCKER] == 2.0 for one in found.values())
    ours = {name: one.ours for name, one in found.items() if isinstance(one, Measure)}
    assert ours == {
        "install x cold by copy": 11.0,
        "install x by copy": 5.0,
        "install x cold by mount": 20.5,
        "install x by mount": 0.2,
    }


@pytest.mark.parametrize(
    ("copy", "still_told"),
    [
        pytest.param(("too slow",), [], id="at-the-first"),
        pytest.param((1.0, 2.0, "too slow"), ["install x cold by copy"], id="later"),
    ],
)
def test_a_way_that_breaks_is_told_and_not_tried_again(
    copy: tuple[float | str, ...], still_told: list[str]
) -> None:
    found = told(giving(*copy), giving(0.5, 0.1, 0.3, 0.2))
    assert found["install x by copy"] == Unmeasured(
        operation="install x by copy", image="image", by="ours", failed="too slow"
    )
    assert [name for name, one in found.items() if isinstance(one, Measure)] == [
        *still_told, "install x cold by mount", "install x by mount",
    ]  # fmt: skip


def started(do: Callable[[], float]) -> dict[str, float]:
    return {"start": do()}


def turns(**spent: Callable[[], float]) -> list[Measure | Unmeasured]:
    ways = {name: partial(started, do) for name, do in spent.items()}
    return list(in_turn(SUBJECT, "life", ways, rounds=3, limits={"start": 4.0}))


def test_medians_are_of_turns_and_the_ratios_say_what_is_missed() -> None:
    (one,) = turns(ours=giving(9.0, 1.0, 2.0), docker=giving(1.0, 1.0, 8.0))
    assert isinstance(one, Measure)
    assert (one.ours, one.theirs, one.rounds) == (2.0, {DOCKER: 1.0, LIMIT: 4.0}, 3)
    assert (one.ratios, one.missed) == ({DOCKER: 2.0, LIMIT: 0.5}, (DOCKER,))


def test_a_peer_that_breaks_is_told_and_takes_no_other_measure_away() -> None:
    lost, one = turns(ours=giving(1.0, 1.0, 1.0), docker=giving(1.0, "gone"))
    assert lost == Unmeasured(operation="life", image="image", by=DOCKER, failed="gone")
    assert isinstance(one, Measure)
    assert set(one.ratios) == {LIMIT}, "half of the turns are no median"


def test_without_ours_there_is_no_ratio() -> None:
    (lost,) = turns(ours=giving("gone"), docker=giving(1.0, 1.0, 1.0))
    assert isinstance(lost, Unmeasured)
    assert lost.by == OURS


def test_a_peer_that_is_not_installed_is_named() -> None:
    found = find_peer("no-such-distribution", "testcontainers")
    assert (found.peer.version, found.peer.missing, found.make) == (None, "not installed", None)


def test_a_peer_that_is_installed_and_cannot_be_used_says_why() -> None:
    found = find_peer("testcontainers", "no_such_module")
    assert found.make is None
    assert found.peer.missing is not None
    assert "no_such_module" in found.peer.missing


def test_what_a_peer_raises_is_an_engine_failure() -> None:
    class Broken:
        def start(self) -> None:
            raise KeyError("x")

    with pytest.raises(EngineFailure, match="peer: start failed: KeyError"):
        Guarded("peer", Broken()).start()  # type: ignore[arg-type]


def test_the_peak_is_the_kernels_own() -> None:
    assert peak_of("VmPeak:\t 9999 kB\nVmHWM:\t   2048 kB\nVmRSS:\t 1024 kB\n") == 2.0
    assert peak_of("Name:\tzombie\n") == 0.0


@pytest.fixture
def docker(tmp_path: Path) -> DockerCli:
    script = tmp_path / "docker"
    script.write_text(
        f"""#!/bin/sh
echo "$1" >>{tmp_path}/calls
case $1 in
cp) exec sleep 60 ;;
rm) echo "no such container" >&2 && exit 1 ;;
esac
"""
    )
    script.chmod(0o700)
    return DockerCli(str(script))


def test_a_client_that_hangs_is_an_engine_failure(docker: DockerCli) -> None:
    with pytest.raises(EngineFailure, match="docker cp is not done after 0 s"):
        docker.call("cp", "a", "b", deadline_s=0.1)


def test_the_error_that_ended_a_container_is_told_not_that_of_its_removal(
    docker: DockerCli, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt), docker.container("image", Ownership.current(run_id="x")):
        raise KeyboardInterrupt
    assert (tmp_path / "calls").read_text().split() == ["run", "rm"]
    owner = Ownership.current(run_id="x")
    with pytest.raises(EngineFailure, match="no such"), docker.container("image", owner):
        pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda one: one.name)
def test_the_first_signal_asks_and_the_handlers_come_back(number: signal.Signals) -> None:
    def end() -> None:
        raise KeyboardInterrupt

    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), interruptible(end):
        signal.raise_signal(number)
    assert signal.getsignal(number) is before
