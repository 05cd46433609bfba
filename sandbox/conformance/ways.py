"""How runtimes get into sandboxes: copied, or mounted from a folder or a volume."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

from sandbox.conformance.volumes import TREE, RuntimeVolumes
from sandbox.engine.client import Engine
from sandbox.engine.facts import ImageFacts
from sandbox.engine.images import LoadedImage
from sandbox.engine.limits import Mounted, ReadOnlyMount, VolumeMount
from sandbox.errors import InstallError, IntegrityError, Unsupported
from sandbox.evidence.records import InstallReceipt
from sandbox.runtimes.collection import RuntimeCollection
from sandbox.runtimes.install import Target, install
from sandbox.runtimes.library import Bundle, RuntimeLibrary
from sandbox.runtimes.needs import Refusal

Way = Literal["copy", "mount"]

# Read-only mounts inside the sandbox.
BUNDLE_MOUNT = "/tmp/.sandbox-bundle.tar"  # noqa: S108
TREE_MOUNT = "/tmp/.sandbox-runtime"  # noqa: S108


def choose_way(wanted: Literal["auto", "copy", "mount"]) -> Way:
    """Return how runtimes get into sandboxes: mounted, if nobody wants a copy.

    What is mounted depends on the engine: a folder of this machine where it sees that, else a
    volume of its own (``run_volumes``).
    """
    return "copy" if wanted == "copy" else "mount"


def run_volumes(
    engine: Engine, way: Way, run_id: str
) -> AbstractContextManager[RuntimeVolumes | None]:
    """Return the volumes that a run mounts runtimes from; None where it does not need any."""
    if way == "copy" or engine.info.is_local:
        return nullcontext()
    return RuntimeVolumes(engine, run_id)


def room_of(size: int, way: Way, *, is_local: bool) -> int:
    """Return how many bytes the installation of a bundle of ``size`` bytes takes in a sandbox."""
    if way == "mount":
        return 0
    return size if is_local else 2 * size  # its tar and what comes out


class ImageRuntimes:
    """The runtimes as the agents of one image's sandboxes get them.

    A mount has to be shown to the sandbox when that is made: ``mounts`` says what to show. A copy
    on a local engine is unpacked from the bundle's file, shown the same way.

    Args:
        engine: where the sandboxes are.
        library: where bundles come from.
        image: theirs.
        way: how.
        volumes: what is mounted where the engine does not see this machine's files.
    """

    def __init__(
        self,
        engine: Engine,
        library: RuntimeLibrary | RuntimeCollection,
        image: LoadedImage,
        *,
        way: Way,
        volumes: RuntimeVolumes | None,
    ) -> None:
        self._library = library
        self._way = way
        self._local = engine.info.is_local
        self._image = image
        self._volumes = volumes
        self._unfilled: dict[str, InstallError | IntegrityError | Unsupported] = {}

    def mounts(self, bundle: Bundle) -> tuple[Mounted, ...]:
        """Return what the sandbox has to see for ``bundle`` to be installed in it.

        A volume that cannot be filled in this image is told by ``install``: an agent may have a
        better reason to refuse the image before that.
        """
        if self._way == "mount":
            return self._tree(bundle)
        if self._local:
            return (ReadOnlyMount(source=bundle.path, target=BUNDLE_MOUNT),)
        return ()

    def _tree(self, bundle: Bundle) -> tuple[Mounted, ...]:
        if self._volumes is None:
            return (ReadOnlyMount(source=self._library.ensure_tree(bundle), target=TREE_MOUNT),)
        self._unfilled.pop(bundle.sha256, None)
        try:
            volume = self._volumes.ensure(bundle, self._image.ref)
        except (InstallError, IntegrityError, Unsupported) as error:
            self._unfilled[bundle.sha256] = error
            return ()
        return (VolumeMount(volume=volume, target=TREE_MOUNT),)

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
            if bundle.sha256 in self._unfilled:
                raise self._unfilled[bundle.sha256]
            path = TREE_MOUNT if self._volumes is None else f"{TREE_MOUNT}/{TREE}"
            proofs = self._library.proofs(self._image.image_id)
            return install(place, bundle, prefix, tree_path=path, proofs=proofs)
        bundle_path = BUNDLE_MOUNT if self._local else None
        return install(place, bundle, prefix, bundle_path=bundle_path)
