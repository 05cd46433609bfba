"""The bench: one way that breaks is told, the others are measured; an end is heard."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.conformance.installbench import compared
from sandbox.conformance.interrupt import interruptible
from sandbox.conformance.timing import DockerCli, Measure, Unmeasured
from sandbox.engine.owner import Ownership
from sandbox.errors import EngineFailure, InstallError

WAYS = ("copy", "mount")


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
        "install x",
        "image",
        {"copy": copy, "mount": mount},
        giving(1.0, 2.0, 3.0),
        rounds=3,
        before={"copy": 10.0, "mount": 20.0},
    )
    return {one.operation: one for one in found}


def test_each_way_is_measured_cold_and_warm_against_the_same_copies_by_hand() -> None:
    found = told(giving(1.0, 4.0, 5.0, 9.0), giving(0.5, 0.1, 0.3, 0.2))
    assert all(isinstance(one, Measure) and one.docker_s == 2.0 for one in found.values())
    ours = {name: one.ours_s for name, one in found.items() if isinstance(one, Measure)}
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
        operation="install x by copy", image="image", failed="too slow"
    )
    assert [name for name, one in found.items() if isinstance(one, Measure)] == [
        *still_told, "install x cold by mount", "install x by mount",
    ]  # fmt: skip


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
