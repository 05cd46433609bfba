"""Egress in real sandboxes of both libc families: what was tried, as the link's log has it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sandbox.engine.client import Engine
from sandbox.engine.images import ensure_image, image_definition
from sandbox.engine.link import ModelLink, open_link
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import Unsupported
from sandbox.evidence.egress import Moments, counted
from sandbox.evidence.records import EgressEvent, EgressSeen
from sandbox.progress import PlainProgress
from tests.hello import client_hello
from tests.probes import SHELL, dial, octal

pytestmark = pytest.mark.docker
IMAGES = {"debian": "debian-12", "alpine": "alpine-3.23"}
both_images = pytest.mark.parametrize("kind", sorted(IMAGES))
HTTP = "GET /x?secret=1 HTTP/1.1\\r\\nHost: {}\\r\\n\\r\\n"

Seen = tuple[str, str, int | None, str | None, str | None, str | None, int]


class Box:
    """A started sandbox with its link."""

    def __init__(self, kind: str, link: ModelLink, sandbox: Sandbox) -> None:
        self.kind, self.link, self.sandbox = kind, link, sandbox

    def sh(self, script: str) -> str:
        shell = SHELL[self.kind]
        done = self.sandbox.exec([shell, "-c", script], deadline_s=60)
        return done.stdout.text

    def dial(self, host: str, port: int, said: str = "") -> None:
        """Connect, say something, and wait for the end."""
        self.sh(dial(self.kind, host, port, said))

    def connections(self) -> list[Seen]:
        """What was tried, but for look-ups; each once, with its number."""
        return [seen(one) for one in self.counted() if one.kind != "dns"]

    def counted(self) -> tuple[EgressEvent, ...]:
        return counted(self.link.egress(), Moments(seeded=None, asked=None, told=None))

    def names(self) -> set[str]:
        return {one.name for one in self.link.egress() if one.kind == "dns"}


def seen(one: EgressEvent) -> Seen:
    return one.kind, one.name, one.port, one.protocol, one.named_by, one.address, one.count


class Lab:
    """Makes watched sandboxes."""

    def __init__(self, engine: Engine, owner: Ownership) -> None:
        self._engine, self._owner = engine, owner

    @contextmanager
    def box(self, kind: str, egress: EgressSeen = "connections") -> Iterator[Box]:
        engine, owner = self._engine, self._owner
        quiet = PlainProgress(quiet=True)
        image = ensure_image(engine, image_definition(IMAGES[kind]), quiet).ref
        with (
            open_link(engine, owner, egress=egress, progress=quiet) as link,
            Sandbox(engine, image, owner=owner, link=link) as sandbox,
        ):
            yield Box(kind, link, sandbox)


@pytest.fixture
def lab(engine: Engine) -> Iterator[Lab]:
    threads = set(threading.enumerate())
    yield Lab(engine, Ownership.current(run_id=f"sink-{uuid.uuid4().hex[:8]}"))
    assert set(threading.enumerate()) <= threads


@both_images
def test_everything_that_is_tried_is_told_once(lab: Lab, kind: str) -> None:
    with lab.box(kind) as box:
        box.sh("getent hosts only.test")
        box.dial("tls.test", 443, octal(client_hello("tls.test")))
        box.dial("front.test", 443, octal(client_hello("behind.test")))
        box.dial("nameless.test", 443, octal(client_hello(None)))
        box.dial("http.test", 80, HTTP.format("http.test:80"))
        box.dial("http.test", 80, HTTP.format("other.test"))
        for _ in range(3):
            box.dial("192.0.2.7", 22)
        box.dial("192.0.2.8", 443, octal(client_hello("bare.test")))
        box.dial("odd.test", 8443, octal(client_hello("odd.test")))
        box.dial("talk.test", 80, "SSH-2.0-x\\r\\n")
        assert box.names() == {
            *("only.test", "tls.test", "front.test", "nameless.test", "http.test", "odd.test"),
            "talk.test",
        }
        assert box.connections() == [
            ("tcp", "tls.test", 443, "tls", "sni", None, 1),
            ("tcp", "behind.test", 443, "tls", "sni", None, 1),
            ("tcp", "nameless.test", 443, "tls", "dns", None, 1),
            ("tcp", "http.test", 80, "http", "host", None, 1),
            ("tcp", "other.test", 80, "http", "host", None, 1),
            ("tcp", "192.0.2.7", 22, None, None, "192.0.2.7", 3),
            ("tcp", "bare.test", 443, "tls", "sni", "192.0.2.8", 1),
            ("tcp", "odd.test", 8443, None, "dns", None, 1),
            ("tcp", "talk.test", 80, None, "dns", None, 1),
        ]


@both_images
def test_nothing_leaves_and_loopback_is_no_egress(lab: Lab, kind: str) -> None:
    with lab.box(kind) as box:
        for host in ("127.0.0.1", "localhost", "127.1.2.3"):
            box.dial(host, 80, HTTP.format("local.test"))
            box.dial(host, 9)
        assert box.link.egress() == ()
        box.dial("tls.test", 443, octal(client_hello("tls.test")))
        devices = box.sh("cat /proc/net/dev").splitlines()[2:]
        assert [line.split(":")[0].strip() for line in devices] == ["lo"]
        box.link.count_unrouted()
        assert {one.kind for one in box.link.egress()} == {"dns", "tcp"}


def test_datagrams_and_echo_requests(lab: Lab) -> None:
    with lab.box("alpine") as box:
        box.sh("nslookup out.test 192.0.2.53; ping -c 1 -w 5 192.0.2.9; ping -c 1 -w 5 127.0.0.1")
        found = {one[:-1] for one in box.connections()}
        assert found == {
            ("udp", "192.0.2.53", 53, None, None, "192.0.2.53"),
            ("icmp", "192.0.2.9", None, None, None, "192.0.2.9"),
        }


def test_a_real_client_of_the_image(lab: Lab) -> None:
    with lab.box("alpine") as box:
        box.sh("curl -s -m 20 https://curl.test/x; curl -s -m 20 http://curl.test/x")
        assert box.connections() == [
            ("tcp", "curl.test", 443, "tls", "sni", None, 1),
            ("tcp", "curl.test", 80, "http", "host", None, 1),
        ]


@both_images
def test_many_at_once_are_all_counted(lab: Lab, kind: str) -> None:
    hello = octal(client_hello("many.test"))
    once = dial(kind, "many.test", 443, hello)
    with lab.box(kind) as box:
        box.sh(f"for i in 1 2 3 4 5 6 7 8 9 10 11 12; do ({once}) & done; wait")
        assert box.connections() == [("tcp", "many.test", 443, "tls", "sni", None, 12)]


def test_a_caller_that_says_nothing_is_told_when_the_link_ends(lab: Lab) -> None:
    with lab.box("debian") as box:
        box.sh("exec 3<>/dev/tcp/silent.test/443; sleep 600 >/dev/null 2>&1 & echo")
        assert box.link.egress()[-1].kind == "dns"
    assert box.connections() == [("tcp", "silent.test", 443, None, "dns", None, 1)]
    assert box.connections() == box.connections()


@both_images
def test_where_names_are_unknown_bare_addresses_are_counted(lab: Lab, kind: str) -> None:
    with lab.box(kind, "names") as box:
        box.link.count_unrouted()
        assert box.link.egress() == ()
        box.dial("tls.test", 443, octal(client_hello("tls.test")))
        box.dial("192.0.2.7", 22)
        box.dial("192.0.2.8", 22)
        box.dial("127.0.0.1", 9)
        box.link.count_unrouted()
        assert box.connections() == [("unrouted", "", None, None, None, None, 2)]
        assert box.names() == {"tls.test"}
        box.dial("192.0.2.8", 22)
    assert box.connections() == [("unrouted", "", None, None, None, None, 3)]


class Late:
    """A link that is attached when the test says so."""

    def __init__(self, link: ModelLink) -> None:
        self._link = link
        self.create_options = link.create_options

    def attach(self, sandbox: Sandbox) -> None:
        pass


def test_an_image_with_a_web_server_cannot_be_observed(engine: Engine, lab: Lab) -> None:
    quiet = PlainProgress(quiet=True)
    owner = Ownership.current(run_id=f"sink-{uuid.uuid4().hex[:8]}")
    image = ensure_image(engine, image_definition("alpine-3.23"), quiet).ref
    with (
        open_link(engine, owner, egress="connections", progress=quiet) as link,
        Sandbox(engine, image, owner=owner, link=Late(link)) as sandbox,
    ):
        server = "nc -l -p 80 >/dev/null 2>&1 </dev/null &"
        script = f"{server} until netstat -ltn | grep -q :80; do :; done"
        sandbox.exec(["sh", "-c", script], deadline_s=30)
        with pytest.raises(Unsupported, match="cannot be observed: Address already in use"):
            link.attach(sandbox)
