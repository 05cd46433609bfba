"""Sandboxes for an agent in the same process: lent ones by their id, own ones from a factory."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sandbox.agents.contract import SandboxAccess, UnprocessableError
from sandbox.agents.ports import OwnedPlace, Place

PROVIDER = "docker"


class LocalPlaces:
    """Finds lent sandboxes by container id, and makes own ones.

    Args:
        lent: sandboxes of others by container id; read at each borrowing.
        make: makes a sandbox that is not started yet; None: this agent only borrows.
    """

    def __init__(
        self,
        lent: Mapping[str, Place] | None = None,
        *,
        make: Callable[[], OwnedPlace] | None = None,
    ) -> None:
        self._lent = {} if lent is None else lent
        self._make = make

    def borrow(self, access: SandboxAccess) -> Place:
        """Reach a lent sandbox.

        Raises:
            UnprocessableError: the access is not direct, not to Docker, or to a container that
                nobody lent.
        """
        connection = access.connection
        if connection.provider_config_ref != PROVIDER:
            raise UnprocessableError(
                f"no direct access to sandboxes of {connection.provider_config_ref}",
                cure=f"lend a sandbox of {PROVIDER}",
            )
        container = connection.descriptor.get("container_id")
        place = self._lent.get(container) if isinstance(container, str) else None
        if place is None:
            raise UnprocessableError(
                f"no sandbox {container!r} was lent to this agent",
                cure='give {"container_id": ID} of a running sandbox',
            )
        return place

    def own(self) -> OwnedPlace:
        """Make a sandbox.

        Raises:
            UnprocessableError: this agent only borrows.
        """
        if self._make is None:
            raise UnprocessableError(
                "this agent has no sandboxes of its own", cure="lend it one: give sandbox_access"
            )
        return self._make()
