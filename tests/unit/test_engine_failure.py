"""Failures: each foreign error has one class here, whatever words it carries."""

from __future__ import annotations

import http.client
from pathlib import Path
from typing import Any

import docker.errors
import pytest
import requests
import urllib3.exceptions
from testcontainers.core.exceptions import ContainerStartException

from sandbox.engine.client import Engine, EngineInfo
from sandbox.engine.command import MAX_WORD_BYTES, Command
from sandbox.engine.failure import each, engine_errors, translate
from sandbox.engine.inside import await_keeper, choose
from sandbox.engine.keeper import TASK_CAPABILITIES, KeeperSpec
from sandbox.engine.limits import Limits, ReadOnlyMount
from sandbox.engine.tracker import ExecState, await_launch
from sandbox.errors import (
    ContainerGone,
    EngineFailure,
    NotFound,
    PrerequisiteMissing,
    SandboxError,
    Unsupported,
    UsageError,
)

LIES = "No such container: x; OOMKilled; Cannot connect to the Docker daemon; not running"


def answered(status: int, kind: type[Exception] = docker.errors.APIError) -> Exception:
    response = requests.Response()
    response.status_code = status
    return kind("text", response=response, explanation=LIES)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (answered(404), NotFound),
        (answered(404, docker.errors.ImageNotFound), NotFound),
        (answered(400), EngineFailure),
        (answered(409), EngineFailure),
        (answered(500), EngineFailure),
        (answered(501), Unsupported),
        (docker.errors.InvalidVersion("old"), Unsupported),
        (docker.errors.DockerException("x"), EngineFailure),
        (requests.exceptions.ConnectionError(LIES), EngineFailure),
        (requests.exceptions.ReadTimeout(LIES), EngineFailure),
        (urllib3.exceptions.ProtocolError(LIES), EngineFailure),
        (http.client.RemoteDisconnected(LIES), EngineFailure),
        (BrokenPipeError(), EngineFailure),
        (TimeoutError(), EngineFailure),
        (ContainerStartException(LIES), EngineFailure),
        (requests.exceptions.InvalidURL(LIES), EngineFailure),
    ],
    ids=lambda value: getattr(value, "__name__", repr(value)[:40]),
)
def test_each_error_has_its_class(error: Exception, expected: type[SandboxError]) -> None:
    found = translate(error, "do it")
    assert type(found) is expected
    assert "cannot do it" in str(found)


@pytest.mark.parametrize("status", [404, 409])
def test_a_container_that_is_asked_for_is_gone(status: int) -> None:
    assert type(translate(answered(status), "x", missing=ContainerGone)) is ContainerGone


def test_our_own_errors_pass_through() -> None:
    ours = UsageError("ours")
    assert translate(ours, "x") is ours
    with pytest.raises(UsageError), engine_errors("x"):
        raise ours


def test_errors_that_are_not_the_engines_pass_through() -> None:
    for error in (KeyError("x"), FileNotFoundError("x"), KeyboardInterrupt()):
        with pytest.raises(type(error)), engine_errors("x"):
            raise error


def test_chunks_of_an_answer() -> None:
    def chunks() -> Any:
        yield b"one"
        raise requests.exceptions.ChunkedEncodingError("cut")

    given = each(chunks(), "read it")
    assert next(given) == b"one"
    with pytest.raises(EngineFailure, match="cannot read it"):
        next(given)


@pytest.mark.parametrize("host", ["unix:///no/such/socket", "tcp://127.0.0.1:1"])
def test_no_engine(host: str) -> None:
    with pytest.raises(PrerequisiteMissing, match="no Docker engine answers") as caught:
        Engine.connect(host)
    assert caught.value.exit_code == 5
    assert caught.value.cure


