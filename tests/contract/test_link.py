"""The model link in real containers of both libc families."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from sandbox.engine.bridge import NOTICE
from sandbox.engine.client import Engine
from sandbox.engine.link import ModelLink, choose_isolation, open_link
from sandbox.engine.namespace import open_network
from sandbox.engine.owner import Ownership
from sandbox.errors import ContainerGone, PrerequisiteMissing, Unsupported

pytestmark = pytest.mark.docker

IMAGES = {"debian": "proto-debian:1", "alpine": "proto-alpine:1"}
GET = {
    "debian": 'exec 3<>"/dev/tcp/$1/$2" && printf "hello" >&3 && cat <&3',
    "alpine": 'printf "hello" | nc -w 5 "$1" "$2"',
}
SHELL = {"debian": "bash", "alpine": "sh"}


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    try:
        connected = Engine.connect()
    except PrerequisiteMissing as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    with connected:
        yield connected


@pytest.fixture
def owner() -> Ownership:
    return Ownership.current(run_id=f"link-{uuid.uuid4().hex[:8]}")


@pytest.fixture(autouse=True)
def nothing_left(engine: Engine, owner: Ownership) -> Iterator[None]:
    threads, files = set(threading.enumerate()), open_sockets()
    yield
    mine = {"label": [f"sandbox.run_id={owner.run_id}"]}
    assert engine.sdk.api.containers(all=True, filters=mine) == []
    assert engine.sdk.api.networks(filters=mine) == []
    assert set(threading.enumerate()) <= threads
    assert open_sockets() <= files


def open_sockets() -> set[str]:
    """Names of this process's sockets that are bound to an internet address or a namespace."""
    names = set()
    for entry in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{entry}")
        except OSError:
            continue
        if name.startswith("net:"):
            names.add(name)
    return names


@dataclass
class Box:
    """A started container, for the link's tests alone."""

    id: str
    kind: str
    container: Any

    def sh(self, script: str, *args: str) -> tuple[int, str]:
        argv = [SHELL[self.kind], "-c", script, "sh", *args]
        done = self.container.exec_run(argv)
        return done.exit_code, done.output.decode()


@contextmanager
def box(engine: Engine, owner: Ownership, kind: str, link: ModelLink) -> Iterator[Box]:
    container = engine.sdk.containers.create(
        IMAGES[kind],
        ["sleep", "600"],
        name=f"sandbox-link-test-{uuid.uuid4().hex}",
        labels=owner.labels(),
        init=True,
        **link.create_options(),
    )
    try:
        container.start()
        yield Box(container.id, kind, container)
    finally:
        container.remove(force=True)


@contextmanager
def echo(listener: socket.socket) -> Iterator[list[bytes]]:
    """Answer every connection on ``listener`` with what it says, in capitals."""
    heard: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer:
                heard.append(peer.recv(100))
                peer.sendall(heard[-1].upper())

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield heard
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@contextmanager
def linked(
    engine: Engine, owner: Ownership, kind: str, isolation: Any = "auto"
) -> Iterator[tuple[ModelLink, Box]]:
    with (
        open_link(engine, owner, isolation=isolation) as link,
        box(engine, owner, kind, link) as started,
    ):
        link.attach(started)
        yield link, started


both_images = pytest.mark.parametrize("kind", sorted(IMAGES))
both_links = pytest.mark.parametrize("isolation", ["namespace", "bridge"])


@both_images
@both_links
def test_the_sandbox_reaches_the_listener(
    engine: Engine, owner: Ownership, kind: str, isolation: str
) -> None:
    with linked(engine, owner, kind, isolation) as (link, inside):
        assert link.isolation == isolation
        with echo(link.listen()) as heard:
            assert inside.sh(GET[kind], link.host, str(link.port)) == (0, "HELLO")
        assert heard == [b"hello"]


@both_images
def test_root_on_the_engines_host_gets_the_namespace(
    engine: Engine, owner: Ownership, kind: str
) -> None:
    with linked(engine, owner, kind) as (link, inside):
        assert link.isolation == choose_isolation(engine) == "namespace"
        assert link.egress_observed
        code, text = inside.sh("cat /proc/net/dev")
        assert code == 0
        assert [line.split(":")[0].strip() for line in text.splitlines()[2:]] == ["lo"]
        assert inside.sh("cat /proc/net/route | wc -l")[1].strip() == "1"  # the heading


