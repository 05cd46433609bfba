"""The model link in real containers of both libc families."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sandbox.engine.bridge import NOTICE
from sandbox.engine.client import Engine
from sandbox.engine.images import ensure_image, image_definition
from sandbox.engine.link import ModelLink, choose_isolation, open_link
from sandbox.engine.namespace import open_network
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import ContainerGone, Unsupported
from sandbox.progress import PlainProgress

pytestmark = pytest.mark.docker

GET = {
    "debian": 'exec 3<>"/dev/tcp/$1/$2" && printf "hello" >&3 && cat <&3',
    "alpine": 'printf "hello" | nc -w 5 "$1" "$2"',
}
SHELL = {"debian": "bash", "alpine": "sh"}


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
    """Names of this process's open namespaces, and of its sockets that are not Unix ones."""
    unix = {line.split()[6] for line in Path("/proc/net/unix").read_text().splitlines()[1:]}
    names = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            name = str(entry.readlink())
        except OSError:
            continue
        if name.startswith("net:") or (name.startswith("socket:") and name[8:-1] not in unix):
            names.add(name)
    return names


class Box:
    """A started sandbox, and how this image's tools call a server."""

    def __init__(self, engine: Engine, kind: str, sandbox: Sandbox) -> None:
        self.kind = kind
        self.sandbox = sandbox
        self.id = sandbox.id
        self._api = engine.sdk.api

    def sh(self, script: str, *args: str) -> tuple[int | None, str]:
        argv = [SHELL[self.kind], "-c", script, SHELL[self.kind], *args]
        done = self.sandbox.exec(argv, deadline_s=30)
        return done.exit_code, done.stdout.text

    def start_in_background(self, *argv: str) -> None:
        self._api.exec_start(self._api.exec_create(self.id, list(argv))["Id"], detach=True)

    def kill(self) -> None:
        self._api.kill(self.id)
        self._api.wait(self.id)


class Unattached:
    """A link that lets the sandbox start without attaching itself."""

    def __init__(self, link: ModelLink) -> None:
        self._link = link

    def create_options(self) -> dict[str, Any]:
        return self._link.create_options()

    def attach(self, sandbox: Sandbox) -> None:
        pass


@pytest.fixture(scope="module")
def images(engine: Engine) -> dict[str, str]:
    quiet = PlainProgress(quiet=True)
    return {
        kind: ensure_image(engine, image_definition(name), quiet).ref
        for kind, name in (("debian", "debian-12"), ("alpine", "alpine-3.23"))
    }


@dataclass
class Lab:
    """Makes links and sandboxes of one owner."""

    engine: Engine
    owner: Ownership
    images: dict[str, str]

    @contextmanager
    def linked(self, kind: str, isolation: Any = "auto") -> Iterator[tuple[ModelLink, Box]]:
        with (
            open_link(self.engine, self.owner, isolation=isolation) as link,
            Sandbox(self.engine, self.images[kind], owner=self.owner, link=link) as sandbox,
        ):
            yield link, Box(self.engine, kind, sandbox)

    @contextmanager
    def unattached(self, kind: str, link: ModelLink) -> Iterator[Box]:
        image, later = self.images[kind], Unattached(link)
        with Sandbox(self.engine, image, owner=self.owner, link=later) as sandbox:
            yield Box(self.engine, kind, sandbox)


@pytest.fixture
def lab(engine: Engine, owner: Ownership, images: dict[str, str]) -> Lab:
    return Lab(engine, owner, images)


@contextmanager
def echo(listener: socket.socket, *, whole: bool = False) -> Iterator[list[bytes]]:
    """Answer every connection on ``listener`` with what it says (to its end), in capitals."""
    heard: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer:
                heard.append(peer.makefile("rb").read() if whole else peer.recv(100))
                peer.sendall(heard[-1].upper())

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield heard
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


both_images = pytest.mark.parametrize("kind", ["alpine", "debian"])
each_link = pytest.mark.parametrize("isolation", ["namespace", "bridge", "relay"])


@both_images
@each_link
def test_the_sandbox_reaches_the_listener(lab: Lab, kind: str, isolation: str) -> None:
    with lab.linked(kind, isolation) as (link, inside):
        assert link.isolation == isolation
        with echo(link.listen()) as heard:
            assert inside.sh(GET[kind], link.host, str(link.port)) == (0, "HELLO")
        assert heard == [b"hello"]


@both_images
def test_root_on_the_engines_host_gets_the_namespace(lab: Lab, kind: str) -> None:
    with lab.linked(kind) as (link, inside):
        assert link.isolation == choose_isolation(lab.engine) == "namespace"
        assert link.egress_seen == "names"
        code, text = inside.sh("cat /proc/net/dev")
        assert code == 0
        assert [line.split(":")[0].strip() for line in text.splitlines()[2:]] == ["lo"]
        assert inside.sh("cat /proc/net/route | wc -l")[1].strip() == "1"  # the heading


