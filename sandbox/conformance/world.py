"""What all cells of a run share: engine, images, runtimes, adapters, and where results go."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sandbox.agents.contract import Interface
from sandbox.agents.openapi import AgentCard
from sandbox.engine.client import Engine
from sandbox.engine.facts import ImageFacts
from sandbox.engine.images import LoadedImage
from sandbox.engine.limits import ReadOnlyMount
from sandbox.errors import Unsupported
from sandbox.evidence.cell import ServerChoice
from sandbox.evidence.records import InstallReceipt
from sandbox.harnesses.base import Capabilities, Harness
from sandbox.progress import Progress
from sandbox.runtimes.collection import RuntimeCollection
from sandbox.runtimes.install import Target, install
from sandbox.runtimes.library import Bundle, RuntimeLibrary
from sandbox.runtimes.needs import Refusal

Way = Literal["copy", "mount"]

# Read-only mounts inside the sandbox.
BUNDLE_MOUNT = "/tmp/.sandbox-bundle.tar"  # noqa: S108
TREE_MOUNT = "/tmp/.sandbox-runtime"  # noqa: S108


@dataclass(frozen=True, kw_only=True)
class RemoteAgent:
    """A server of the agent contract that somebody else runs.

    ``name`` stands for the harness in cell ids; ``card`` is what its OpenAPI document says of it;
    ``capabilities`` None: it declares nothing.
    """

    url: str
    name: str
    interface: Interface
    capabilities: Capabilities | None = None
    prefixed: bool = False
    card: AgentCard | None = None

    @property
    def tested(self) -> ServerChoice:
        """What a run's configuration says of it."""
        return ServerChoice(url=self.url, name=self.name, interface=self.interface)


@dataclass(frozen=True, kw_only=True)
class World:
    """Inputs of every cell; nothing here changes while cells run.

    ``remote`` works on all cells where there is one, else the harness's own adapter does.
    ``folder`` is the run's folder. ``retries`` is how often a cell is tried again whose engine
    failed; an outcome never is. ``isolation`` is passed to the model link. ``way`` is how
    runtimes get into sandboxes. ``conditions`` are what sandboxes are made harder by
    (``conditions.CONDITIONS``). ``cancel`` is set when the run is to end early.
    """

    engine: Engine
    images: Mapping[str, LoadedImage]
    harnesses: Mapping[str, Harness]
    library: RuntimeLibrary | RuntimeCollection
    run_id: str
    folder: Path
    progress: Progress
    remote: RemoteAgent | None = None
    isolation: Literal["auto", "namespace", "bridge"] = "auto"
    way: Way = "copy"
    conditions: tuple[str, ...] = ()
    retries: int = 1
    cancel: threading.Event = field(default_factory=threading.Event)


def choose_way(engine: Engine, wanted: Literal["auto", "copy", "mount"]) -> Way:
    """Return how runtimes get into the sandboxes of an engine.

    Raises:
        Unsupported: a mount is wanted, and the engine does not see this machine's files.
    """
    if wanted == "mount" and not engine.info.is_local:
        raise Unsupported(
            f"the engine at {engine.info.host} cannot mount what is on this machine",
            cure="use --install copy, or an engine on this machine",
        )
    if wanted == "auto":
        return "mount" if engine.info.is_local else "copy"
    return wanted


def room_of(size: int, way: Way, *, is_local: bool) -> int:
    """Return how many bytes the installation of a bundle of ``size`` bytes takes in a sandbox."""
    if way == "mount":
        return 0
    return size if is_local else 2 * size  # its tar and what comes out


class CellRuntimes:
    """The runtimes as one cell's agent gets them.

    A mount's tree has to be shown to the sandbox when that is made: ``mounts`` says what to show.
    A copy on a local engine is unpacked from the bundle's file, shown the same way.
    """

    def __init__(self, world: World, image: LoadedImage) -> None:
        self._library = world.library
        self._way = world.way
        self._local = world.engine.info.is_local
        self._image = image

    def mounts(self, bundle: Bundle) -> tuple[ReadOnlyMount, ...]:
        """Return what the sandbox has to see for ``bundle`` to be installed in it."""
        if self._way == "mount":
            tree = self._library.ensure_tree(bundle)
            return (ReadOnlyMount(source=tree, target=TREE_MOUNT),)
        if self._local:
            return (ReadOnlyMount(source=bundle.path, target=BUNDLE_MOUNT),)
        return ()

    def refusals(self, harness: str, platform: str, facts: ImageFacts) -> tuple[Refusal, ...]:
        """Return what an image lacks for the bundle; raises Unsupported without a pin."""
        return self._library.refusals(harness, platform, facts)

    def bundle(self, harness: str, platform: str) -> Bundle:
        """Return the verified bundle, fetched if need be; raises Unsupported without a pin."""
        return self._library.ensure_bundle(harness, platform)

    def room(self, bundle: Bundle) -> int:
        """Return how many bytes an installation takes in the sandbox."""
        return room_of(bundle.size, self._way, is_local=self._local)

    def install(self, place: Target, bundle: Bundle, prefix: str) -> InstallReceipt:
        """Run the installer in the sandbox and return its checked receipt."""
        if self._way == "mount":
            proofs = self._library.proofs(self._image.image_id)
            return install(place, bundle, prefix, tree_path=TREE_MOUNT, proofs=proofs)
        path = BUNDLE_MOUNT if self._local else None
        return install(place, bundle, prefix, bundle_path=path)
