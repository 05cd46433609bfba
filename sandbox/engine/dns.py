"""Answer every name lookup of a sandbox at once with "no such name", and write the name down.

Wire format: RFC 1035 (UDP and, with a two-octet length before each message, TCP). No packet leaves
the sandbox, no lookup waits for a time-out, and the names asked for are the egress log. Names that
mean the sandbox itself (``localhost`` as of RFC 6761 6.3, and its own host name) get 127.0.0.1 and
are not egress.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset

from sandbox.evidence.records import EgressEvent

MAX_EVENTS = 20_000
_HEADER = struct.Struct("!HHHHHH")
_LENGTH = struct.Struct("!H")
_MAX_UDP = 65_535
_MAX_CONNECTIONS = 64
_IDLE_S = 5.0
_LAST_ROUNDS = 10_000  # more datagrams than the kernel keeps for a socket
_QUOTED = 64
_LOCALHOST = dns.name.from_text("localhost")


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What one message gets: ``wire`` to send (None: nothing), and which names were asked for."""

    wire: bytes | None
    asked: tuple[tuple[str, str], ...] = ()
    malformed: bool = False


def reply_to(wire: bytes, *, own_names: frozenset[dns.name.Name] = frozenset()) -> Reply:
    """Return the reply to one DNS message; any bytes at all are an acceptable argument.

    Args:
        wire: the message without a length prefix.
        own_names: absolute names, in lower case, that mean the sandbox itself.
    """
    if len(wire) < _HEADER.size:
        return Reply(wire=None, malformed=True)
    if int.from_bytes(wire[2:4]) & dns.flags.QR:
        return Reply(wire=None, malformed=True)  # answering an answer could go on for ever
    if dns.opcode.from_flags(int.from_bytes(wire[2:4])) != dns.opcode.QUERY:
        return Reply(wire=_refusal(wire, dns.rcode.NOTIMP), malformed=True)
    try:
        query = dns.message.from_wire(wire, question_only=True, ignore_trailing=True)
    except dns.exception.DNSException:
        return Reply(wire=_refusal(wire, dns.rcode.FORMERR), malformed=True)
    names = [(q.name.canonicalize(), q) for q in query.question]
    asked = tuple(
        (q.name.to_text(omit_final_dot=True), dns.rdatatype.to_text(q.rdtype))
        for name, q in names
        if not _is_own(name, own_names)
    )
    if len(names) != 1:  # RFC 9619: a query has one question
        return Reply(wire=_refusal(wire, dns.rcode.FORMERR), asked=asked, malformed=True)
    return Reply(wire=_answer(query, own=not asked), asked=asked)


def _is_own(name: dns.name.Name, own_names: frozenset[dns.name.Name]) -> bool:
    return name in own_names or name.is_subdomain(_LOCALHOST)


def _answer(query: dns.message.Message, *, own: bool) -> bytes:
    response = dns.message.make_response(query, recursion_available=True)
    if not own:
        response.set_rcode(dns.rcode.NXDOMAIN)
    elif query.question[0].rdtype == dns.rdatatype.A:
        name = query.question[0].name
        response.answer = [dns.rrset.from_text(name, 0, "IN", "A", "127.0.0.1")]
    return response.to_wire()


def _refusal(wire: bytes, rcode: dns.rcode.Rcode) -> bytes:
    ident, flags, *_ = _HEADER.unpack_from(wire)
    kept = flags & (0x7800 | dns.flags.RD)  # the operation and "recursion desired"
    return _HEADER.pack(ident, dns.flags.QR | dns.flags.RA | kept | rcode, 0, 0, 0, 0)


class EgressLog:
    """The names asked for, in order; bounded, and the last event says so when some are left out."""

    def __init__(self, *, clock: Callable[[], float] = time.time, limit: int = MAX_EVENTS) -> None:
        self._clock = clock
        self._limit = limit
        self._lock = threading.Lock()
        self._events: list[EgressEvent] = []
        self._left_out = 0

    def note(self, wire: bytes, reply: Reply) -> None:
        """Write down what ``wire`` asked for, or that nothing could be made of it."""
        for name, record_type in reply.asked:
            self._add("dns", name, record_type)
        if reply.malformed:
            self._add("malformed", wire[:_QUOTED].hex(), "")

    def _add(
        self, kind: Literal["dns", "malformed", "left_out"], name: str, record_type: str
    ) -> None:
        event = EgressEvent(at=self._clock(), kind=kind, name=name, record_type=record_type)
        with self._lock:
            if len(self._events) < self._limit:
                self._events.append(event)
            else:
                self._left_out += 1

    def events(self) -> tuple[EgressEvent, ...]:
        """Return the events so far."""
        with self._lock:
            events = tuple(self._events)
            if self._left_out:
                more = f"{self._left_out} more events were not kept"
                events += (
                    EgressEvent(at=events[-1].at, kind="left_out", name=more, record_type=""),
                )
            return events


