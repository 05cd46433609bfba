"""The sink: where connections of an observed sandbox end, so that it is known whom they were for.

In the sandbox's network namespace every address is made its own (``anyip``), names that are looked
up get one address each, a packet socket sees what begins, and the ports of the web are listened on,
to hear the SNI or Host before the connection is closed. Other ports refuse. Nothing leaves; but a
harness behaves otherwise than where names are unknown, so this is for measuring egress alone.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from ipaddress import IPv4Network

from sandbox.engine import packets
from sandbox.engine.anyip import keep_all_addresses
from sandbox.engine.egresslog import MAX_EVENTS, EgressLog
from sandbox.engine.firstwords import LONGEST, FirstWords, first_words
from sandbox.engine.namespace import bound
from sandbox.engine.packets import Attempt, attempt_in, packet_socket
from sandbox.engine.serving import SocketThread, receive_stamped
from sandbox.evidence.records import EgressEvent

PORTS = (80, 443)
BLOCK = IPv4Network("198.18.0.0/15")
"""Addresses of names: a block that is nobody's (RFC 2544)."""

_ANYWHERE = "0.0.0.0"
_MAX_CONNECTIONS = 256
_SILENT_S = 30.0
_CHUNK = 16 * 1024
_RESET = struct.pack("ii", 1, 0)

_Ends = tuple[str, int, str, int]


class SinkNames:
    """Gives each name an address of ``block``, in the order in which they come."""

    def __init__(self, block: IPv4Network = BLOCK) -> None:
        self._block = block
        self._lock = threading.Lock()
        self._addresses: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def address_of(self, name: str) -> str | None:
        """Return the name's address; None when there is no more."""
        key = name.lower()
        with self._lock:
            number = len(self._names) + 1
            if key not in self._addresses and number < self._block.num_addresses - 1:
                self._addresses[key] = str(self._block[number])
                self._names[self._addresses[key]] = key
            return self._addresses.get(key)

    def name_of(self, address: str) -> str | None:
        """Return whose address it is; None: nobody's."""
        with self._lock:
            return self._names.get(address)


class _Caller:
    """An accepted connection: what is known of it, and what it said."""

    def __init__(self, peer: socket.socket, event: EgressEvent) -> None:
        self.peer, self.event = peer, event
        self.said = bytearray()
        self.since = time.monotonic()

    def listen(self) -> FirstWords | None:
        """Read what has come; return what it says once that is known."""
        while len(self.said) < LONGEST:
            try:
                part = self.peer.recv(_CHUNK)
            except BlockingIOError:
                return first_words(bytes(self.said), ended=False)
            except OSError:
                part = b""
            if not part:
                break
            self.said += part
        return first_words(bytes(self.said), ended=True)


class Sink(SocketThread):
    """Notes every attempt in ``log`` until ``close``; owns the sockets from the start on.

    Args:
        listeners: sockets that listen on any address; whoever comes is heard and closed.
        tap: a packet socket of the same namespace.
        names: whose the addresses are.
        log: where the attempts go.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        tap: socket.socket,
        *,
        names: SinkNames,
        log: EgressLog,
    ) -> None:
        super().__init__("sandbox-sink")
        self._tap, self._listeners, self._names, self._log = tap, tuple(listeners), names, log
        self._ports = {one.getsockname()[1] for one in listeners}
        self._begun: dict[_Ends, EgressEvent] = {}
        self._callers: dict[socket.socket, _Caller] = {}
        self.watch(tap, self._take_packets)
        for listener in listeners:
            self.watch(listener, partial(self._accept, listener))
        self.begin()

    def settle(self) -> None:
        """Take in what has happened by now, also what the thread has not come to yet."""
        with self.lock:
            if self.over:
                return
            self._take_packets()
            for listener in self._listeners:
                self._accept(listener)
            for caller in list(self._callers.values()):
                self._hear(caller)

    def ending(self) -> None:
        """Note what is left: connections that have not said who they are for, and what was lost."""
        self.settle()
        self._log.miss(packets.lost(self._tap))
        for caller in list(self._callers.values()):
            self._end(caller, first_words(bytes(caller.said), ended=True))
        for event in self._begun.values():
            self._log.add(event)
        self._begun.clear()

    def idle(self) -> None:
        """Close connections that say nothing."""
        now = time.monotonic()
        for caller in list(self._callers.values()):
            if now - caller.since > _SILENT_S:
                self._end(caller, first_words(bytes(caller.said), ended=True))

    def _take_packets(self) -> None:
        with suppress(OSError):  # until there are no more
            while True:
                data, at, _ = receive_stamped(self._tap, packets.SNAP)
                attempt = attempt_in(data)
                if attempt is not None:
                    self._note(attempt, self._log.now() if at is None else at)

    def _note(self, attempt: Attempt, at: float) -> None:
        event = self._event(attempt.kind, attempt.address, attempt.port, at)
        if attempt.kind == "tcp" and attempt.port in self._ports:
            assert attempt.port is not None
            assert attempt.source_port is not None
            ends = (attempt.source, attempt.source_port, attempt.address, attempt.port)
            if len(self._begun) < MAX_EVENTS:
                self._begun.setdefault(ends, event)  # a SYN may be sent again
            else:
                self._log.miss(1)
        else:
            self._log.add(event)

    def _event(self, kind: str, address: str, port: int | None, at: float) -> EgressEvent:
        name = self._names.name_of(address)
        return EgressEvent.model_validate(
            {
                "at": at,
                "kind": kind,
                "name": name or address,
                "named_by": "dns" if name else None,
                "address": None if name else address,
                "port": port,
            }
        )

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):  # until there are no more
            while True:
                peer, source = listener.accept()
                address, port = peer.getsockname()
                if address.startswith("127."):
                    _refuse(peer)
                    continue
                self._take_packets()  # its first packet is among them
                event = self._begun.pop((*source, address, port), None)
                caller = _Caller(peer, event or self._event("tcp", address, port, self._log.now()))
                self._callers[peer] = caller
                self.watch(peer, partial(self._hear, caller))
                if len(self._callers) > _MAX_CONNECTIONS:
                    self._end(caller, None)

    def _hear(self, caller: _Caller) -> None:
        words = caller.listen()
        if words is not None:
            self._end(caller, words)

    def _end(self, caller: _Caller, words: FirstWords | None) -> None:
        said: dict[str, str] = {}
        if words is not None and words.protocol is not None:
            said["protocol"] = words.protocol
            if words.host is not None:
                said["name"] = words.host
                said["named_by"] = "sni" if words.protocol == "tls" else "host"
        self._log.add(caller.event.model_copy(update=said))
        del self._callers[caller.peer]
        self.drop(caller.peer)


def open_sink(*, names: SinkNames, log: EgressLog) -> Sink:
    """Make the sink of the network namespace of the calling thread.

    Raises:
        OSError: a port is taken there, or this process may not do it.
    """
    with ExitStack() as undo:
        tap = packet_socket()
        undo.callback(tap.close)
        listeners = []
        for port in PORTS:
            listeners.append(bound((_ANYWHERE, port), socket.SOCK_STREAM))
            undo.callback(listeners[-1].close)
        keep_all_addresses()
        sink = Sink(listeners, tap, names=names, log=log)
        undo.pop_all()
    return sink


def _refuse(peer: socket.socket) -> None:
    """End a connection from loopback to loopback as if nobody listened: that is no egress."""
    with suppress(OSError):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    peer.close()
