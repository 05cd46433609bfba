"""Sandboxes for an agent that is a process of its own: any container of the engine by its id."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sandbox.agents.contract import SandboxAccess, UnprocessableError
from sandbox.agents.legacy import SandboxOrder
from sandbox.agents.places import PROVIDER
from sandbox.agents.ports import OwnedPlace, Place
from sandbox.engine.attach import AttachedSandbox
from sandbox.engine.client import Engine
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import ContainerGone


class EnginePlaces:
    """Attaches to lent containers, and makes own sandboxes.

    Args:
        engine: where the containers are.
        make: makes a sandbox that is not started yet; None: this agent only borrows.
    """

    def __init__(self, engine: Engine, *, make: Callable[[], OwnedPlace] | None = None) -> None:
        self._engine = engine
        self._make = make

    def borrow(self, access: SandboxAccess) -> Place:
        """Attach to a lent container; its descriptor may name the ``user`` of its commands.

        Raises:
            UnprocessableError: the access is not direct, not to Docker, or to a container that is
                not running there.
        """
        connection, descriptor = access.connection, access.connection.descriptor
        container, user = descriptor.get("container_id"), descriptor.get("user")
        if connection.provider_config_ref != PROVIDER or not isinstance(container, str):
            raise UnprocessableError(
                f"no direct access to a sandbox of {connection.provider_config_ref} by "
                f"{', '.join(descriptor) or 'nothing'}",
                cure=f'lend a sandbox of {PROVIDER}: {{"container_id": ID}}',
            )
        found = AttachedSandbox(
            self._engine, container, user=user if isinstance(user, str) else None
        )
        try:
            found.start()
        except ContainerGone as error:
            raise UnprocessableError(
                f"no direct access: {error.message}",
                cure="lend a running container of the engine that this agent works with",
            ) from error
        return found

    def own(self) -> OwnedPlace:
        """Make a sandbox.

        Raises:
            UnprocessableError: this agent only borrows.
        """
        if self._make is None:
            raise UnprocessableError(
                "this agent has no sandboxes of its own",
                cure="lend it one: give sandbox_access; or serve it with an image of its own",
            )
        return self._make()


def ordered(engine: Engine, order: SandboxOrder) -> OwnedPlace:
    """Make the sandbox that a legacy row orders, with the labels of whoever ordered it.

    Raises:
        UnprocessableError: the labels do not say whose it is.
    """
    owner = Ownership.from_labels(order.labels)
    if owner is None:
        raise UnprocessableError("the row's sandbox has no complete labels of ownership")
    return Sandbox(engine, order.image, owner=owner, link=_Ordered(order.create))


class _Ordered:
    """The network that was ordered; who ordered it connects the model himself."""

    def __init__(self, create: Mapping[str, Any]) -> None:
        self._create = create

    def create_options(self) -> Mapping[str, Any]:
        return self._create

    def attach(self, sandbox: Sandbox) -> None:
        pass
