"""start and close: what a sandbox is, and that nothing is left of it however it ends."""

from __future__ import annotations

import gc
import io
import tarfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sandbox.engine.archive import PutFile
from sandbox.engine.client import Engine
from sandbox.engine.limits import ReadOnlyMount
from sandbox.engine.owner import Ownership, owner_is_alive
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import ContainerGone, EngineFailure, NotFound, Unsupported, UsageError
from tests.contract.conftest import labelled
from tests.contract.kit import run, said, sh
from tests.contract.severed import Severable

pytestmark = pytest.mark.docker


@pytest.fixture
def calls(engine: Engine) -> Iterator[list[str]]:
    """Record the requests that reach the engine."""
    seen: list[str] = []

    def note(response: Any, *args: object, **kwargs: object) -> None:
        seen.append(f"{response.request.method} {response.request.path_url.split('?')[0]}")

    engine.sdk.api.hooks["response"].append(note)
    yield seen
    engine.sdk.api.hooks["response"].remove(note)


@pytest.fixture
def alone() -> Ownership:
    """Own things of one test, so that exactly its leftovers can be counted."""
    return Ownership.current(run_id=f"kit-{uuid.uuid4().hex[:8]}")


def left(engine: Engine, owner: Ownership) -> list[str]:
    return labelled(engine, f"sandbox.run_id={owner.run_id}")


def inspect(engine: Engine, box: Sandbox) -> dict[str, Any]:
    return dict(engine.sdk.api.inspect_container(box.id))


def test_start_and_close_ask_the_engine_little(
    make: Callable[..., Sandbox], calls: list[str]
) -> None:
    make().close()
    with make():
        pass
    calls.clear()
    with make() as own:
        identity = own.id
    version = calls[0].split("/")[1]
    assert calls[1:] == [
        f"POST /{version}/containers/create",
        f"POST /{version}/containers/{identity}/start",
        f"DELETE /{version}/containers/{identity}",
    ]
    assert calls[0].endswith("/json")  # the image, for its user


def test_close_is_idempotent_and_final(make: Callable[..., Sandbox]) -> None:
    own = make()
    own.close()
    own.start()
    own.close()
    own.close()
    with pytest.raises(UsageError, match="not started, or is closed"):
        run(own, "true")
    with pytest.raises(UsageError, match="started before"):
        own.start()


def test_nothing_works_before_start(make: Callable[..., Sandbox], tmp_path: Path) -> None:
    own = make()
    uses: list[Callable[[], object]] = [
        lambda: run(own, "true"),
        lambda: own.put([], "/opt"),
        lambda: own.get("/etc", tmp_path / "x"),
        lambda: own.read("/etc/passwd"),
        own.facts,
        own.processes,
        own.diff,
        own.resources,
        lambda: own.id,
    ]
    for use in uses:
        with pytest.raises(UsageError, match="not started"):
            use()


def test_close_waits_for_no_grace(make: Callable[..., Sandbox]) -> None:
    with make() as own:
        sh(own, "trap '' TERM; (while :; do sleep 1; done) >/dev/null 2>&1 &")
        began = time.monotonic()
    assert time.monotonic() - began < 5


def test_an_error_in_the_body_leaves_nothing(
    engine: Engine, make: Callable[..., Sandbox], alone: Ownership
) -> None:
    def body() -> None:
        with make(owner=alone):
            assert len(left(engine, alone)) == 1
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        body()
    assert left(engine, alone) == []


class BadLink:
    """A link that cannot attach."""

    def create_options(self) -> Mapping[str, Any]:
        return {"network_mode": "none", "dns": ["127.0.0.1"]}

    def attach(self, sandbox: Sandbox) -> None:
        assert said(run(sandbox, "grep", "nameserver", "/etc/resolv.conf")) == (
            "nameserver 127.0.0.1\n"
        )
        raise EngineFailure("cannot attach")


def test_a_failed_start_leaves_nothing(
    engine: Engine, make: Callable[..., Sandbox], alone: Ownership, tmp_path: Path
) -> None:
    options: list[dict[str, Any]] = [
        {"link": BadLink()},
        {"mounts": [ReadOnlyMount(source=tmp_path, target="/proc/1/x")]},
        {"workdir": "relative"},
        {"workdir": "/etc/passwd/x"},
    ]
    for option in options:
        own = make(owner=alone, **option)
        with pytest.raises(EngineFailure):
            own.start()
        assert left(engine, alone) == [], option
        own.close()


def test_a_missing_image(engine: Engine, alone: Ownership) -> None:
    for name in ("sandbox-kit/no-such-image:1", f"sha256:{'0' * 64}"):
        with pytest.raises(NotFound, match="find image"), Sandbox(engine, name, owner=alone):
            pass
    assert left(engine, alone) == []


