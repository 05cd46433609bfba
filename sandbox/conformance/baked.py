"""Task images that bring a verified runtime on their PATH, for agents without sessions."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Literal

from sandbox.cache import cache_root, locked
from sandbox.engine.bake import commit, find, made_images
from sandbox.engine.client import Engine
from sandbox.engine.imagebuild.store import EngineStore
from sandbox.engine.images import LoadedImage
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import EngineFailure
from sandbox.evidence.records import Record
from sandbox.runtimes.collection import RuntimeCollection
from sandbox.runtimes.install import install
from sandbox.runtimes.library import RuntimeLibrary
from sandbox.runtimes.reports import CacheEntry

FOLDER = "/opt/sandbox"
_IMAGE, _BUNDLE = "baked.image", "baked.bundle"
_ON_PATH = """
mkdir -p /usr/local/bin && ln -s -- "$1/bin/$2" "/usr/local/bin/$2"
"""


class BakedImage(Record):
    """An image on the engine: a task image and one harness's runtime, both by content."""

    ref: str
    image_id: str
    bundle_sha256: str


def bake(
    engine: Engine,
    library: RuntimeLibrary | RuntimeCollection,
    *,
    harness: str,
    image: LoadedImage,
) -> BakedImage:
    """Make a task image with the verified runtime of a harness; what is there is kept.

    The installer runs as root in a sandbox of the image, as it would for a session, and refuses
    what is not the pin.

    Args:
        engine: where the image is, and is made.
        library: where the runtime comes from.
        harness: whose runtime.
        image: the task image, loaded.

    Raises:
        Unsupported: the harness has no pin for the image's platform.
        InstallError: the runtime does not work in the image.
        EngineFailure: the engine failed.
    """
    bundle = library.ensure_bundle(harness, image.platform)
    ref = f"sandbox-baked/{image.name}:{harness}-{bundle.version}-{bundle.sha256[:12]}"
    labels = {_IMAGE: image.image_id, _BUNDLE: bundle.sha256}
    with locked(cache_root() / "baked" / f"-{bundle.sha256}-{image.name}"):
        found = find(engine, ref, labels=labels)
        if found is None:
            owner = Ownership.current(run_id="bake", cell_id=f"{harness}/{image.name}")
            with Sandbox(engine, image.ref, owner=owner, user="0:0") as box:
                prefix = f"{FOLDER}/{harness}"
                install(box, bundle, prefix)
                linked = box.exec(
                    ["sh", "-c", _ON_PATH, "sh", prefix, harness], deadline_s=30, cwd="/"
                )
                if linked.exit_code != 0:
                    raise EngineFailure(
                        f"cannot put {harness} on the PATH of {image.name}: "
                        f"{linked.stderr.text.strip()[-500:]}"
                    )
                found = commit(engine, box, reference=ref, labels=labels)
    return BakedImage(ref=ref, image_id=found, bundle_sha256=bundle.sha256)


def baked_entries(engine: Engine, bundles: Collection[str]) -> Iterator[CacheEntry]:
    """Yield the baked images of an engine as entries of the cache; their paths are references.

    Needed is one of a bundle that a lock of today names (``bundles``: their SHA-256), whose task
    image is still there.

    Raises:
        EngineFailure: the engine failed.
    """
    store = EngineStore(engine)
    for made in made_images(engine, label=_BUNDLE):
        state: Literal["needed", "used", "unneeded"] = "used" if made.used else "unneeded"
        if made.labels[_BUNDLE] in bundles and store.find(made.labels[_IMAGE]) is not None:
            state = "needed"
        yield CacheEntry(kind="baked", path=Path(made.name), size=made.size, state=state)
