"""The model link where namespaces cannot be entered: an internal network and its gateway.

What isolation ``bridge`` gives: no route out of the host; names end at a resolver that is not
there, so none leaves the host either. What it does not give, unlike ``namespace``:

- Ports of the host that are bound to all addresses stay reachable through the gateway.
- Names asked for are not seen: there is no egress log (``egress_seen`` is None).
- There is an interface beside ``lo``, so code that looks for one believes it has a network; and
  a connection to an address elsewhere is not refused but waits for its time-out.
"""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable
from typing import Any, Literal, Protocol

import docker.errors

from sandbox.engine.client import Engine
from sandbox.engine.failure import engine_errors
from sandbox.engine.namespace import bound
from sandbox.engine.owner import PROJECT, Ownership
from sandbox.errors import ContainerGone, EngineFailure, Unsupported
from sandbox.evidence.records import EgressEvent

NOTICE = (
    "isolation is 'bridge': sandboxes reach ports of this host that are bound to all addresses, "
    "and names they look up are not recorded"
)
_INTERFACE_OPTION = "com.docker.network.bridge.name"
# glibc gives up because nobody listens there, musl because its time is up.
_NO_RESOLVER = (
    "printf '%s\\n' 'nameserver 127.0.0.1' 'options timeout:0 attempts:1' >/etc/resolv.conf"
)
_REMOVE_DEADLINE_S = 10.0
_REMOVE_PAUSE_S = 0.1
_BUSY = (403, 409)
LOOPBACK_RESOLVER = {
    "dns": ["127.0.0.1"],
    "dns_opt": ["timeout:1", "attempts:1"],
    "dns_search": ["."],
}
"""Options of a container whose names end on its own loopback.

No search domain: the engine would copy the host's, and with it names that differ from host to host.
"""


class Attachable(Protocol):
    """A started container."""

    @property
    def id(self) -> str:
        """The container's full id."""


class BridgeLink:
    """A model link over an internal network that only this link's sandbox is on."""

    isolation: Literal["bridge"] = "bridge"
    egress_seen = None

    def __init__(self, engine: Engine, owner: Ownership) -> None:
        unique = uuid.uuid4().hex
        self._engine = engine
        self._name = f"{PROJECT}-link-{unique}"
        self._interface = f"sbx{unique[:12]}"  # a kernel interface name has at most 15 octets
        self._listeners: list[socket.socket] = []
        self._address: tuple[str, int] | None = None
        self._gateway = ""
        if not engine.info.is_local:
            raise _no_gateway(engine.info.host)
        try:
            self._gateway = self._create(owner)
        except BaseException:
            self.close()
            raise

    def _create(self, owner: Ownership) -> str:
        """Create the network; return its gateway's address, which is the host's own."""
        api = self._engine.sdk.api
        with engine_errors("create the network of a model link"):
            created = api.create_network(
                self._name,
                driver="bridge",
                internal=True,
                labels=owner.labels(),
                options={_INTERFACE_OPTION: self._interface},
            )
            network = api.inspect_network(created["Id"])
        if self._interface not in (name for _, name in socket.if_nameindex()):
            raise _no_gateway(self._engine.info.host)
        gateways = [part.get("Gateway") for part in network["IPAM"]["Config"] or ()]
        if not gateways or not gateways[0]:
            raise EngineFailure(f"the engine gave network {self._name} no gateway address")
        return str(gateways[0]).partition("/")[0]

    @property
    def host(self) -> str:
        """The address where the sandbox reaches the listener."""
        return self._gateway

    @property
    def port(self) -> int:
        """The port where the sandbox reaches the newest listener."""
        if self._address is None:
            raise RuntimeError("listen() comes before port")
        return self._address[1]

    def create_options(self) -> dict[str, Any]:
        """Return the container's network options; its resolver is an address with nobody on it."""
        return {"network_mode": self._name, **LOOPBACK_RESOLVER}

    def attach(self, sandbox: Attachable) -> None:
        """Make lookups fail at once; the engine attached the sandbox when it was created."""
        silence_names(self._engine, sandbox)

    def listen(self) -> socket.socket:
        """Return a listening socket on the network's gateway; ``close`` closes it as well."""
        try:
            listener = bound((self._gateway, 0), socket.SOCK_STREAM)
        except OSError as error:
            raise _no_gateway(self._engine.info.host) from error
        self._listeners.append(listener)
        self._address = listener.getsockname()
        return listener

    def count_unrouted(self) -> None:
        """Do nothing: there is no egress log."""

    def egress(self) -> tuple[EgressEvent, ...]:
        """Return nothing: names are not seen here, which ``egress_seen`` says."""
        return ()

    def close(self) -> None:
        """Close the listeners and remove the network, whoever is still attached to it."""
        for listener in self._listeners:
            listener.close()
        remove_network(self._engine, self._name)


def silence_names(engine: Engine, sandbox: Attachable) -> None:
    """Make lookups of names fail at once in a sandbox whose resolver nobody answers for.

    The engine's own resolver on a network would keep every lookup waiting for 2 s, musl without
    one for 1 s. Where the image has no sh the lookups stay slow; no name leaves either way.

    Raises:
        ContainerGone: the container is not running.
        EngineFailure: the engine failed.
    """
    with engine_errors(f"reach container {sandbox.id[:12]}", missing=ContainerGone):
        api = engine.sdk.api
        made = api.exec_create(sandbox.id, ["sh", "-c", _NO_RESOLVER], user="0")
        api.exec_start(made["Id"])


def remove_network(
    engine: Engine,
    network: str,
    *,
    deadline_s: float = _REMOVE_DEADLINE_S,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Remove the network named (or with the id) ``network`` and detach what is attached to it.

    A network that is not there is fine: somebody else removed it.

    Raises:
        EngineFailure: it was still in use at the deadline, or the engine fails.
    """
    ends = time.monotonic() + deadline_s
    with engine_errors(f"remove network {network}"):
        while True:
            try:
                _detach_all(engine, network)
                engine.sdk.api.remove_network(network)
            except docker.errors.NotFound:
                return
            except docker.errors.APIError as error:
                if error.status_code not in _BUSY or time.monotonic() >= ends:
                    raise
                sleep(_REMOVE_PAUSE_S)
            else:
                return


def _detach_all(engine: Engine, network: str) -> None:
    attached = engine.sdk.api.inspect_network(network).get("Containers") or {}
    for container in attached:
        try:
            engine.sdk.api.disconnect_container_from_network(container, network, force=True)
        except docker.errors.APIError as error:
            if error.status_code not in (404, *_BUSY):
                raise  # removal of the network says whether it is still in use


def _no_gateway(host: str) -> Unsupported:
    return Unsupported(
        f"the engine at {host} has its networks on another machine or network namespace, so a "
        "sandbox there cannot reach the model server here",
        cure="choose the isolation 'relay', or run on the engine's own host (as root: 'namespace')",
    )