def answers_within(seconds: float, inside: Box) -> bool:
    """Tell whether a lookup ends so soon: a time-out shows in each, a busy machine in some."""

    def lookup() -> float:
        began = time.monotonic()
        assert inside.sh("getent hosts api.example.test")[0] == 2
        return time.monotonic() - began

    return any(lookup() < seconds for _ in range(10))


@both_images
def test_looked_up_names_are_unknown_at_once_and_logged(lab: Lab, kind: str) -> None:
    with lab.linked(kind) as (link, inside):
        assert answers_within(1.0, inside)  # one time-out of the resolver is 1 s
        asked = [(event.kind, event.name) for event in link.egress()]
        assert set(asked) == {("dns", "api.example.test")}
        assert {event.record_type for event in link.egress()} <= {"A", "AAAA"}
    assert link.egress()[0].at == pytest.approx(time.time(), abs=60)


@both_images
@each_link
def test_localhost_is_loopback(lab: Lab, kind: str, isolation: str) -> None:
    with lab.linked(kind, isolation) as (link, inside):
        code, text = inside.sh("getent hosts localhost")
        assert code == 0
        assert text.split()[0] in ("127.0.0.1", "::1")
        assert link.egress() == ()


@both_images
def test_the_sandbox_knows_its_own_name(lab: Lab, kind: str) -> None:
    with lab.linked(kind) as (link, inside):
        code, text = inside.sh('getent hosts "$(hostname)"')
        assert (code, text.split()[:1]) == (0, ["127.0.0.1"])
        assert link.egress() == ()


def test_names_can_be_looked_up_over_tcp(lab: Lab) -> None:
    wire = b"\0\x1a\0\7\1\0\0\1\0\0\0\0\0\0\3tcp\4test\0\0\1\0\1"
    query = "".join(f"\\x{octet:02x}" for octet in wire)
    script = f"exec 3<>/dev/tcp/127.0.0.1/53; printf '{query}' >&3; head -c 6 <&3 | od -An -tx1"
    with lab.linked("debian") as (link, inside):
        code, text = inside.sh(script)
        assert (code, text.split()) == (0, ["00", "1a", "00", "07", "81", "83"])
        assert [event.name for event in link.egress()] == ["tcp.test"]


def test_nonsense_from_the_sandbox_is_an_event(lab: Lab) -> None:
    with lab.linked("debian") as (link, inside):
        assert inside.sh("printf nonsense >/dev/udp/127.0.0.1/53")[0] == 0
        assert inside.sh("getent hosts still.test")[0] == 2
        kinds = {event.kind: event.name for event in link.egress()}
        assert kinds == {"malformed": b"nonsense".hex(), "dns": "still.test"}


def test_search_domains_of_the_host_stay_outside(lab: Lab) -> None:
    with lab.linked("debian") as (_, inside):
        _, text = inside.sh("cat /etc/resolv.conf")
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        assert lines == ["nameserver 127.0.0.1", "options timeout:1 attempts:1"]


def test_each_sandbox_has_its_own_listener(lab: Lab) -> None:
    kinds = ["debian", "alpine", "debian", "alpine"]
    with ExitStack() as stack:
        pairs = [stack.enter_context(lab.linked(kind)) for kind in kinds]
        heard = [stack.enter_context(echo(link.listen())) for link, _ in pairs]

        def call(number: int) -> tuple[int | None, str]:
            link, inside = pairs[number]
            inside.sh(f"getent hosts name-{number}.test")
            script = GET[inside.kind].replace("hello", f"hello {number}")
            return inside.sh(script, link.host, str(link.port))

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(call, range(4))) == [(0, f"HELLO {n}") for n in range(4)]
        assert heard == [[b"hello %d" % n] for n in range(4)]
        for number, (link, _) in enumerate(pairs):
            assert {event.name for event in link.egress()} == {f"name-{number}.test"}


def test_the_listener_is_not_reachable_from_the_host_or_another_sandbox(lab: Lab) -> None:
    with (
        lab.linked("debian") as (link, _),
        lab.linked("debian") as (_, other),
        echo(link.listen()),
    ):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", link.port), timeout=5)
        assert other.sh(GET["debian"], link.host, str(link.port))[0] != 0


def test_several_listeners_and_a_caller_that_closes_its_own(lab: Lab) -> None:
    with lab.linked("alpine") as (link, inside):
        first = link.listen()
        first_port = link.port
        first.close()
        with echo(link.listen()):
            assert link.port != first_port
            assert inside.sh(GET["alpine"], link.host, str(link.port)) == (0, "HELLO")


