"""What the agents room needs from others, as protocols, so that tests can hand in fakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from sandbox.agents.contract import SandboxAccess
from sandbox.engine.archive import PutFile
from sandbox.engine.facts import ImageFacts
from sandbox.evidence.records import InstallReceipt, ResourceUse
from sandbox.runtimes.needs import Refusal
from sandbox.runtimes.reports import Bundle


class Output(Protocol):
    """One captured stream."""

    @property
    def text(self) -> str:
        """The kept bytes as text."""


class Finished(Protocol):
    """A command that ended, by itself or by the engine."""

    @property
    def exit_code(self) -> int | None:
        """None when the engine stopped it."""

    @property
    def stdout(self) -> Output:
        """What it wrote."""

    @property
    def stderr(self) -> Output:
        """What it complained about."""

    @property
    def timed_out(self) -> bool:
        """Whether the host's deadline ended it."""


class Place(Protocol):
    """A running sandbox (``sandbox.engine.sandbox.Sandbox``); commands run as the task's user."""

    @property
    def id(self) -> str:
        """The engine's id of it."""

    @property
    def name(self) -> str:
        """What messages call it."""

    def exec(
        self,
        argv: Sequence[str],
        *,
        deadline_s: float,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        apart: bool = False,
    ) -> Finished:
        """Run a command to its end, with ``env`` added to its environment.

        ``apart`` from any shell that it could end; else raises CommandLost, when all that ran of
        the command was ended with that shell. Raises EngineFailure.
        """

    def put(self, files: Sequence[PutFile] | Path, dest: str) -> None:
        """Write files into the folder ``dest``, owned by the task's user."""

    def get(self, path: str, dest: Path) -> object:
        """Copy a file or tree to the host path ``dest``, which is new; raises NotFound."""

    def read(self, path: str) -> bytes:
        """Read a small file; raises NotFound."""

    def facts(self) -> ImageFacts:
        """What the image is to the task's user."""

    def resources(self) -> ResourceUse:
        """What the sandbox has used so far."""


class OwnedPlace(Place, Protocol):
    """A sandbox of our own, made but not running yet."""

    def start(self) -> None:
        """Start it; what it cannot start it removes."""

    def close(self) -> None:
        """Remove it and everything in it; a second call does nothing."""


class Places(Protocol):
    """Where an agent finds sandboxes."""

    def borrow(self, access: SandboxAccess) -> Place:
        """Reach a running sandbox of somebody else; raises UnprocessableError."""

    def own(self) -> OwnedPlace:
        """Make one for a session of ours; raises UnprocessableError."""


class LockedNeeds(Protocol):
    """What is known of runtimes without fetching them."""

    def refusals(self, harness: str, platform: str, facts: ImageFacts) -> Sequence[Refusal]:
        """Return what an image lacks for the harness to start; nothing is fetched.

        Raises:
            Unsupported: there is no pin for that platform.
        """


class Runtimes(LockedNeeds, Protocol):
    """Where an agent finds its harness."""

    def bundle(self, harness: str, platform: str) -> Bundle:
        """Return the verified bundle, fetched if need be.

        Raises:
            Unsupported: there is no pin for that platform; nothing was fetched.
        """

    def room(self, bundle: Bundle) -> int:
        """Return how many bytes its installation takes in the sandbox."""

    def install(self, place: Place, bundle: Bundle, prefix: str) -> InstallReceipt:
        """Install it at ``prefix``, which must not exist yet; raises InstallError."""
