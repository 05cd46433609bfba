"""The responder's answers, for queries, for nonsense, over UDP and TCP."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandbox.engine.dns import DnsResponder, note, reply_to
from sandbox.engine.egresslog import EgressLog
from sandbox.engine.namespace import bound

OWN = frozenset({dns.name.from_text("box")})


def ask(name: str, kind: str = "A", *, ident: int | None = None) -> bytes:
    return dns.message.make_query(name, kind, id=ident).to_wire()


def same_port() -> tuple[socket.socket, socket.socket]:
    """Bind one port for both protocols; a port that is free for UDP may be taken for TCP."""
    for _ in range(50):
        udp = bound(("127.0.0.1", 0), socket.SOCK_DGRAM)
        try:
            return udp, bound(udp.getsockname(), socket.SOCK_STREAM)
        except OSError:
            udp.close()
    raise AssertionError("no port is free for both protocols")


@contextmanager
def responder(hostname: str | None = None) -> Iterator[tuple[tuple[str, int], EgressLog]]:
    log = EgressLog()
    udp, tcp = same_port()
    served = DnsResponder(udp, tcp, log=log, hostname=hostname)
    try:
        yield udp.getsockname(), log
    finally:
        served.close()


@pytest.mark.parametrize("kind", ["A", "AAAA", "TXT", "HTTPS", "TYPE65399"])
def test_every_name_is_unknown_and_written_down(kind: str) -> None:
    reply = reply_to(ask("Api.Example.test", kind))
    assert reply.wire is not None
    answer = dns.message.from_wire(reply.wire)
    assert answer.rcode() == dns.rcode.NXDOMAIN
    assert answer.flags & dns.flags.QR
    assert answer.flags & dns.flags.RA
    assert answer.question == dns.message.from_wire(ask("Api.Example.test", kind)).question
    assert reply.asked == (("Api.Example.test", kind),)
    assert not reply.malformed


@pytest.mark.parametrize("name", ["localhost", "app.localhost", "LOCALHOST", "box", "Box."])
def test_names_of_the_sandbox_itself_are_loopback_and_no_egress(name: str) -> None:
    reply = reply_to(ask(name), own_names=OWN)
    assert reply.wire is not None
    answer = dns.message.from_wire(reply.wire)
    assert answer.rcode() == dns.rcode.NOERROR
    assert [str(item) for rrset in answer.answer for item in rrset] == ["127.0.0.1"]
    assert reply.asked == ()


def test_the_sandbox_has_no_ipv6_address_but_its_name_exists() -> None:
    reply = reply_to(ask("localhost", "AAAA"))
    assert reply.wire is not None
    answer = dns.message.from_wire(reply.wire)
    assert (answer.rcode(), answer.answer) == (dns.rcode.NOERROR, [])


@pytest.mark.parametrize("name", ["notlocalhost", "localhost.example.test", "box.example.test"])
def test_names_that_only_look_like_own_ones_are_egress(name: str) -> None:
    assert reply_to(ask(name), own_names=OWN).asked == ((name, "A"),)


def test_extensions_and_cookies_do_not_disturb() -> None:
    query = dns.message.make_query("example.test", "A", use_edns=0, want_dnssec=True)
    reply = reply_to(query.to_wire() + b"trailing")
    assert reply.asked == (("example.test", "A"),)


def test_an_answer_is_never_answered() -> None:
    answer = dns.message.make_response(dns.message.make_query("example.test", "A"))
    reply = reply_to(answer.to_wire())
    assert reply.wire is None
    assert reply.malformed


def test_other_operations_are_refused_with_the_same_id() -> None:
    query = dns.message.make_query("example.test", "A", id=77)
    query.set_opcode(dns.opcode.NOTIFY)
    reply = reply_to(query.to_wire())
    assert reply.wire is not None
    answer = dns.message.from_wire(reply.wire)
    assert (answer.id, answer.rcode()) == (77, dns.rcode.NOTIMP)


def test_two_questions_are_refused_but_both_are_written_down() -> None:
    query = dns.message.make_query("one.test", "A")
    query.question += dns.message.make_query("two.test", "AAAA").question
    reply = reply_to(query.to_wire())
    assert reply.asked == (("one.test", "A"), ("two.test", "AAAA"))
    assert reply.wire is not None
    assert dns.message.from_wire(reply.wire).rcode() == dns.rcode.FORMERR


@given(st.binary(max_size=600))
@example(b"")
@example(b"\0" * 12)
@example(b"\0\0\1\0\0\1\0\0\0\0\0\0\xc0\x0c\0\1\0\1")  # a name that points at itself
@example(b"\0\0\1\0\0\1\0\0\0\0\0\0\x3fa")  # a label that is cut
def test_any_bytes_get_a_readable_reply_or_none(wire: bytes) -> None:
    reply = reply_to(wire, own_names=OWN)
    if reply.wire is not None:
        answer = dns.message.from_wire(reply.wire)
        assert answer.id == int.from_bytes(wire[:2])
        assert answer.flags & dns.flags.QR


@given(st.binary(max_size=100), st.integers(0, 0xFFFF), st.integers(0, 3))
def test_any_question_after_a_good_header(body: bytes, ident: int, questions: int) -> None:
    wire = struct.pack("!HHHHHH", ident, dns.flags.RD, questions, 0, 0, 0) + body
    reply = reply_to(wire)
    assert reply.wire is not None
    assert dns.message.from_wire(reply.wire).id == ident


def test_nonsense_is_an_event_that_quotes_it() -> None:
    log = EgressLog(clock=lambda: 5.0)
    note(log, b"\x00" * 200, reply_to(b"\x00" * 200))
    (event,) = log.events()
    assert (event.kind, event.name, event.at) == ("malformed", "00" * 64, 5.0)


def test_a_flood_is_bounded_and_says_so() -> None:
    log = EgressLog(limit=3)
    for number in range(10):
        wire = ask(f"n{number}.test")
        note(log, wire, reply_to(wire))
    kinds = [event.kind for event in log.events()]
    assert kinds == ["dns", "dns", "dns", "left_out"]
    assert log.events()[-1].name.startswith("7 more")
    assert log.events()[-1].count == 7


def test_what_came_too_fast_is_told_too() -> None:
    log = EgressLog(clock=lambda: 5.0)
    log.miss(0)
    assert log.events() == ()
    log.miss(3)
    (event,) = log.events()
    assert (event.kind, event.count, event.at) == ("left_out", 3, 5.0)


def test_events_are_in_the_order_in_which_they_happened() -> None:
    log = EgressLog()
    for name, at in (("two.test", 2.0), ("one.test", 1.0)):
        note(log, b"", reply_to(ask(name)), at=at)
    assert [event.name for event in log.events()] == ["one.test", "two.test"]


@pytest.mark.parametrize(("kind", "answer"), [("A", ["198.18.0.1"]), ("AAAA", []), ("TXT", [])])
def test_where_connections_are_observed_a_name_has_one_address(
    kind: str, answer: list[str]
) -> None:
    reply = reply_to(ask("Api.Example.test", kind), address_of=lambda _: "198.18.0.1")
    assert reply.asked == (("Api.Example.test", kind),)
    assert reply.wire is not None
    told = dns.message.from_wire(reply.wire)
    assert told.rcode() == dns.rcode.NOERROR
    assert [str(item) for rrset in told.answer for item in rrset] == answer


def test_udp_clients_survive_each_other() -> None:
    with responder() as (address, log), socket.socket(type=socket.SOCK_DGRAM) as client:
        client.settimeout(5)
        for junk in (b"", b"x", b"\xff" * 500, ask("example.test", ident=1)[:-1]):
            client.sendto(junk, address)
        # An id of its own: the answer to the junk must not look like the one to the query.
        query = dns.message.make_query("after.test", "A", id=2)
        client.sendto(query.to_wire(), address)
        while not query.is_response(answer := dns.message.from_wire(client.recv(4096))):
            pass
        assert answer.rcode() == dns.rcode.NXDOMAIN
        assert [e.name for e in log.events() if e.kind == "dns"] == ["after.test"]
        assert len([e for e in log.events() if e.kind == "malformed"]) == 4


def test_tcp_messages_arrive_in_any_pieces() -> None:
    wires = [ask("one.test"), ask("two.test", "MX")]
    stream = b"".join(struct.pack("!H", len(wire)) + wire for wire in wires)
    with responder() as (address, log):
        for cut in range(1, len(stream)):
            with socket.create_connection(address, timeout=5) as client:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                client.sendall(stream[:cut])
                client.sendall(stream[cut:])
                for wire in wires:
                    (size,) = struct.unpack("!H", client.recv(2, socket.MSG_WAITALL))
                    answer = dns.message.from_wire(client.recv(size, socket.MSG_WAITALL))
                    assert answer.id == int.from_bytes(wire[:2])
        assert {event.name for event in log.events()} == {"one.test", "two.test"}


def test_many_silent_tcp_clients_do_not_stop_the_others() -> None:
    with responder() as (address, _):
        idle = [socket.create_connection(address, timeout=5) for _ in range(80)]
        try:
            with socket.socket(type=socket.SOCK_DGRAM) as client:
                client.settimeout(5)
                client.sendto(ask("example.test"), address)
                assert client.recv(4096)
        finally:
            for connection in idle:
                connection.close()


@pytest.mark.parametrize("hostname", ["a" * 64, "", None, "..", "box"])
def test_any_host_name_is_fine(hostname: str | None) -> None:
    with responder(hostname) as (address, _), socket.socket(type=socket.SOCK_DGRAM) as client:
        client.settimeout(5)
        client.sendto(ask("example.test"), address)
        assert client.recv(4096)


def _ended(client: socket.socket) -> bool:
    """The kernel resets a connection that was not accepted yet, and ends one that was."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_what_was_asked_before_the_close_is_written_down(kind: socket.SocketKind) -> None:
    log = EgressLog()
    with socket.socket(type=kind) as client:
        udp, tcp = same_port()
        client.connect(udp.getsockname())
        for number in range(50):
            wire = ask(f"n{number}.test")
            prefix = b"" if kind == socket.SOCK_DGRAM else struct.pack("!H", len(wire))
            client.send(prefix + wire)
        DnsResponder(udp, tcp, log=log).close()
    assert [event.name for event in log.events()] == [f"n{number}.test" for number in range(50)]


def test_close_ends_thread_and_sockets_at_once_and_twice() -> None:
    before = set(threading.enumerate())
    udp, tcp = same_port()
    served = DnsResponder(udp, tcp, log=EgressLog())
    with socket.create_connection(tcp.getsockname(), timeout=5) as client:
        began = time.monotonic()
        closers = [threading.Thread(target=served.close) for _ in range(3)]
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join()
        assert time.monotonic() - began < 4  # none of its time-outs was waited for
        assert _ended(client)
    assert udp.fileno() == tcp.fileno() == -1
    assert set(threading.enumerate()) == before
