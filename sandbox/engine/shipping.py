"""Task images from one engine to another, without a registry: as an archive, known by content."""

from __future__ import annotations

import hashlib
from pathlib import Path

from sandbox.engine.client import Engine
from sandbox.engine.failure import engine_errors
from sandbox.engine.imagebuild.loading import ensure_named
from sandbox.engine.imagebuild.store import EngineStore, FoundImage
from sandbox.engine.images import LoadedImage
from sandbox.errors import IntegrityError, NotFound
from sandbox.progress import PlainProgress

_NOT_CONTENT = {"image_id", "tags", "size"}
"""What engines say differently of the same image: IDs depend on how they keep images."""


def image_content(engine: Engine, image: LoadedImage) -> str:
    """Return a digest of an image's layers and configuration, the same on every engine.

    Raises:
        NotFound: the engine does not have it.
        EngineFailure: the engine failed.
    """
    found = EngineStore(engine).find(image.image_id)
    if found is None:
        raise NotFound(f"the engine has lost the image {image.name}", cure="run it again")
    return _content(found)


def find_same(engine: Engine, image: LoadedImage, content: str) -> LoadedImage | None:
    """Return another engine's image as this one has it, by its name there; None: it does not.

    Raises:
        EngineFailure: the engine failed.
    """
    store = EngineStore(engine)
    for name in (image.image_id, image.ref):
        found = store.find(name)
        if found is None or _content(found) != content:
            continue
        if image.ref == image.image_id:  # somebody else's, used by its ID
            return image.model_copy(update={"image_id": found.image_id, "ref": found.image_id})
        ensure_named(store, found, image.ref)
        return image.model_copy(update={"image_id": found.image_id})
    return None


def export_image(engine: Engine, image: LoadedImage, archive: Path) -> str:
    """Write an image's archive as ``docker save`` does; return its SHA-256.

    Raises:
        EngineFailure: the engine failed.
    """
    digest = hashlib.sha256()
    with engine_errors(f"export image {image.name}"), archive.open("wb") as stream:
        for chunk in engine.sdk.api.get_image(image.ref):
            digest.update(chunk)
            stream.write(chunk)
    return digest.hexdigest()


def import_image(engine: Engine, image: LoadedImage, content: str, archive: Path) -> LoadedImage:
    """Load an exported image and return it as this engine has it.

    Raises:
        IntegrityError: what the engine made of it is another image.
        EngineFailure: the engine failed.
    """
    with PlainProgress(quiet=True).step("load") as step:
        EngineStore(engine).load(archive, step)
    found = find_same(engine, image, content)
    if found is None:
        raise IntegrityError(f"the engine has another image than {image.name} after loading it")
    return found


def _content(found: FoundImage) -> str:
    text = found.model_dump_json(exclude=_NOT_CONTENT)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