def test_the_container_may_die_while_the_link_is_open(lab: Lab) -> None:
    with lab.linked("debian") as (link, inside):
        listener = link.listen()
        inside.sh("getent hosts before.test")
        inside.kill()
        assert [event.name for event in link.egress()][:1] == ["before.test"]
    assert listener.fileno() == -1


@each_link
def test_an_error_while_the_sandbox_runs_leaves_nothing(lab: Lab, isolation: str) -> None:
    def fail() -> None:
        with lab.linked("alpine", isolation) as (link, _):
            link.listen()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()


def test_a_container_that_is_not_running_is_gone(lab: Lab) -> None:
    with open_link(lab.engine, lab.owner) as link, lab.unattached("alpine", link) as inside:
        inside.kill()
        with pytest.raises(ContainerGone, match="not running"):
            link.attach(inside)
    with open_link(lab.engine, lab.owner) as link, pytest.raises(ContainerGone):
        link.attach(inside)  # removed by now


def test_a_recycled_pid_is_never_entered(lab: Lab) -> None:
    with lab.linked("alpine") as (_, inside):
        with pytest.raises(Unsupported, match="is not the container's"):
            open_network(os.getpid(), inside.id)
        with pytest.raises(ContainerGone):
            open_network(2**22 - 1, inside.id)


def test_another_server_on_port_53_is_an_error_and_leaves_nothing(lab: Lab) -> None:
    with open_link(lab.engine, lab.owner) as link, lab.unattached("alpine", link) as inside:
        inside.start_in_background("nc", "-l", "-p", "53", "-s", "127.0.0.1")
        deadline = time.monotonic() + 5
        while inside.sh("netstat -ltn | grep -q :53")[0] != 0:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with pytest.raises(Unsupported, match="port 53"):
            link.attach(inside)


def misuse(call: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError):
        call()


def test_wrong_order_of_calls_is_a_clear_error(lab: Lab) -> None:
    with open_link(lab.engine, lab.owner) as link, lab.unattached("alpine", link) as inside:
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


def test_the_weaker_isolation_is_announced_and_labelled(lab: Lab) -> None:
    heard = Heard()
    with open_link(lab.engine, lab.owner, isolation="bridge", progress=heard) as link:
        mine = {"label": [f"sandbox.run_id={lab.owner.run_id}"]}
        (network,) = lab.engine.sdk.api.networks(filters=mine)
        assert network["Internal"]
        assert network["Labels"] == lab.owner.labels()
        assert link.egress_seen is None
    assert heard.lines == [NOTICE]
    with open_link(lab.engine, lab.owner, isolation="namespace", progress=heard):
        assert heard.lines == [NOTICE]


@both_images
def test_bridge_names_end_nowhere_and_fast(lab: Lab, kind: str) -> None:
    with lab.linked(kind, "bridge") as (link, inside):
        assert answers_within(0.9, inside)
        assert link.egress() == ()
        connect = 'timeout 1 "$0" -c "$1" sh 192.0.2.1 80'
        assert inside.sh(connect, GET[kind])[0] != 0


def test_a_bridge_with_a_sandbox_still_on_it_is_removed(lab: Lab) -> None:
    with ExitStack() as stack:
        with open_link(lab.engine, lab.owner, isolation="bridge") as link:
            inside = stack.enter_context(lab.unattached("alpine", link))
        assert inside.sh("true")[0] == 0
        mine = {"label": [f"sandbox.run_id={lab.owner.run_id}"]}
        assert lab.engine.sdk.api.networks(filters=mine) == []


def test_an_engine_elsewhere_has_a_relay_and_no_other_link(lab: Lab) -> None:
    info = lab.engine.info.model_copy(update={"is_local": False, "can_enter_namespaces": False})
    away = Engine(lab.engine.sdk, info)
    assert choose_isolation(away) == "relay"
    for isolation in ("bridge", "namespace"):
        with pytest.raises(Unsupported) as caught, open_link(away, lab.owner, isolation=isolation):
            pass
        assert caught.value.cure is not None
        assert "engine's own host" in caught.value.cure


def test_what_a_relay_carries(lab: Lab) -> None:
    with lab.linked("alpine", "relay") as (link, inside):
        assert link.egress_seen is None
        assert inside.sh("cut -d: -f1 /proc/net/dev | tail -n +3")[1].split() == ["lo"]
        with echo(link.listen(), whole=True) as heard:
            much = "head -c 3000000 /dev/zero | tr '\\0' a"
            answer = f"{much} | nc -w 20 $1 $2 | sha256sum"
            wanted = hashlib.sha256(b"A" * 3_000_000).hexdigest()
            assert inside.sh(answer, link.host, str(link.port))[1].split()[0] == wanted
            many = f"for i in 1 2 3 4 5 6 7 8; do ({GET['alpine']}) & done; wait"
            assert inside.sh(many, link.host, str(link.port)) == (0, "HELLO" * 8)
        assert len(heard) == 9
