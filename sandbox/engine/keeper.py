"""Makes the container that keeps a sandbox: through Testcontainers, in one create and one start.

Testcontainers by itself connects anew for each container, looks the image up (and pulls it),
looks for a network, and inspects what it made. Here its container and client share the engine's
connection and skip these calls; nothing is ever pulled.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import docker.errors
from docker.models.containers import Container
from docker.types import Mount
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.docker_client import DockerClient
from testcontainers.core.labels import create_labels

from sandbox.engine.client import Engine
from sandbox.engine.failure import engine_errors
from sandbox.engine.limits import Limits, Mounted
from sandbox.errors import EngineFailure

KEEP = """\
PATH=/bin:/usr/bin:$PATH
command -v sleep >/dev/null && exec sleep 2147483647
while :; do kill -STOP $$; done
"""
KEEPER_USER = "0"  # a plain user's task can then not end it by "kill -9 -1"
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
SETTLE_S = 2.0
REMOVAL_S = 30.0
_environ_lock = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class KeeperSpec:
    """What the container of a sandbox is to be.

    ``workdir`` is given where it is not the image's; ``task_folder`` is the one that counts. A
    variable of ``env`` whose value is None is the image's, and is taken away.
    """

    image: str
    name: str
    labels: Mapping[str, str]
    limits: Limits
    as_root: bool
    env: Mapping[str, str | None] = field(default_factory=dict)
    workdir: str | None = None
    task_folder: str = "/"
    mounts: Sequence[Mounted] = ()
    network: Mapping[str, Any] = field(default_factory=lambda: {"network_mode": "none"})

    def options(self) -> dict[str, Any]:
        """Give the engine's create options, in the SDK's words.

        Capabilities: a plain user gets none. Root keeps ``TASK_CAPABILITIES`` of the engine's
        default set, so that package managers, chown and su work; it may not make devices, use
        raw sockets, write file capabilities or the audit log, or change its root folder.
        """
        memory = f"{self.limits.memory_mib}m"
        return {
            "entrypoint": ["/bin/sh", "-c", KEEP],
            "user": KEEPER_USER,
            "working_dir": self.workdir,
            "healthcheck": {"test": ["NONE"]},
            "init": True,
            "security_opt": ["no-new-privileges:true"],
            "cap_drop": ["ALL"],
            "cap_add": list(TASK_CAPABILITIES) if self.as_root else [],
            "pids_limit": self.limits.pids,
            "shm_size": f"{self.limits.shm_mib}m",
            "read_only": self.limits.read_only_root,
            "mounts": self._volumes(),
            "mem_limit": memory,
            "memswap_limit": memory,
            "log_config": {"Type": "none", "Config": {}},
            **self.network,
        }

    def _volumes(self) -> list[Mount]:
        """Give the workdir a volume where the root cannot be written.

        A volume without a name gets the image's files and owners there, and goes with its
        container; a tmpfs would have neither.
        """
        if not self.limits.read_only_root or self.task_folder == "/":
            return []
        return [Mount(target=self.task_folder, source=None, type="volume")]


class _SharedClient(DockerClient):  # type: ignore[misc]  # follow_imports is skip
    """Testcontainers' client over a connection that is already there."""

    def __init__(self, sdk: Any) -> None:  # the base's would connect anew
        self.client = sdk

    def create(
        self,
        image: str,
        *,
        command: Any,
        environment: Mapping[str, str],
        ports: Any,  # noqa: ARG002 - a sandbox publishes none
        labels: dict[str, str],
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
            environment=dict(environment),
            labels=create_labels(image, labels),
            host_config=api.create_host_config(binds=dict(volumes), tmpfs=dict(tmpfs), **host),
            **own,
        )
        made: Container = self.client.containers.prepare_model({"Id": created["Id"]})
        return made


class Keeper(DockerContainer):  # type: ignore[misc]  # follow_imports is skip
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
        self.get_docker_client().client.close()
        self._docker = _SharedClient(engine.sdk)
        self._unanswered = False
        self.image = spec.image  # without a prefix for public registries
        for mount in spec.mounts:
            source, mode = mount.binding
            self.with_volume_mapping(source, mount.target, mode)
        self.with_tmpfs_mount("/tmp", spec.limits.tmp_options)  # noqa: S108

    @property
    def container_id(self) -> str:
        """Give the id; empty before the engine made the container."""
        return "" if self._container is None else str(self._container.id)

    def launch(self) -> None:
        """Create and start the container.

        Raises:
            NotFound: the engine has no such image.
            EngineFailure: the engine refused or failed.
        """
        with engine_errors(f"start {self._name} from {self.image}"):
            self._unanswered = True
            try:
                self.start()
            except docker.errors.APIError:
                self._unanswered = False
                raise
            self._unanswered = False

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:  # noqa: ARG002, FBT001, FBT002 - the base's
        """Discard it; the base would close the engine's connection too."""
        self.discard()

    def discard(self) -> None:
        """Kill and remove the container with its volumes; fine when it is gone.

        When a request to make it was interrupted before the engine answered, it may appear
        yet, and is looked for during ``SETTLE_S``.
        """
        until = time.monotonic() + (SETTLE_S if self._unanswered else 0.0)
        with engine_errors(f"remove {self._name}"):
            while not self._removed() and time.monotonic() < until:
                time.sleep(0.1)

    def _removed(self) -> bool:
        """Remove it; False when it is not there."""
        api = self._docker.client.api
        try:
            api.remove_container(self.container_id or self._name, force=True, v=True)
        except docker.errors.NotFound:
            return False
        except docker.errors.APIError as error:
            if error.status_code != 409:  # 409: somebody else is removing it
                raise
            self._await_removal()
        return True

    def _await_removal(self) -> None:
        until = time.monotonic() + REMOVAL_S
        while time.monotonic() < until:
            try:
                self._docker.client.api.inspect_container(self.container_id or self._name)
            except docker.errors.NotFound:
                return
            except docker.errors.APIError as error:
                if not error.is_server_error():  # Podman can fail at one that it is removing
                    raise
            time.sleep(0.05)
        raise EngineFailure(
            f"{self._name} is being removed by somebody for {REMOVAL_S} s and is still there",
            cure=f"docker rm --force {self._name}",
        )


def switch_reaper_off_unless_local(engine: Engine) -> None:
    """Keep Testcontainers from pulling its reaper's image; our labels and sweep reap anyway."""
    if testcontainers_config.ryuk_disabled:
        return
    try:
        engine.sdk.api.inspect_image(testcontainers_config.ryuk_image)
    except docker.errors.ImageNotFound:
        testcontainers_config.ryuk_disabled = True