@both_images
def test_looked_up_names_are_unknown_at_once_and_logged(
    engine: Engine, owner: Ownership, kind: str
) -> None:
    with linked(engine, owner, kind) as (link, inside):
        began = time.monotonic()
        code, _ = inside.sh("getent hosts api.example.test")
        assert code == 2
        assert time.monotonic() - began < 1  # one time-out of the resolver is 1 s
        asked = [(event.kind, event.name) for event in link.egress()]
        assert set(asked) == {("dns", "api.example.test")}
        assert {event.record_type for event in link.egress()} <= {"A", "AAAA"}
    assert link.egress()[0].at == pytest.approx(time.time(), abs=60)


@both_images
@both_links
def test_localhost_is_loopback(engine: Engine, owner: Ownership, kind: str, isolation: str) -> None:
    with linked(engine, owner, kind, isolation) as (link, inside):
        code, text = inside.sh("getent hosts localhost")
        assert code == 0
        assert text.split()[0] in ("127.0.0.1", "::1")
        assert link.egress() == ()


@both_images
def test_the_sandbox_knows_its_own_name(engine: Engine, owner: Ownership, kind: str) -> None:
    with linked(engine, owner, kind) as (link, inside):
        code, text = inside.sh('getent hosts "$(hostname)"')
        assert (code, text.split()[:1]) == (0, ["127.0.0.1"])
        assert link.egress() == ()


def test_names_can_be_looked_up_over_tcp(engine: Engine, owner: Ownership) -> None:
    wire = b"\0\x1a\0\7\1\0\0\1\0\0\0\0\0\0\3tcp\4test\0\0\1\0\1"
    query = "".join(f"\\x{octet:02x}" for octet in wire)
    script = f"exec 3<>/dev/tcp/127.0.0.1/53; printf '{query}' >&3; head -c 6 <&3 | od -An -tx1"
    with linked(engine, owner, "debian") as (link, inside):
        code, text = inside.sh(script)
        assert (code, text.split()) == (0, ["00", "1a", "00", "07", "81", "83"])
        assert [event.name for event in link.egress()] == ["tcp.test"]


def test_nonsense_from_the_sandbox_is_an_event(engine: Engine, owner: Ownership) -> None:
    with linked(engine, owner, "debian") as (link, inside):
        assert inside.sh("printf nonsense >/dev/udp/127.0.0.1/53")[0] == 0
        assert inside.sh("getent hosts still.test")[0] == 2
        kinds = {event.kind: event.name for event in link.egress()}
        assert kinds == {"malformed": b"nonsense".hex(), "dns": "still.test"}


def test_search_domains_of_the_host_stay_outside(engine: Engine, owner: Ownership) -> None:
    with linked(engine, owner, "debian") as (_, inside):
        _, text = inside.sh("cat /etc/resolv.conf")
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        assert lines == ["nameserver 127.0.0.1", "options timeout:1 attempts:1"]


def test_each_sandbox_has_its_own_listener(engine: Engine, owner: Ownership) -> None:
    kinds = ["debian", "alpine", "debian", "alpine"]
    with ExitStack() as stack:
        pairs = [stack.enter_context(linked(engine, owner, kind)) for kind in kinds]
        heard = [stack.enter_context(echo(link.listen())) for link, _ in pairs]

        def call(number: int) -> tuple[int, str]:
            link, inside = pairs[number]
            inside.sh(f"getent hosts name-{number}.test")
            script = GET[inside.kind].replace("hello", f"hello {number}")
            return inside.sh(script, link.host, str(link.port))

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(call, range(4))) == [(0, f"HELLO {n}") for n in range(4)]
        assert heard == [[b"hello %d" % n] for n in range(4)]
        for number, (link, _) in enumerate(pairs):
            assert {event.name for event in link.egress()} == {f"name-{number}.test"}


def test_the_listener_is_not_reachable_from_the_host_or_another_sandbox(
    engine: Engine, owner: Ownership
) -> None:
    with (
        linked(engine, owner, "debian") as (link, _),
        linked(engine, owner, "debian") as (_, other),
        echo(link.listen()),
    ):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", link.port), timeout=5)
        assert other.sh(GET["debian"], link.host, str(link.port))[0] != 0


def test_several_listeners_and_a_caller_that_closes_its_own(
    engine: Engine, owner: Ownership
) -> None:
    with linked(engine, owner, "alpine") as (link, inside):
        first = link.listen()
        first_port = link.port
        first.close()
        with echo(link.listen()):
            assert link.port != first_port
            assert inside.sh(GET["alpine"], link.host, str(link.port)) == (0, "HELLO")


