"""Whether the package registries answer, asked through the clients and with their settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from sandbox.errors import SandboxError
from sandbox.evidence.records import Record
from sandbox.runtimes.artifacts import AptPin, NpmPin, PipPin
from sandbox.runtimes.library import RuntimeLibrary


class RegistryFinding(Record):
    """One client: ``ok`` whether its registry answered; ``detail`` and ``cure`` when it did not."""

    client: Literal["npm", "pip", "apt"]
    ok: bool
    detail: str
    cure: str | None = None


def registry_findings(
    library: RuntimeLibrary, *, timeout_s: float = 8.0
) -> tuple[RegistryFinding, ...]:
    """Ask each client that the pins need for one pinned package; nothing is downloaded.

    Args:
        library: whose pins and clients are asked.
        timeout_s: how long each registry may take.
    """
    pins = library.pins.artifact.values()
    clients = library.clients
    found: list[RegistryFinding] = []
    if name := _first(pin.name for pin in pins if isinstance(pin, PipPin)):
        found.append(_asked("pip", lambda: clients.pip.answers(name, deadline_s=timeout_s)))
    if other := _first(pin.name for pin in pins if isinstance(pin, NpmPin)):
        if library.npm_at_hand():
            asked = _asked("npm", lambda: clients.registry().answers(other, timeout_s=timeout_s))
        else:
            detail = "not asked: no npm on this machine; pip brings the pinned one when needed"
            asked = RegistryFinding(client="npm", ok=True, detail=detail)
        found.append(asked)
    if debian := _first(pin.name for pin in pins if isinstance(pin, AptPin)):
        found.append(_asked("apt", lambda: clients.apt.check(debian), "apt-get is here"))
    return tuple(found)


def _first(names: Iterable[str]) -> str | None:
    return min(names, default=None)


def _asked(
    client: Literal["npm", "pip", "apt"],
    ask: Callable[[], None],
    good: str = "its registry answers",
) -> RegistryFinding:
    try:
        ask()
    except SandboxError as error:
        return RegistryFinding(client=client, ok=False, detail=error.message, cure=error.cure)
    return RegistryFinding(client=client, ok=True, detail=good)
