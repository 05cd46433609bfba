"""A connected Docker engine: which one, how to talk to it, what it can do here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import docker
import docker.errors
import docker.utils
from docker.context import ContextAPI
from pydantic import BaseModel, ConfigDict

from sandbox.engine.failure import FOREIGN
from sandbox.engine.locality import is_here, peer_of
from sandbox.engine.tls import HINT, Tls, is_tcp, settings
from sandbox.engine.tlsexec import greet
from sandbox.errors import PrerequisiteMissing, SandboxError, UsageError

CONNECT_TIMEOUT_S = 30  # a busy one takes seconds; where none is, that shows at once
CALL_TIMEOUT_S = 120
POOL_SIZE = 64
DEFAULT_PLACE = "unix:///var/run/docker.sock"
CURE = "start Docker (systemctl start docker, or dockerd), or set DOCKER_HOST to an engine"
CAP_SYS_ADMIN = 21
_LIMITS = {"memory": "MemoryLimit", "swap": "SwapLimit", "pids": "PidsLimit"}


class EngineInfo(BaseModel):
    """What an engine says of itself, and what this process may do beside it.

    ``is_local``: its containers' processes are processes of this machine that we see.
    ``can_enter_namespaces``: local, and this process may enter their namespaces and cgroups.
    ``processors`` and ``memory_mib`` are those of the engine's machine.
    ``security`` are its security options (``seccomp``, ``rootless``, ``userns``), each with its
    profile after an ``=`` where it names one. ``limits`` says for ``memory``, ``swap`` and ``pids``
    whether it can limit them. ``backing`` is the file system below its storage driver.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str
    version: str
    api_version: str
    product: str
    architecture: str
    kernel: str
    cgroup_version: int
    cgroup_driver: str
    storage_driver: str
    root_dir: str
    is_local: bool
    can_enter_namespaces: bool
    processors: int | None = None
    memory_mib: int | None = None
    security: tuple[str, ...] = ()
    limits: dict[str, bool] = {}
    backing: str = ""

    @property
    def rootless(self) -> bool:
        """Whether the engine runs as a plain user, with a network of its own."""
        return "rootless" in self.security


class Engine:
    """A connected engine; a context manager that closes its connections.

    ``sdk`` is for ``sandbox.engine`` only. Threads may share an engine.
    """

    def __init__(self, sdk: Any, info: EngineInfo) -> None:
        self.sdk = sdk
        self.info = info

    @classmethod
    def connect(
        cls,
        host: str | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        timeout_s: int = CONNECT_TIMEOUT_S,
    ) -> Self:
        """Connect to ``host``, else DOCKER_HOST, else the CLI's context, else the local socket.

        Args:
            host: an address as in DOCKER_HOST (``unix:///path``, ``tcp://name:port``).
            environ: where DOCKER_* variables are read from; this process's by default.
            timeout_s: how long an engine may take to answer the first questions.

        Raises:
            PrerequisiteMissing: nothing answers there; the message names the place and the cure.
            UsageError: the address or the named context makes no sense.
        """
        address = _address(host, os.environ if environ is None else environ)
        place = str(address.get("base_url", DEFAULT_PLACE))
        if "tls" in address:
            greet(place, address["tls"], timeout_s)
        peer = peer_of(place, timeout_s, cure=CURE) if place.startswith("unix://") else None
        try:
            sdk = docker.DockerClient(
                **address,
                timeout=timeout_s,
                max_pool_size=POOL_SIZE,
                use_ssh_client=place.startswith("ssh://"),
            )
        except FOREIGN as error:
            plain = is_tcp(place) and "tls" not in address
            raise PrerequisiteMissing(
                f"no Docker engine answers at {place}: {error}",
                cure=f"{CURE}; {HINT}" if plain else CURE,
            ) from error
        try:
            info = _describe(sdk, place, peer)
        except FOREIGN as error:
            sdk.close()
            raise PrerequisiteMissing(
                f"the engine at {place} does not say what it is: {error}", cure=CURE
            ) from error
        except BaseException:
            sdk.close()
            raise
        sdk.api.timeout = CALL_TIMEOUT_S
        return cls(sdk, info)

    def close(self) -> None:
        """Close the connections; twice is fine."""
        self.sdk.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


def _address(host: str | None, environ: Mapping[str, str]) -> dict[str, Any]:
    """Find where the engine is, as keyword arguments of the SDK's client."""
    if host is not None:
        environ = {**environ, "DOCKER_HOST": host}
    context = environ.get("DOCKER_CONTEXT")
    place = environ.get("DOCKER_HOST")
    try:
        if place:
            docker.utils.parse_host(place)
            config = settings(place, environ)
            return {"base_url": place, **({} if config is None else {"tls": config})}
        known = not context or ContextAPI.get_context(context) is not None
        found = dict[str, Any](ContextAPI.kwargs_from_context(environment=environ))
    except SandboxError:
        raise
    except Exception as error:  # the SDK raises a bare Exception for a corrupt context
        raise UsageError(
            f"the address of the Docker engine cannot be read: {error}",
            cure="look at DOCKER_HOST, DOCKER_CONTEXT and docker context ls",
        ) from error
    if not known:
        raise UsageError(
            f"there is no docker context {context!r}",
            cure="list them with: docker context ls; or unset DOCKER_CONTEXT",
        )
    if "tls" in found:
        found["tls"] = Tls.of(found["tls"])
    return found


def _describe(sdk: Any, place: str, peer: int | None) -> EngineInfo:
    said = sdk.api.info()
    version = sdk.api.version()
    local = is_here(sdk.api, kernel=str(said.get("KernelVersion", "")), peer=peer)
    components = [str(part.get("Name", "")) for part in version.get("Components") or ()]
    return EngineInfo(
        host=place,
        version=str(version.get("Version", "")),
        api_version=str(sdk.api.api_version),
        product="podman" if any("Podman" in name for name in components) else "docker",
        architecture=str(said.get("Architecture", "")),
        kernel=str(said.get("KernelVersion", "")),
        cgroup_version=int(said.get("CgroupVersion") or 1),
        cgroup_driver=str(said.get("CgroupDriver", "")),
        storage_driver=str(said.get("Driver", "")),
        root_dir=str(said.get("DockerRootDir", "")),
        is_local=local,
        can_enter_namespaces=local and os.geteuid() == 0 and _has_capability(CAP_SYS_ADMIN),
        processors=int(said.get("NCPU") or 0) or None,
        memory_mib=int(said.get("MemTotal") or 0) >> 20 or None,
        security=security_options(said),
        limits={
            name: bool(said[key])
            for name, key in (
                ("memory", "MemoryLimit"),
                ("swap", "SwapLimit"),
                ("pids", "PidsLimit"),
            )
            if key in said
        },
        backing=dict(said.get("DriverStatus") or ()).get("Backing Filesystem", ""),
    )


def security_options(said: Mapping[str, Any]) -> tuple[str, ...]:
    """Read the engine's security options, ``name=seccomp,profile=default`` for one.

    Podman tells that it has no root in a key of its own.
    """
    found = []
    for option in said.get("SecurityOptions") or ():
        words = dict(word.partition("=")[::2] for word in str(option).split(","))
        profile = words.get("profile")
        name = words.get("name", str(option))
        found.append(f"{name}={profile}" if profile else name)
    if said.get("Rootless") and "rootless" not in found:
        found.append("rootless")
    return tuple(found)


def _has_capability(number: int) -> bool:
    status = Path("/proc/self/status").read_text()
    line = next((row for row in status.splitlines() if row.startswith("CapEff:")), "CapEff: 0")
    return bool(int(line.split()[1], 16) >> number & 1)