def test_the_container_may_die_while_the_link_is_open(engine: Engine, owner: Ownership) -> None:
    with linked(engine, owner, "debian") as (link, inside):
        listener = link.listen()
        inside.sh("getent hosts before.test")
        inside.container.kill()
        assert [event.name for event in link.egress()][:1] == ["before.test"]
        inside.container.wait()
    assert listener.fileno() == -1


@both_links
def test_an_error_while_the_sandbox_runs_leaves_nothing(
    engine: Engine, owner: Ownership, isolation: str
) -> None:
    with pytest.raises(ZeroDivisionError), linked(engine, owner, "alpine", isolation) as (link, _):
        link.listen()
        raise ZeroDivisionError


def test_a_container_that_is_not_running_is_gone(engine: Engine, owner: Ownership) -> None:
    with open_link(engine, owner) as link, box(engine, owner, "alpine", link) as inside:
        inside.container.kill()
        inside.container.wait()
        with pytest.raises(ContainerGone, match="not running"):
            link.attach(inside)
    with open_link(engine, owner) as link, pytest.raises(ContainerGone):
        link.attach(inside)  # removed by now


def test_a_recycled_pid_is_never_entered(engine: Engine, owner: Ownership) -> None:
    with linked(engine, owner, "alpine") as (_, inside):
        with pytest.raises(Unsupported, match="is not the container's"):
            open_network(os.getpid(), inside.id)
        with pytest.raises(ContainerGone):
            open_network(2**22 - 1, inside.id)


def test_another_server_on_port_53_is_an_error_and_leaves_nothing(
    engine: Engine, owner: Ownership
) -> None:
    with open_link(engine, owner) as link, box(engine, owner, "alpine", link) as inside:
        inside.container.exec_run(["nc", "-l", "-p", "53", "-s", "127.0.0.1"], detach=True)
        deadline = time.monotonic() + 5
        while inside.sh("netstat -ltn | grep -q :53")[0] != 0:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with pytest.raises(Unsupported, match="port 53"):
            link.attach(inside)


def misuse(call: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError):
        call()


def test_wrong_order_of_calls_is_a_clear_error(engine: Engine, owner: Ownership) -> None:
    with open_link(engine, owner) as link, box(engine, owner, "alpine", link) as inside:
        misuse(link.listen)
        misuse(lambda: link.port)
        link.attach(inside)
        misuse(lambda: link.attach(inside))
    misuse(link.listen)


class Heard:
    """A progress that remembers."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    def step(self, label: str) -> Any:
        raise NotImplementedError


def test_the_weaker_isolation_is_announced_and_labelled(engine: Engine, owner: Ownership) -> None:
    heard = Heard()
    with open_link(engine, owner, isolation="bridge", progress=heard) as link:
        mine = {"label": [f"sandbox.run_id={owner.run_id}"]}
        (network,) = engine.sdk.api.networks(filters=mine)
        assert network["Internal"]
        assert network["Labels"] == owner.labels()
        assert not link.egress_observed
    assert heard.lines == [NOTICE]
    with open_link(engine, owner, isolation="namespace", progress=heard):
        assert heard.lines == [NOTICE]


def test_bridge_names_end_nowhere_and_fast(engine: Engine, owner: Ownership) -> None:
    with linked(engine, owner, "debian", "bridge") as (link, inside):
        began = time.monotonic()
        assert inside.sh("getent hosts api.example.test")[0] == 2
        assert time.monotonic() - began < 3
        assert link.egress() == ()
        assert inside.sh("timeout 2 bash -c ': >/dev/tcp/192.0.2.1/80'")[0] != 0


def test_a_bridge_with_a_sandbox_still_on_it_is_removed(engine: Engine, owner: Ownership) -> None:
    with ExitStack() as stack:
        with open_link(engine, owner, isolation="bridge") as link:
            inside = stack.enter_context(box(engine, owner, "alpine", link))
        assert inside.sh("true")[0] == 0
        mine = {"label": [f"sandbox.run_id={owner.run_id}"]}
        assert engine.sdk.api.networks(filters=mine) == []


def test_an_engine_elsewhere_has_no_link(engine: Engine, owner: Ownership) -> None:
    info = engine.info.model_copy(update={"is_local": False, "can_enter_namespaces": False})
    away = Engine(engine.sdk, info)
    for isolation in ("auto", "bridge", "namespace"):
        with pytest.raises(Unsupported) as caught, open_link(away, owner, isolation=isolation):
            pass
        assert caught.value.cure is not None
        assert "engine's own host" in caught.value.cure
