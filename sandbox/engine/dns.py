"""Answer every name lookup of a sandbox at once, and write the name down.

The answer is "no such name", or, where connections are to be seen, an address of the sink's. Wire
format: RFC 1035 (UDP and, with a two-octet length before each message, TCP). No packet leaves the
sandbox, no lookup waits for a time-out, and the names asked for are in the egress log. Names that
mean the sandbox itself (``localhost`` as of RFC 6761 6.3, and its own host name) get 127.0.0.1 and
are not egress.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import cast

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset

from sandbox.engine.egresslog import EgressLog
from sandbox.engine.serving import IDLE_S, SocketThread, receive_stamped, stamp_arrivals
from sandbox.evidence.records import EgressEvent

_HEADER = struct.Struct("!HHHHHH")
_LENGTH = struct.Struct("!H")
_MAX_UDP = 65_535
_MAX_CONNECTIONS = 64
_QUOTED = 64
_LOCALHOST = dns.name.from_text("localhost")

AddressOf = Callable[[str], str | None]
"""The IPv4 address that a name (as asked for, without the final dot) gets; None: it is unknown."""


def unknown(name: str) -> None:
    """Give no name an address."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What one message gets: ``wire`` to send (None: nothing), and which names were asked for."""

    wire: bytes | None
    asked: tuple[tuple[str, str], ...] = ()
    malformed: bool = False


def reply_to(
    wire: bytes,
    *,
    own_names: frozenset[dns.name.Name] = frozenset(),
    address_of: AddressOf = unknown,
) -> Reply:
    """Return the reply to one DNS message; any bytes at all are an acceptable argument.

    Args:
        wire: the message without a length prefix.
        own_names: absolute names, in lower case, that mean the sandbox itself.
        address_of: gives other names an address.
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
    address = address_of(asked[0][0]) if asked else "127.0.0.1"
    return Reply(wire=_answer(query, address), asked=asked)


def _is_own(name: dns.name.Name, own_names: frozenset[dns.name.Name]) -> bool:
    return name in own_names or name.is_subdomain(_LOCALHOST)


def _answer(query: dns.message.Message, address: str | None) -> bytes:
    response = dns.message.make_response(query, recursion_available=True)
    if address is None:
        response.set_rcode(dns.rcode.NXDOMAIN)
    elif query.question[0].rdtype == dns.rdatatype.A:
        name = query.question[0].name
        response.answer = [dns.rrset.from_text(name, 0, "IN", "A", address)]
    return response.to_wire()


def _refusal(wire: bytes, rcode: dns.rcode.Rcode) -> bytes:
    ident, flags, *_ = _HEADER.unpack_from(wire)
    kept = flags & (0x7800 | dns.flags.RD)  # the operation and "recursion desired"
    return _HEADER.pack(ident, dns.flags.QR | dns.flags.RA | kept | rcode, 0, 0, 0, 0)


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


class DnsResponder(SocketThread):
    """Serves ``reply_to`` on a UDP and a listening TCP socket in one thread, until ``close``.

    It owns both sockets from the start of the constructor on.
    """

    def __init__(
        self,
        udp: socket.socket,
        tcp: socket.socket,
        *,
        log: EgressLog,
        hostname: str | None = None,
        address_of: AddressOf = unknown,
    ) -> None:
        super().__init__("sandbox-dns")
        self._udp, self._tcp, self._log = udp, tcp, log
        self._own = _own_names(hostname)
        self._address_of = address_of
        self._connections: dict[socket.socket, _Connection] = {}
        self.watch(udp, self._serve_datagram)
        self.watch(tcp, self._accept)
        stamp_arrivals(udp)
        self.begin()

    def _reply(self, wire: bytes, at: float | None) -> bytes | None:
        reply = reply_to(wire, own_names=self._own, address_of=self._address_of)
        note(self._log, wire, reply, at=at)
        return reply.wire

    def _serve_datagram(self) -> None:
        with suppress(OSError):  # the peer may be gone, which is its own affair
            wire, at, peer = receive_stamped(self._udp, _MAX_UDP)
            answer = self._reply(wire, at)
            if answer is not None:
                self._udp.sendto(answer, cast("tuple[str, int]", peer))

    def _accept(self) -> None:
        with suppress(OSError):
            peer, _ = self._tcp.accept()
            if len(self._connections) >= _MAX_CONNECTIONS:
                peer.close()
                return
            connection = self._connections[peer] = _Connection(peer)
            self.watch(peer, partial(self._serve_connection, connection))

    def _serve_connection(self, connection: _Connection) -> None:
        messages = connection.messages()
        if messages is None:
            self._hang_up(connection)
            return
        for wire in messages:
            answer = self._reply(wire, None)
            if answer is not None and not _sent(connection.peer, answer):
                self._hang_up(connection)
                return

    def idle(self) -> None:
        """Hang up on those who have been silent for long."""
        now = time.monotonic()
        for connection in list(self._connections.values()):
            if now - connection.heard > IDLE_S:
                self._hang_up(connection)

    def _hang_up(self, connection: _Connection) -> None:
        del self._connections[connection.peer]
        self.drop(connection.peer)


def note(log: EgressLog, wire: bytes, reply: Reply, *, at: float | None = None) -> None:
    """Write down what ``wire`` asked for, or that nothing could be made of it."""
    when = log.now() if at is None else at
    for name, record_type in reply.asked:
        log.add(EgressEvent(at=when, name=name, record_type=record_type))
    if reply.malformed:
        log.add(EgressEvent(at=when, kind="malformed", name=wire[:_QUOTED].hex()))


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
