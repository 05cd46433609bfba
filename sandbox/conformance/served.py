"""A served agent's own sandboxes of one image, that are shown its runtime; others get a copy."""

from __future__ import annotations

from sandbox.agents.libraryruntimes import LibraryRuntimes
from sandbox.agents.ports import Place
from sandbox.conformance.ways import ImageRuntimes
from sandbox.engine.client import Engine
from sandbox.engine.images import LoadedImage
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import Unsupported
from sandbox.evidence.records import InstallReceipt
from sandbox.runtimes.collection import RuntimeCollection
from sandbox.runtimes.library import Bundle


class ServedSandboxes(LibraryRuntimes):
    """Makes sandboxes of an image, and installs in each what it was shown when it was made.

    Args:
        engine: where they are.
        library: where sandboxes of somebody else get their runtime from.
        image: ours are of it.
        harness: whose runtime they see.
        runtimes: how they see it.
        run_id: whose they are.
    """

    def __init__(
        self,
        engine: Engine,
        library: RuntimeCollection,
        image: LoadedImage,
        *,
        harness: str,
        runtimes: ImageRuntimes,
        run_id: str,
    ) -> None:
        super().__init__(library)
        self._engine = engine
        self._image = image
        self._harness = harness
        self._shown = runtimes
        self._run_id = run_id
        self._made: set[str] = set()

    def make(self) -> Sandbox:
        """Make a sandbox that is not started yet; without a pin it sees nothing."""
        try:
            bundle = self._shown.bundle(self._harness, self._image.platform)
            mounts = self._shown.mounts(bundle)
        except Unsupported:  # told by the agent's setup
            mounts = ()
        owner = Ownership.current(run_id=self._run_id)
        box = Sandbox(self._engine, self._image.ref, owner=owner, mounts=mounts)
        self._made.add(box.name)
        return box

    def install(self, place: Place, bundle: Bundle, prefix: str) -> InstallReceipt:
        """Run the installer in the sandbox and return its checked receipt."""
        if place.name in self._made:
            return self._shown.install(place, bundle, prefix)
        return super().install(place, bundle, prefix)
