"""The model link: how a sandbox without a network reaches the model server of this process.

Three implementations, one small interface; nothing outside the engine room knows which one it has.
``namespace`` (the default where it can be had) puts the listening socket and a DNS responder into
the sandbox's own network namespace; ``bridge`` is the fallback on this machine, ``relay`` the one
for an engine elsewhere (their modules say what they lack).
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, Protocol

from sandbox.engine import bridge, relay
from sandbox.engine.bridge import LOOPBACK_RESOLVER, Attachable, BridgeLink
from sandbox.engine.client import Engine
from sandbox.engine.counters import RouteCounter
from sandbox.engine.dns import DnsResponder, unknown
from sandbox.engine.egresslog import EgressLog
from sandbox.engine.failure import engine_errors
from sandbox.engine.namespace import bound, inside, open_network
from sandbox.engine.owner import Ownership
from sandbox.engine.relay import RelayLink
from sandbox.engine.sink import PORTS, Sink, SinkNames, open_sink
from sandbox.errors import ContainerGone, Unsupported
from sandbox.evidence.records import EgressEvent, EgressSeen
from sandbox.progress import PlainProgress, Progress

Isolation = Literal["namespace", "bridge", "relay"]
Wanted = Literal["auto", "namespace", "bridge", "relay"]
NOTICES = {"bridge": bridge.NOTICE, "relay": relay.NOTICE}
"""What is said once where sandboxes have less than ``namespace`` gives."""

_LOOPBACK = "127.0.0.1"
_DNS = (_LOOPBACK, 53)


class ModelLink(Protocol):
    """Give ``create_options`` to the container, start it, ``attach`` it, ``listen``, serve."""

    @property
    def isolation(self) -> Isolation:
        """Which implementation this is; recorded with the cell."""

    @property
    def egress_seen(self) -> EgressSeen | None:
        """What ``egress`` can hold; None: silence proves nothing."""

    @property
    def host(self) -> str:
        """The IPv4 address where the sandbox reaches the listener."""

    @property
    def port(self) -> int:
        """The port where the sandbox reaches the newest listener."""

    def create_options(self) -> dict[str, Any]:
        """Return the keyword arguments that creating the container must have."""

    def attach(self, sandbox: Attachable) -> None:
        """Bind what is to be bound in the started sandbox; once a link.

        Raises:
            ContainerGone: the container is not running.
            Unsupported: its namespaces cannot be entered from here.
        """

    def listen(self) -> socket.socket:
        """Return a listening TCP socket that the host serves and the sandbox alone reaches.

        The caller may close it; closing the link does.

        Raises:
            Unsupported: no address of this host can be reached from the sandbox.
        """

    def count_unrouted(self) -> None:
        """Put what found no route since this was called last into the egress log, as of now."""

    def egress(self) -> tuple[EgressEvent, ...]:
        """Return what was tried so far, in order; also after the link is closed."""


class NamespaceLink:
    """A model link by sockets inside the sandbox's network namespace; a context manager.

    It outlives its container harmlessly: the sockets keep the namespace, empty, until ``close``.

    Args:
        engine: the engine.
        egress: what is to be seen of egress; ``connections`` gives every name an address.
    """

    isolation: Literal["namespace"] = "namespace"
    host = _LOOPBACK

    def __init__(self, engine: Engine, egress: EgressSeen = "names") -> None:
        self._engine = engine
        self.egress_seen = egress
        self._log = EgressLog()
        self._lock = threading.Lock()
        self._owned = ExitStack()
        self._network: int | None = None
        self._address: tuple[str, int] | None = None
        self._sink: Sink | None = None
        self._routes: RouteCounter | None = None
        self._unrouted = 0
        self._closed = False

    def create_options(self) -> dict[str, Any]:
        """Ask for no network, and for the responder of this link as the only resolver."""
        return {"network_mode": "none", **LOOPBACK_RESOLVER}

    def attach(self, sandbox: Attachable) -> None:
        """Enter the sandbox's network namespace and answer its DNS from now on."""
        with self._lock:
            if self._closed or self._network is not None:
                raise RuntimeError("a model link is attached once, before it is closed")
            pid, hostname = self._first_process(sandbox.id)
            with ExitStack() as undo:
                network = _opened(undo, pid, sandbox.id)
                self._watch(undo, network, sandbox.id, hostname)
                self._owned.callback(undo.pop_all().close)
                self._network = network

    def _watch(self, undo: ExitStack, network: int, container_id: str, hostname: str) -> None:
        names = SinkNames() if self.egress_seen == "connections" else None
        routes = inside(network, RouteCounter)
        undo.callback(routes.close)
        if names is not None:
            self._sink = inside(network, lambda: _sink(container_id, names, self._log))
            undo.callback(self._sink.close)
        udp, tcp = inside(network, lambda: _dns_sockets(container_id))
        address_of = unknown if names is None else names.address_of
        responder = DnsResponder(udp, tcp, log=self._log, hostname=hostname, address_of=address_of)
        undo.callback(responder.close)
        self._routes = routes

    def _first_process(self, container_id: str) -> tuple[int, str]:
        with engine_errors(f"inspect container {container_id[:12]}", missing=ContainerGone):
            found = self._engine.sdk.api.inspect_container(container_id)
        if not found["State"]["Running"] or not found["State"]["Pid"]:
            raise ContainerGone(f"container {container_id[:12]} is not running: no model link")
        return int(found["State"]["Pid"]), str(found["Config"].get("Hostname") or "")

    @property
    def port(self) -> int:
        """The port of the newest listener."""
        if self._address is None:
            raise RuntimeError("listen() comes before port")
        return self._address[1]

    def listen(self) -> socket.socket:
        """Return a listening socket on 127.0.0.1 of the sandbox, with a port of the kernel's."""
        with self._lock:
            if self._closed or self._network is None:
                raise RuntimeError("listen() comes after attach() and before close()")
            listener = inside(self._network, lambda: bound((_LOOPBACK, 0), socket.SOCK_STREAM))
            self._owned.callback(listener.close)
            self._address = listener.getsockname()
            return listener

    def count_unrouted(self) -> None:
        """Put what found no route since this was called last into the egress log, as of now."""
        with self._lock:
            if self._closed or self._routes is None:
                return
            found = self._routes.read()
            if found > self._unrouted:
                new = found - self._unrouted
                self._log.add(EgressEvent(at=time.time(), kind="unrouted", name="", count=new))
            self._unrouted = found

    def egress(self) -> tuple[EgressEvent, ...]:
        """Return what was tried so far, in order."""
        if self._sink is not None:
            self._sink.settle()
        return self._log.events()

    def close(self) -> None:
        """Close every socket and end every thread; a second call does nothing."""
        self.count_unrouted()
        with self._lock:
            self._closed = True
            self._owned.close()