class _Connection:
    """One TCP client: its unread bytes, and when it was last heard of."""

    def __init__(self, peer: socket.socket) -> None:
        self.peer = peer
        self.unread = b""
        self.heard = time.monotonic()

    def messages(self) -> list[bytes] | None:
        """Read what has come; return the whole messages in it, or None at the end."""
        try:
            received = self.peer.recv(_MAX_UDP)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not received:
            return None
        self.heard = time.monotonic()
        self.unread += received
        whole = []
        while len(self.unread) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self.unread)[0]
            if len(self.unread) < end:
                break
            whole.append(self.unread[_LENGTH.size : end])
            self.unread = self.unread[end:]
        return whole


class DnsResponder:
    """Serves ``reply_to`` on a UDP and a listening TCP socket in one thread, until ``close``.

    It owns both sockets from the start of the constructor on. The thread needs nothing from the
    sandbox: it runs on, idle, when the container dies, until ``close``.
    """

    def __init__(
        self, udp: socket.socket, tcp: socket.socket, *, log: EgressLog, hostname: str | None = None
    ) -> None:
        self._udp, self._tcp, self._log = udp, tcp, log
        self._own = _own_names(hostname)
        self._connections: dict[socket.socket, _Connection] = {}
        self._selector = selectors.DefaultSelector()
        self._wake, self._waker = socket.socketpair()
        for readable in (self._wake, udp, tcp):
            readable.settimeout(0.0)
            self._selector.register(readable, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="sandbox-dns", daemon=True)
        self._closing = threading.Lock()
        self._closed = False
        self._thread.start()

    def close(self) -> None:
        """End the thread and close every socket; a second call does nothing.

        What was sent before is served before: nobody may have waited for its answer.
        """
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._waker.close()
            self._thread.join()

    def _serve(self) -> None:
        try:
            while self._serve_ready(_IDLE_S):
                self._drop_idle()
            for _ in range(_LAST_ROUNDS):
                if not self._serve_ready(0):
                    break
        finally:
            for owned in (*self._connections, self._udp, self._tcp, self._wake, self._waker):
                owned.close()
            self._selector.close()

    def _serve_ready(self, wait_s: float) -> bool:
        """Serve what is ready within ``wait_s``; return False when it is time to end.

        That is when ``close`` was called; from then on, when nothing is ready any more.
        """
        ready = [key.fileobj for key, _ in self._selector.select(wait_s)]
        if self._wake in ready:
            self._selector.unregister(self._wake)
            return False
        for source in ready:
            if source is self._udp:
                self._serve_datagram()
            elif source is self._tcp:
                self._accept()
            elif source in self._connections:
                self._serve_connection(self._connections[source])
        return bool(ready) or wait_s > 0

    def _reply(self, wire: bytes) -> bytes | None:
        reply = reply_to(wire, own_names=self._own)
        self._log.note(wire, reply)
        return reply.wire

    def _serve_datagram(self) -> None:
        with suppress(OSError):  # the peer may be gone, which is its own affair
            wire, peer = self._udp.recvfrom(_MAX_UDP)
            answer = self._reply(wire)
            if answer is not None:
                self._udp.sendto(answer, peer)

    def _accept(self) -> None:
        with suppress(OSError):
            peer, _ = self._tcp.accept()
            if len(self._connections) >= _MAX_CONNECTIONS:
                peer.close()
                return
            peer.settimeout(0.0)
            self._connections[peer] = _Connection(peer)
            self._selector.register(peer, selectors.EVENT_READ)

    def _serve_connection(self, connection: _Connection) -> None:
        messages = connection.messages()
        if messages is None:
            self._drop(connection)
            return
        for wire in messages:
            answer = self._reply(wire)
            if answer is not None and not _sent(connection.peer, answer):
                self._drop(connection)
                return

    def _drop_idle(self) -> None:
        now = time.monotonic()
        for connection in list(self._connections.values()):
            if now - connection.heard > _IDLE_S:
                self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        self._selector.unregister(connection.peer)
        del self._connections[connection.peer]
        connection.peer.close()


def _sent(peer: socket.socket, answer: bytes) -> bool:
    """Send one framed answer whole; a peer that reads too slowly for its few bytes loses."""
    framed = _LENGTH.pack(len(answer)) + answer
    try:
        return peer.send(framed) == len(framed)
    except OSError:
        return False


def _own_names(hostname: str | None) -> frozenset[dns.name.Name]:
    if not hostname:
        return frozenset()
    try:
        return frozenset({dns.name.from_text(hostname).canonicalize()})
    except dns.exception.DNSException:
        return frozenset()  # a host name that is no DNS name cannot be asked for either
