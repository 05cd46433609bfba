"""Images and runtimes that a plan needs, made ready before its first cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from sandbox.conformance.imagenames import reference_of
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.ways import Way
from sandbox.engine.client import Engine
from sandbox.engine.given import ensure_given, find_given
from sandbox.engine.imagebuild.definition import arch_of
from sandbox.engine.imagebuild.store import EngineStore, FoundImage
from sandbox.engine.images import LoadedImage, ensure_image, image_definition
from sandbox.errors import NotFound, Unsupported
from sandbox.progress import Progress
from sandbox.runtimes.collection import RuntimeCollection
from sandbox.runtimes.library import RuntimeLibrary


def prepare_images(
    engine: Engine, names: Iterable[str], progress: Progress
) -> dict[str, LoadedImage]:
    """Build or pull, and load the named images; two at once, since each waits for the network.

    A name with a reference in it (``imagenames.reference_of``) is somebody else's image.
    """
    wanted = sorted(set(names))
    with ThreadPoolExecutor(max_workers=2, thread_name_prefix="image") as pool:
        made = pool.map(lambda name: prepare_image(engine, name, progress), wanted)
        return dict(zip(wanted, made, strict=True))


def prepare_image(engine: Engine, name: str, progress: Progress) -> LoadedImage:
    """Build or pull, and load one image; see ``ensure_image`` and ``ensure_given``."""
    reference = reference_of(name)
    if reference is None:
        return ensure_image(engine, image_definition(name), progress)
    return ensure_given(engine, name, reference, progress)


def find_image(engine: Engine, name: str, progress: Progress) -> FoundImage:
    """Say what the engine says of an image; build or pull it when the engine does not have it."""
    reference = reference_of(name)
    if reference is not None:
        return find_given(engine, reference, progress)
    loaded = ensure_image(engine, image_definition(name), progress)
    found = EngineStore(engine).find(loaded.ref)
    if found is None:
        raise NotFound(f"the engine has lost the image {loaded.ref}", cure="run it again")
    return found


def prepare_bundles(
    library: RuntimeLibrary | RuntimeCollection,
    pairs: Iterable[tuple[str, str]],
    progress: Progress,
    *,
    unpack: bool,
) -> None:
    """Fetch, verify and assemble the bundles of the pairs; unpack those that are seen as folders.

    A pair without a pin is left alone: its cells are refused with the reason when they are set up.
    """
    for harness, platform in sorted(set(pairs)):
        try:
            bundle = library.ensure_bundle(harness, platform)
            if unpack:
                library.ensure_tree(bundle)
        except Unsupported as error:
            progress.say(f"{harness} on {platform}: {error.message}")


def prepare(
    engine: Engine,
    library: RuntimeLibrary | RuntimeCollection | None,
    plan: Sequence[CellSpec],
    progress: Progress,
    way: Way,
) -> dict[str, LoadedImage]:
    """Make everything ready that the plan's cells use; return the loaded images by name.

    Images and runtimes come from different places, so they are made ready side by side; only what
    a reference needs is known when its image is there. Without a library there are no runtimes to
    prepare: an agent server brings its own.
    """
    if library is None:
        return prepare_images(engine, (cell.image for cell in plan), progress)
    given = {cell.image for cell in plan if reference_of(cell.image) is not None}
    arch = arch_of(engine.info.architecture)
    unpack = way == "mount" and engine.info.is_local
    pairs = {
        (cell.adapter, definition.platform(definition.arch_on(arch)))
        for cell in plan
        if cell.image not in given
        for definition in (image_definition(cell.image),)
    }
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="runtimes") as pool:
        bundles = pool.submit(prepare_bundles, library, pairs, progress, unpack=unpack)
        images = prepare_images(engine, (cell.image for cell in plan), progress)
        bundles.result()
    more = {(cell.adapter, images[cell.image].platform) for cell in plan if cell.image in given}
    prepare_bundles(library, more - pairs, progress, unpack=unpack)
    return images