@pytest.mark.parametrize(
    "environ", [{"DOCKER_HOST": "bogus://x"}, {"DOCKER_CONTEXT": "no-such-context"}]
)
def test_an_address_that_makes_no_sense(environ: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        Engine.connect(environ=environ)


def test_docker_host_is_respected() -> None:
    with pytest.raises(PrerequisiteMissing, match="/from/environ"):
        Engine.connect(environ={"DOCKER_HOST": "unix:///from/environ"})
    with pytest.raises(PrerequisiteMissing, match="/explicit"):
        Engine.connect("unix:///explicit", environ={"DOCKER_HOST": "unix:///from/environ"})


def test_a_command_that_no_kernel_takes() -> None:
    for wrong in (
        {"argv": ["x" * (MAX_WORD_BYTES + 1)]},
        {"argv": ["a"], "env": {"A": "x" * MAX_WORD_BYTES}},
        {"argv": ["a\0"]},
        {"argv": []},
        {"argv": "text"},
        {"argv": ["a"], "cwd": "relative"},
        {"argv": ["a"], "deadline_s": 0},
    ):
        with pytest.raises(UsageError):
            Command(**{"deadline_s": 1, **wrong})
    assert Command(argv=["x" * MAX_WORD_BYTES], deadline_s=1)


def spec(**options: Any) -> dict[str, Any]:
    fixed = {"image": "i", "name": "n", "labels": {}, "limits": Limits()}
    return KeeperSpec(**{**fixed, "as_root": True, **options}).options()


def test_the_container_is_confined() -> None:
    options = spec()
    assert options["network_mode"] == "none"
    assert options["security_opt"] == ["no-new-privileges:true"]
    assert (options["cap_drop"], options["cap_add"]) == (["ALL"], list(TASK_CAPABILITIES))
    assert spec(as_root=False)["cap_add"] == []
    assert options["mem_limit"] == options["memswap_limit"] == "4096m"
    assert "network_mode" not in spec(network={"network": "own"})


def test_mounts_have_absolute_paths(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        ReadOnlyMount(source=Path("relative"), target="/x")
    with pytest.raises(UsageError):
        ReadOnlyMount(source=tmp_path, target="x")


def test_a_launch_is_followed_until_it_is_decided() -> None:
    states = iter([(True, None, 0), (True, None, 0), (True, None, 44)])

    def ask() -> ExecState:
        running, code, pid = next(states)
        return ExecState(running=running, exit_code=code, pid=pid)

    await_launch(ask, give_up=1e9, arrived=lambda: True)
    assert next(states, None) is None
    refused = ExecState(running=False, exit_code=126, pid=0)
    await_launch(lambda: refused, give_up=1e9, arrived=lambda: True)
    waiting = ExecState(running=False, exit_code=None, pid=0)
    with pytest.raises(EngineFailure, match="neither starts"):
        await_launch(lambda: waiting, give_up=-1e9)


def test_without_a_sign_the_engine_is_asked_now_and_then() -> None:
    looks, asked = iter(range(1, 99)), []

    def ask() -> ExecState:
        asked.append(next(looks))
        return ExecState(running=True, exit_code=None, pid=44)

    await_launch(ask, give_up=1e9, arrived=lambda: next(looks) < 0, every=3)
    assert asked == [4]


def test_the_keeper_is_waited_for() -> None:
    counts = iter([1, 1, 2])
    await_keeper(lambda: next(counts))
    await_keeper(lambda: 0)
    with pytest.raises(EngineFailure, match="starts nothing"):
        await_keeper(lambda: 1, timeout_s=0.0)


FAR = EngineInfo(
    host="tcp://far:1",
    version="1",
    api_version="1.41",
    product="docker",
    architecture="x86_64",
    kernel="k",
    cgroup_version=2,
    cgroup_driver="systemd",
    storage_driver="overlay2",
    root_dir="/",
    is_local=False,
    can_enter_namespaces=False,
)


def test_a_far_engine_is_looked_into_by_scripts() -> None:
    asked: list[str] = []

    def run_script(name: str, *arguments: str, user: str | None) -> str:
        asked.append(name)
        return ""

    inside = choose(FAR, "id", pid=lambda: 1, run_script=run_script)
    assert inside.observer.processes() == ()
    assert asked == ["probe"]
    for tracking in ("cgroup", "freezer"):
        with pytest.raises(Unsupported):
            choose(FAR, "id", pid=lambda: 1, run_script=run_script, tracking=tracking)
