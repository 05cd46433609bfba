"""Makes the container that keeps a sandbox: through Testcontainers, in one create and one start.

Testcontainers by itself connects anew for each container, looks the image up (and pulls it),
looks for a network, and inspects what it made. Here its container and client share the engine's
connection and skip these calls; nothing is ever pulled.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import docker.errors
from docker.models.containers import Container
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.docker_client import DockerClient
from testcontainers.core.labels import create_labels

from sandbox.engine.client import Engine
from sandbox.engine.limits import Limits, ReadOnlyMount

KEEP = ("/bin/sh", "-c", "PATH=/bin:/usr/bin:$PATH; exec sleep 2147483647")
KEEPER_USER = "0:0"  # a plain user's task can then not end it by "kill -9 -1"
TASK_CAPABILITIES = (  # what apt, dpkg, chown, su and a task's own services use; nothing else
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "NET_BIND_SERVICE",
    "SETGID",
    "SETUID",
)
OF_THE_CONTAINER = frozenset(
    {"user", "entrypoint", "working_dir", "healthcheck", "hostname", "domainname", "mac_address"}
)
_environ_lock = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class KeeperSpec:
    """What the container of a sandbox is to be."""

    image: str
    name: str
    labels: Mapping[str, str]
    limits: Limits
    as_root: bool
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None
    mounts: Sequence[ReadOnlyMount] = ()
    network: Mapping[str, Any] = field(default_factory=lambda: {"network_mode": "none"})

    def options(self) -> dict[str, Any]:
        """Give the engine's create options, in the SDK's words.

        Capabilities: a plain user gets none. Root keeps ``TASK_CAPABILITIES`` of the engine's
        default set, so that package managers, chown and su work; it may not make devices, use
        raw sockets, write file capabilities or the audit log, or change its root folder.
        """
        memory = f"{self.limits.memory_mib}m"
        return {
            "entrypoint": list(KEEP),
            "user": KEEPER_USER,
            "working_dir": self.workdir,
            "healthcheck": {"test": ["NONE"]},
            "init": True,
            "security_opt": ["no-new-privileges:true"],
            "cap_drop": ["ALL"],
            "cap_add": list(TASK_CAPABILITIES) if self.as_root else [],
            "pids_limit": self.limits.pids,
            "mem_limit": memory,
            "memswap_limit": memory,
            "log_config": {"Type": "none", "Config": {}},
            **self.network,
        }


class _SharedClient(DockerClient):
    """Testcontainers' client over a connection that is already there."""

    def __init__(self, sdk: Any) -> None:  # noqa: PLW0231 - the base would connect anew
        self.client = sdk

    def create(  # type: ignore[override]
        self,
        image: str,
        command: Any = None,
        environment: Mapping[str, str] | None = None,
        ports: Any = None,  # noqa: ARG002 - a sandbox publishes none
        labels: dict[str, str] | None = None,
        detach: bool = False,  # noqa: ARG002, FBT001, FBT002 - the base's signature
        *,
        name: str,
        volumes: Mapping[str, Mapping[str, str]],
        tmpfs: Mapping[str, str],
        **options: Any,
    ) -> Container:
        """Create a container in one call."""
        api = self.client.api
        own = {key: value for key, value in options.items() if key in OF_THE_CONTAINER}
        host = {key: value for key, value in options.items() if key not in own}
        if "network" in host:
            host["network_mode"] = host.pop("network")
        created = api.create_container(
            image,
            command=command,
            name=name,
            environment=dict(environment or {}),
            labels=create_labels(image, labels),
            host_config=api.create_host_config(binds=dict(volumes), tmpfs=dict(tmpfs), **host),
            **own,
        )
        return self.client.containers.prepare_model({"Id": created["Id"]})


class Keeper(DockerContainer):
    """The container of one sandbox."""

    def __init__(self, engine: Engine, spec: KeeperSpec) -> None:
        with _environ_lock:
            before = os.environ.get("DOCKER_HOST")
            super().__init__(
                spec.image,
                docker_client_kw={
                    "version": engine.info.api_version,
                    "environment": {"DOCKER_HOST": engine.info.host},
                },
                env=dict(spec.env),
                name=spec.name,
                labels=dict(spec.labels),
                **spec.options(),
            )
            if before is None:  # Testcontainers leaves the CLI's context there
                os.environ.pop("DOCKER_HOST", None)
        self._docker.client.close()
        self._docker = _SharedClient(engine.sdk)
        self.image = spec.image  # without a prefix for public registries
        for mount in spec.mounts:
            self.with_volume_mapping(str(mount.source), mount.target, "ro")
        self.with_tmpfs_mount("/tmp", f"exec,nosuid,nodev,mode=1777,size={spec.limits.tmp_mib}m")  # noqa: S108

    @property
    def container_id(self) -> str:
        """Give the id; empty before the engine made the container."""
        return "" if self._container is None else str(self._container.id)


def switch_reaper_off_unless_local(engine: Engine) -> None:
    """Keep Testcontainers from pulling its reaper's image; our labels and sweep reap anyway."""
    if testcontainers_config.ryuk_disabled:
        return
    try:
        engine.sdk.api.inspect_image(testcontainers_config.ryuk_image)
    except docker.errors.ImageNotFound:
        testcontainers_config.ryuk_disabled = True
