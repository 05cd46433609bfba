"""A container that somebody else started and looks after, used as a sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import docker.errors

from sandbox.engine.client import Engine
from sandbox.engine.failure import engine_errors
from sandbox.engine.inside import Tracking
from sandbox.engine.keeper import KEEP
from sandbox.engine.owner import Ownership
from sandbox.engine.processes import INIT, ProcessInfo
from sandbox.engine.running import Running
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import ContainerGone, UsageError


class AttachedSandbox(Sandbox):
    """A lent container: ``start`` finds it, ``close`` lets go of it, and it runs on.

    Args:
        engine: where it runs.
        container_id: its id or name.
        user: user for all commands; by default the image's for a sandbox of this project (whose
            keeper is root), the container's own for any other.
    """

    def __init__(self, engine: Engine, container_id: str, *, user: str | None = None) -> None:
        super().__init__(
            engine, container_id, owner=Ownership.current(run_id="attached"), user=user
        )
        self._wanted = container_id
        self._alone = False

    def start(self) -> None:
        """Find the container.

        Raises:
            ContainerGone: it is not there, or does not run.
            EngineFailure: the engine failed.
            UsageError: it was started before.
        """
        with self._life:
            if self._state is not None:
                raise UsageError(f"sandbox {self.name} was attached before")
            found = self._inspected()
            ours = found["Config"].get("Entrypoint") == ["/bin/sh", "-c", KEEP]
            self._alone = not found["HostConfig"].get("Init")
            self.name = str(found["Name"]).removeprefix("/")
            self.image = str(found["Image"])
            user, config = self._user, found["Config"]
            if user is None:
                user = str((self._image_config() if ours else config).get("User") or "")
            tracking: Tracking = "auto" if ours else "scan"  # others may run without an init
            self._state = Running.assemble(
                self._engine,
                str(found["Id"]),
                config,
                user=user,
                workdir=None,
                tracking=tracking,
            )

    def processes(self) -> tuple[ProcessInfo, ...]:
        """List what runs beside the container's own init and main process."""
        if not self._alone:
            return super().processes()
        seen = self._running.executor.inside.observer.processes()
        return tuple(one for one in seen if one.pid != INIT and one.state not in {"Z", "X"})

    def _inspected(self) -> Mapping[str, Any]:
        with engine_errors(f"inspect container {self._wanted}", missing=ContainerGone):
            found: Mapping[str, Any] = self._engine.sdk.api.inspect_container(self._wanted)
        if not found["State"]["Running"]:
            raise ContainerGone(f"container {self._wanted} is not running")
        return found


def remove_owned(engine: Engine, owner: Ownership) -> tuple[str, ...]:
    """Remove every container that carries the labels of ``owner``; return their names.

    Raises:
        EngineFailure: the engine failed.
    """
    api = engine.sdk.api
    with engine_errors(f"remove containers of {owner.cell_id}"):
        labels = [f"{name}={value}" for name, value in owner.labels().items()]
        found = api.containers(all=True, filters={"label": labels})
        for one in found:
            with suppress(docker.errors.NotFound):  # somebody was faster
                api.remove_container(one["Id"], force=True, v=True)
    return tuple(one["Names"][0].removeprefix("/") for one in found)