@pytest.fixture(scope="module")
def bare_image(engine: Engine) -> Iterator[str]:
    """Give an image that holds one file and no shell."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("hello"), io.BytesIO())
    name = f"sandbox-kit-bare:{uuid.uuid4().hex[:8]}"
    repository, _, tag = name.partition(":")
    engine.sdk.api.import_image_from_data(buffer.getvalue(), repository=repository, tag=tag)
    yield name
    engine.sdk.api.remove_image(name, force=True)


def test_an_image_without_a_shell(engine: Engine, bare_image: str, alone: Ownership) -> None:
    with Sandbox(engine, bare_image, owner=alone) as own:
        for use in (lambda: run(own, "/hello"), own.facts, own.processes):
            with pytest.raises(Unsupported, match="no /bin/sh"):
                use()
    assert left(engine, alone) == []


def test_an_interrupt_during_start_leaves_nothing(
    engine: Engine, make: Callable[..., Sandbox], alone: Ownership
) -> None:
    def interrupt(response: Any, *args: object, **kwargs: object) -> None:
        if response.request.path_url.partition("?")[0].endswith(("/create", "/start")):
            raise KeyboardInterrupt

    engine.sdk.api.hooks["response"].append(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt), make(owner=alone):
            pass
    finally:
        engine.sdk.api.hooks["response"].remove(interrupt)
    assert left(engine, alone) == []


def test_labels_name_the_living_owner(engine: Engine, box: Sandbox, owner: Ownership) -> None:
    labels = inspect(engine, box)["Config"]["Labels"]
    assert Ownership.from_labels(labels) == owner
    assert owner_is_alive(labels)


@pytest.mark.parametrize("how", ["kill", "remove", "stop"])
def test_a_container_that_ends_during_exec(
    engine: Engine, make: Callable[..., Sandbox], how: str, tmp_path: Path
) -> None:
    api = engine.sdk.api
    act = {
        "kill": lambda: api.kill(own.name),
        "remove": lambda: api.remove_container(own.name, force=True),
        "stop": lambda: api.stop(own.name, timeout=0),
    }[how]
    with make() as own:
        threading.Timer(0.4, act).start()
        with pytest.raises(ContainerGone):
            sh(own, "echo begun; sleep 60")
        for use in (
            lambda: run(own, "true"),
            own.processes,
            own.facts,
            lambda: own.read("/etc/passwd"),
            lambda: own.put([PutFile(path="x", data=b"")], "/opt"),
            lambda: own.put([PutFile(path="x", data=b"")], "/tmp"),
            lambda: own.get("/etc/passwd", tmp_path / "x"),
        ):
            with pytest.raises(ContainerGone):
                use()


def test_a_container_that_ended_before(engine: Engine, make: Callable[..., Sandbox]) -> None:
    with make() as own:
        engine.sdk.api.remove_container(own.name, force=True)
        for use in (lambda: run(own, "true"), own.processes, own.diff, own.facts):
            with pytest.raises(ContainerGone):
                use()


def test_a_paused_container_is_not_gone(engine: Engine, make: Callable[..., Sandbox]) -> None:
    with make() as own:
        run(own, "true")
        engine.sdk.api.pause(own.id)
        with pytest.raises(EngineFailure, match="paused") as caught:
            run(own, "true")
        assert caught.type is EngineFailure
        engine.sdk.api.unpause(own.id)
        assert run(own, "true").ok
        engine.sdk.api.pause(own.id)  # and it can be closed


def test_a_command_that_ends_its_own_sandbox(make: Callable[..., Sandbox]) -> None:
    with make() as own, pytest.raises(ContainerGone):
        sh(own, "kill -9 -1; sleep 5")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_engine_that_goes_away_during_exec(image: str, alone: Ownership, engine: Engine) -> None:
    with Severable(engine.info.host) as road, Engine.connect(road.address) as far:
        own = Sandbox(far, image, owner=alone)
        own.start()
        run(own, "true")
        threading.Timer(0.4, road.sever).start()
        assert engine_failure(lambda: run(own, "sleep", "60")) is EngineFailure
        assert engine_failure(lambda: run(own, "true")) is EngineFailure
        assert engine_failure(own.close) is EngineFailure
    gc.collect()  # the SDK leaves a socket open whose connecting failed
    for name in left(engine, alone):
        engine.sdk.api.remove_container(name.split("/")[1], force=True)


def engine_failure(use: Callable[[], object]) -> type[BaseException]:
    with pytest.raises(EngineFailure, match="did not answer") as caught:
        use()
    return caught.type
