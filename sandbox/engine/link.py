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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, Protocol

from sandbox.engine import bridge, relay
from sandbox.engine.bridge import LOOPBACK_RESOLVER, Attachable, BridgeLink
from sandbox.engine.client import Engine
from sandbox.engine.dns import DnsResponder, EgressLog
from sandbox.engine.failure import engine_errors
from sandbox.engine.namespace import bound, inside, open_network
from sandbox.engine.owner import Ownership
from sandbox.engine.relay import RelayLink
from sandbox.errors import ContainerGone, Unsupported
from sandbox.evidence.records import EgressEvent
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
    def egress_observed(self) -> bool:
        """Whether ``egress`` sees the names that are looked up; if not, silence proves nothing."""

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

    def egress(self) -> tuple[EgressEvent, ...]:
        """Return the names looked up so far, in order; also after the link is closed."""


class NamespaceLink:
    """A model link by sockets inside the sandbox's network namespace; a context manager.

    It outlives its container harmlessly: the sockets keep the namespace, empty, until ``close``.
    """

    isolation: Literal["namespace"] = "namespace"
    egress_observed = True
    host = _LOOPBACK

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._log = EgressLog()
        self._lock = threading.Lock()
        self._owned = ExitStack()
        self._network: int | None = None
        self._address: tuple[str, int] | None = None
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
                udp, tcp = inside(network, lambda: _dns_sockets(sandbox.id))
                responder = DnsResponder(udp, tcp, log=self._log, hostname=hostname)
                undo.callback(responder.close)
                self._owned.callback(undo.pop_all().close)
                self._network = network

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

    def egress(self) -> tuple[EgressEvent, ...]:
        """Return the names looked up so far, in order."""
        return self._log.events()

    def close(self) -> None:
        """Close every socket and end the responder's thread; a second call does nothing."""
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
    progress: Progress | None = None,
) -> Iterator[ModelLink]:
    """Give the model link of one sandbox; everything of it is gone at the end.

    The weaker isolation is announced in a line to ``progress`` (standard error by default).

    Raises:
        Unsupported: the isolation asked for, or any, cannot be had with this engine.
    """
    chosen = choose_isolation(engine, isolation)
    if chosen in NOTICES:
        (progress or PlainProgress()).say(NOTICES[chosen])
    link = _made(chosen, engine, owner)
    try:
        yield link
    finally:
        link.close()


def _made(
    isolation: Isolation, engine: Engine, owner: Ownership
) -> NamespaceLink | BridgeLink | RelayLink:
    if isolation == "bridge":
        return BridgeLink(engine, owner)
    return RelayLink(engine, owner) if isolation == "relay" else NamespaceLink(engine)


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