def choose_isolation(engine: Engine, isolation: Wanted = "auto") -> Isolation:
    """Decide which link ``open_link`` gives for the same arguments.

    Raises:
        Unsupported: ``namespace`` was asked for and cannot be had.
    """
    info = engine.info
    if isolation in {"bridge", "relay"}:
        return isolation
    if info.can_enter_namespaces:
        return "namespace"
    if isolation == "auto":
        return "bridge" if info.is_local and not info.rootless else "relay"
    raise Unsupported(
        f"the network namespaces of the engine at {info.host} cannot be entered from here",
        cure="run as root on the engine's own host, or choose the isolation 'bridge' or 'relay'",
    )


@contextmanager
def open_link(
    engine: Engine,
    owner: Ownership,
    *,
    isolation: Wanted = "auto",
    egress: EgressSeen = "names",
    progress: Progress | None = None,
) -> Iterator[ModelLink]:
    """Give the model link of one sandbox; everything of it is gone at the end.

    The weaker isolation is announced in a line to ``progress`` (standard error by default);
    ``egress`` is what its log is to hold, where it has one.

    Raises:
        Unsupported: the isolation asked for, or any, cannot be had with this engine.
    """
    chosen = choose_isolation(engine, isolation)
    if chosen in NOTICES:
        (progress or PlainProgress()).say(NOTICES[chosen])
    link = _made(chosen, engine, owner, egress)
    try:
        yield link
    finally:
        link.close()


def _made(
    isolation: Isolation, engine: Engine, owner: Ownership, egress: EgressSeen
) -> NamespaceLink | BridgeLink | RelayLink:
    if isolation == "bridge":
        return BridgeLink(engine, owner)
    return RelayLink(engine, owner) if isolation == "relay" else NamespaceLink(engine, egress)


def _opened(undo: ExitStack, pid: int, container_id: str) -> int:
    network = open_network(pid, container_id)
    undo.callback(os.close, network)
    return network


def _dns_sockets(container_id: str) -> tuple[socket.socket, socket.socket]:
    with ExitStack() as undo:
        try:
            udp = bound(_DNS, socket.SOCK_DGRAM)
            undo.callback(udp.close)
            tcp = bound(_DNS, socket.SOCK_STREAM)
        except OSError as error:
            raise Unsupported(
                f"container {container_id[:12]} uses port 53 of its own loopback: {error.strerror}",
                cure="use an image that starts no DNS server of its own",
            ) from error
        undo.pop_all()
    return udp, tcp


def _sink(container_id: str, names: SinkNames, log: EgressLog) -> Sink:
    try:
        return open_sink(names=names, log=log)
    except PermissionError as error:
        raise Unsupported(
            f"connections of container {container_id[:12]} cannot be observed: {error.strerror}",
            cure="run as root on the engine's own host, with all of root's capabilities",
        ) from error
    except OSError as error:
        ports = " and ".join(map(str, PORTS))
        raise Unsupported(
            f"connections of container {container_id[:12]} cannot be observed: {error.strerror}",
            cure=f"use an image that has no server of its own on the ports {ports}",
        ) from error
