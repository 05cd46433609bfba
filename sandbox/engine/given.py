"""Task images that somebody else made, named by reference: found on the engine or pulled."""

from __future__ import annotations

import re
from typing import cast, get_args

from sandbox.engine.client import Engine
from sandbox.engine.facts import LIBC_WORDS, ImageFacts
from sandbox.engine.imagebuild.definition import Arch
from sandbox.engine.imagebuild.pull import pull, split_reference
from sandbox.engine.imagebuild.store import EngineStore, FoundImage
from sandbox.engine.images import LoadedImage
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.engine.still import still_facts
from sandbox.errors import FetchError, NotFound, PrerequisiteMissing, Unsupported
from sandbox.progress import Progress

_ID = re.compile(r"sha256:[0-9a-f]{64}")


def ensure_given(engine: Engine, name: str, reference: str, progress: Progress) -> LoadedImage:
    """Give an image by its reference or ID; pull it when the engine does not have it.

    It is used by its ID from here on, so that a tag that moves meanwhile changes nothing.

    Args:
        engine: where to.
        name: what cells call it.
        reference: ``name[:tag][@digest]`` or an image ID.
        progress: where progress goes.

    Raises:
        UsageError: it is no reference.
        PrerequisiteMissing: the engine does not have it, and no registry gives it.
        IntegrityError: a registry gives other bytes than the digest says.
        EngineFailure: the engine failed.
        Unsupported: an architecture that nobody here knows.
    """
    found = find_given(engine, reference, progress)
    facts = image_facts(engine, found.image_id)
    arch = facts.architecture
    if arch not in get_args(Arch):
        raise Unsupported(
            f"image {reference} is for the architecture {arch}",
            cure=f"use an image for {' or '.join(get_args(Arch))}",
        )
    return LoadedImage(
        name=name,
        image_id=found.image_id,
        ref=found.image_id,
        libc=facts.libc,
        libc_version=facts.libc_version or "",
        arch=cast("Arch", arch),
        platform=facts.platform or f"linux-{arch}-{LIBC_WORDS.get(facts.libc, 'none')}",
        recipe_sha256="",
        route="given",
        size=found.size,
    )


def find_given(engine: Engine, reference: str, progress: Progress) -> FoundImage:
    """Find the image on the engine, or pull it; see ``ensure_given``."""
    store = EngineStore(engine)
    if _ID.fullmatch(reference) is None:
        split_reference(reference)
    found = store.find(reference)
    if found is None and _ID.fullmatch(reference) is None:
        try:
            with progress.step(f"pull {reference}"):
                pull(engine, reference, what=f"image {reference}")
        except FetchError as error:
            raise PrerequisiteMissing(
                f"the engine does not have the image {reference}, and {error.message}",
                cure=error.cure
                or "load it (docker load), or give the engine a way to the registry",
            ) from error
        found = store.find(reference)
    if found is None:
        raise NotFound(f"the engine has no image {reference}", cure="docker image ls")
    return found


def image_facts(engine: Engine, image: str) -> ImageFacts:
    """Say what an image is: asked in a sandbox, or read from its files where it has no shell."""
    try:
        with Sandbox(engine, image, owner=Ownership.current(run_id="look")) as box:
            return box.facts()
    except Unsupported:
        return still_facts(engine, image)
