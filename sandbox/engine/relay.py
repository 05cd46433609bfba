"""The model link to an engine that is elsewhere: a companion container relays connections.

The relay is a small container in the sandbox's own network namespace, which has only ``lo``. It
listens there on 127.0.0.1, and each connection travels inside the connection that this process
has with the engine anyway: as the standard input and output of a command in the relay. Nothing
is needed in the task's image, no network is made, and the engine may be anywhere its API is.

What isolation ``relay`` gives: no interface but ``lo``, no route, no port of any host. What it
does not give, unlike ``namespace``: names that are looked up fail but are not recorded
(``egress_seen`` is None); each connection takes the engine some 0.1 s to make; and a
connection that the model resets reaches the harness as one that ended. The listening socket of
this side is on this machine's loopback, where other users of this machine can reach it too.
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import Any, Literal

from sandbox.engine.bridge import LOOPBACK_RESOLVER, Attachable, silence_names
from sandbox.engine.client import Engine
from sandbox.engine.failure import FOREIGN, engine_errors
from sandbox.engine.images import ensure_image, image_definition
from sandbox.engine.limits import Limits
from sandbox.engine.namespace import bound
from sandbox.engine.output import Demultiplexer
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.engine.scripts import sh
from sandbox.engine.splice import TICK_S, Splice
from sandbox.engine.stream import Connection, start_exec
from sandbox.errors import EngineFailure, SandboxError, Unsupported
from sandbox.evidence.records import EgressEvent
from sandbox.progress import PlainProgress

NOTICE = (
    "isolation is 'relay': sandboxes have no network, a companion container passes model calls on; "
    "names they look up are not recorded"
)
IMAGE = "busybox-only"
_LOOPBACK = "127.0.0.1"
_FIRST_PORT = 23011  # below the range from which the kernel takes ports of its own
_LISTEN = ["nc", "-llllllllllllllll", "-p"]  # as many connections may wait as there are l's
_READY_S = 10.0
_LIMITS = Limits(memory_mib=256, pids=1024, tmp_mib=1, shm_mib=1)


class _Beside:
    """The network of a container beside another: the other's."""

    def __init__(self, container: str) -> None:
        self._container = container

    def create_options(self) -> Mapping[str, Any]:
        return {"network_mode": f"container:{self._container}"}

    def attach(self, sandbox: object) -> None:
        """Need nothing more."""


class RelayLink:
    """A model link through a relay container; a context manager's job is its ``close``."""

    isolation: Literal["relay"] = "relay"
    egress_seen = None
    host = _LOOPBACK

    def __init__(self, engine: Engine, owner: Ownership) -> None:
        self._engine = engine
        self._owner = owner
        quiet = PlainProgress(quiet=True)
        self._image = ensure_image(engine, image_definition(IMAGE), quiet).ref
        self._relay: Sandbox | None = None
        self._listeners: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._port: int | None = None

    def create_options(self) -> dict[str, Any]:
        """Ask for no network, and for a resolver that is not there."""
        return {"network_mode": "none", **LOOPBACK_RESOLVER}

    def attach(self, sandbox: Attachable) -> None:
        """Start the relay beside the sandbox."""
        if self._relay is not None or self._stopped.is_set():
            raise RuntimeError("a model link is attached once, before it is closed")
        if isinstance(sandbox, Sandbox):
            sandbox.before_removal(self._detach)
        silence_names(self._engine, sandbox)
        relay = Sandbox(
            self._engine,
            self._image,
            owner=self._owner,
            limits=_LIMITS,
            link=_Beside(sandbox.id),
            tracking="sandbox",
        )
        relay.start()
        self._relay = relay

    def _detach(self) -> None:
        """Remove the relay, and with it every connection: Podman removes no sandbox before it."""
        if self._relay is not None:
            self._stopped.set()
            self._relay.close()

    @property
    def port(self) -> int:
        """The port of the newest listener."""
        if self._port is None:
            raise RuntimeError("listen() comes before port")
        return self._port

    def listen(self) -> socket.socket:
        """Return a listening socket of this machine's loopback, and listen for it in the sandbox.

        Raises:
            Unsupported: something in the sandbox listens on the port already.
        """
        if self._relay is None or self._stopped.is_set():
            raise RuntimeError("listen() comes after attach() and before close()")
        port = _FIRST_PORT + len(self._listeners)
        listener = bound((_LOOPBACK, 0), socket.SOCK_STREAM)
        self._listeners.append(listener)
        self._start(self._accept, port, listener.getsockname())
        ready = self._relay.exec(sh("relay_ready", [f"{port:04X}"]), deadline_s=_READY_S)
        if not ready.ok:
            raise Unsupported(
                f"nothing can listen on port {port} of the sandbox: {ready.stderr.text.strip()}",
                cure="use an image that listens on no port of its own",
            )
        self._port = port
        return listener

    def count_unrouted(self) -> None:
        """Do nothing: there is no egress log."""

    def egress(self) -> tuple[EgressEvent, ...]:
        """Return nothing: names are not seen here, which ``egress_seen`` says."""
        return ()

    def close(self) -> None:
        """Remove the relay and close the listeners; a second call does nothing more."""
        self._stopped.set()
        try:
            self._detach()
        finally:
            for listener in self._listeners:
                listener.close()
            with self._lock:
                waiting = tuple(self._threads)
            for thread in waiting:
                thread.join(10 * TICK_S)

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, name="model-relay", daemon=True)
        with self._lock:
            self._threads = [one for one in self._threads if one.is_alive()]
            self._threads.append(thread)
            thread.start()

    def _accept(self, port: int, address: tuple[str, int]) -> None:
        """Carry each connection that the relay takes on ``port`` to ``address``."""
        said = bytearray()

        def note(data: memoryview) -> None:
            said.extend(data)
            while b"\n" in said:
                line, _, rest = bytes(said).partition(b"\n")
                said[:] = rest
                if line.isdigit():
                    self._start(self._carry, line.decode(), address)

        command = [*_LISTEN, str(port), "-e", "setsid", *sh("relay_accept")]
        output = Demultiplexer(stdout=note, stderr=note)
        with suppress(SandboxError, *FOREIGN), closing(self._run(command)) as connection:
            buffer = memoryview(bytearray(4096))
            while not self._stopped.is_set():
                size = connection.receive_into(buffer)
                if size == 0:
                    return
                if size:
                    output.feed(buffer[:size])
                else:
                    _await_readable(connection)

    def _carry(self, number: str, address: tuple[str, int]) -> None:
        with (
            suppress(SandboxError, OSError, *FOREIGN),
            closing(self._run(sh("relay_carry", [number]), stdin=True)) as far,
            socket.create_connection(address) as near,
        ):
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            Splice(near, far).run(self._stopped.is_set)

    def _run(self, argv: list[str], *, stdin: bool = False) -> Connection:
        relay = self._relay
        if relay is None:
            raise EngineFailure("there is no relay")
        api = self._engine.sdk.api
        with engine_errors("run a command in the relay"):
            made = api.exec_create(relay.id, argv, stdin=stdin, user="0")
            return start_exec(api, made["Id"])


def _await_readable(connection: Connection) -> None:
    select.select([connection], [], [], TICK_S)
