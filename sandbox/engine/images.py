"""Task images: which there are, and how one comes to be on an engine, verified.

An image is made by its recipe, without a registry, or by its Dockerfile where a registry answers;
``source`` in its ``image.toml`` decides. What is loaded already is used as it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from sandbox.cache import locked
from sandbox.engine.client import Engine
from sandbox.engine.emulation import require_emulation
from sandbox.engine.imagebuild.built import BuiltImage, archive_path, built_image, find_built
from sandbox.engine.imagebuild.commands import Host
from sandbox.engine.imagebuild.definition import (
    IMAGES,
    Arch,
    ImageDef,
    Libc,
    Route,
    arch_of,
    image_definitions,
)
from sandbox.engine.imagebuild.job import Job
from sandbox.engine.imagebuild.loading import ensure_named, find_loaded, load_built, routes_of
from sandbox.engine.imagebuild.packages import Package
from sandbox.engine.imagebuild.registry import build_from_registry
from sandbox.engine.imagebuild.store import EngineStore, FoundImage, ImageStore
from sandbox.errors import FetchError, IntegrityError, PrerequisiteMissing, Unsupported, UsageError
from sandbox.progress import PlainProgress, Progress

__all__ = [
    "ImageInspection",
    "ImageRecord",
    "LoadedImage",
    "build_image",
    "ensure_image",
    "image_definition",
    "image_definitions",
    "inspect_image",
    "list_images",
]

State = Literal["loaded", "cached", "absent", "unlocked"]


class LoadedImage(BaseModel):
    """An image that is on the engine; ``size`` is bytes, ``route`` how it was made.

    A ``given`` one was made by somebody else: it has no recipe.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    image_id: str
    ref: str
    libc: Libc
    libc_version: str
    arch: Arch
    platform: str
    recipe_sha256: str
    route: Route | Literal["given"]
    size: int


class ImageRecord(BaseModel):
    """One line of ``sandbox images list``; ``unlocked``: its base has no digest yet."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    description: str
    platform: str
    libc: Libc
    libc_version: str
    source: str
    state: State
    ref: str
    recipe_sha256: str
    image_id: str | None
    size: int | None


class ImageInspection(BaseModel):
    """Everything known of an image: the definition, the archive in the cache, the engine's view."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    record: ImageRecord
    definition: dict[str, Any]
    expected_image_id: str | None
    labels: dict[str, str]
    layers: tuple[str, ...]
    packages: tuple[Package, ...]
    archive: str | None
    archive_sha256: str | None
    archive_size: int | None
    build_seconds: float | None
    on_engine: FoundImage | None


def image_definition(name: str, root: Path = IMAGES) -> ImageDef:
    """Read one definition by name."""
    known = image_definitions(root)
    if name not in known:
        raise UsageError(
            f"there is no image {name!r}", cure=f"choose one of: {', '.join(known) or 'none'}"
        )
    return known[name]


def ensure_image(
    engine: Engine, definition: ImageDef, progress: Progress, *, host: Host | None = None
) -> LoadedImage:
    """Give the image on the engine, verified; make and load it where it is missing.

    Args:
        engine: where to; its architecture decides which variant.
        definition: which image.
        progress: where progress goes.
        host: what a build uses of this machine.

    Raises:
        Unsupported: the image is not made for the engine's architecture.
        PrerequisiteMissing: a tool, a base image or a registry that has no substitute is missing,
            or the emulation of the image's architecture.
        FetchError: packages or the wheel cannot be read.
        IntegrityError: bytes are not the pinned ones, or the engine made another image of them.
        CacheUnusable, EngineFailure: no space; the engine's own failure.
    """
    own = arch_of(engine.info.architecture)
    arch = definition.arch_on(own)
    if arch != own:
        require_emulation(engine.info, arch)
    job = _job(definition, arch, progress, host or Host())
    store = EngineStore(engine)
    found = find_loaded(store, job)
    if found is None:
        with locked(job.host.images / f"{definition.name}.loading"):
            found = find_loaded(store, job) or _made(engine, store, job)
    image, route = found
    ensure_named(store, image, job.reference(route))
    return _loaded(job, image, route)


def build_image(
    definition: ImageDef,
    progress: Progress,
    *,
    arch: Arch | None = None,
    again: bool = False,
    host: Host | None = None,
) -> BuiltImage:
    """Build the image's archive in the cache from its recipe; needs no engine.

    Args:
        definition: which image; it has a recipe.
        progress: where progress goes.
        arch: for which architecture; this machine's by default.
        again: build it although it is there, and say whether the image ID comes out the same.
        host: what a build uses of this machine.
    """
    if definition.recipe is None:
        raise UsageError(
            f"image {definition.name} has no [recipe]: only an engine can build its Dockerfile"
        )
    where = host or Host()
    return built_image(
        _job(definition, arch or definition.arch_on(arch_of(where.machine)), progress, where),
        again=again,
    )


def list_images(
    engine: Engine | None, *, root: Path = IMAGES, host: Host | None = None
) -> tuple[ImageRecord, ...]:
    """List all definitions with their state; without an engine nothing counts as loaded."""
    where = host or Host()
    definitions = image_definitions(root).values()
    return tuple(inspect_image(engine, item, host=where).record for item in definitions)


def inspect_image(
    engine: Engine | None, definition: ImageDef, *, host: Host | None = None
) -> ImageInspection:
    """Collect what is known of one image, without making anything."""
    where = host or Host()
    arch = definition.arch_on(arch_of(engine.info.architecture if engine else where.machine))
    job = Job(definition=definition, arch=arch, host=where, progress=PlainProgress(quiet=True))
    built = find_built(job) if definition.recipe is not None else None
    found = find_loaded(EngineStore(engine), job) if engine else None
    on_engine, route = found or (None, routes_of(definition)[0])
    state: State = "loaded" if on_engine else "cached" if built else "absent"
    state = state if on_engine or definition.is_obtainable else "unlocked"
    expected = definition.expect.get(arch)
    record = ImageRecord(
        name=definition.name,
        description=definition.description,
        platform=definition.platform(arch),
        libc=definition.libc,
        libc_version=definition.libc_version,
        source=definition.source,
        state=state,
        ref=job.reference(route),
        recipe_sha256=job.recipe_sha256(route),
        image_id=on_engine.image_id if on_engine else built.image_id if built else expected,
        size=on_engine.size if on_engine else built.layer_size if built else None,
    )
    return ImageInspection(
        record=record,
        definition=definition.model_dump(mode="json", exclude={"folder"}, exclude_none=True),
        expected_image_id=expected,
        labels=on_engine.labels if on_engine else built.labels if built else job.labels(route),
        layers=on_engine.layers if on_engine else built.layers if built else (),
        packages=built.packages if built else (),
        archive=str(archive_path(job)) if built else None,
        archive_sha256=built.archive_sha256 if built else None,
        archive_size=built.archive_size if built else None,
        build_seconds=built.seconds if built else None,
        on_engine=on_engine,
    )


def _made(engine: Engine, store: ImageStore, job: Job) -> tuple[FoundImage, Route]:
    for route in routes_of(job.definition):
        if route == "recipe":
            return load_built(store, job, built_image(job)), route
        try:
            build_from_registry(engine, job)
        except FetchError as error:
            if not error.retryable:
                raise
            if job.definition.source == "auto" and job.definition.recipe is not None:
                job.say(f"the registry does not answer, so its recipe is used ({error.message})")
                continue
            raise _no_registry(job, error) from error
        found = store.find(job.reference(route))
        if found is not None:
            return found, route
    raise IntegrityError(f"{job.title}: the engine built it and does not have it")


def _no_registry(job: Job, error: FetchError) -> PrerequisiteMissing:
    other = ', or set source = "recipe" in its image.toml' if job.definition.recipe else ""
    return PrerequisiteMissing(
        f"{job.title}: no registry answers: {error.message}",
        cure=f"give the engine a way to the registry (proxy, mirror), load the base image{other}",
    )


def _job(definition: ImageDef, arch: Arch, progress: Progress, host: Host) -> Job:
    if arch not in definition.architectures:
        raise Unsupported(
            f"image {definition.name} is not made for {arch}",
            cure=f"use an engine on {' or '.join(definition.architectures)}",
        )
    return Job(definition=definition, arch=arch, host=host, progress=progress)


def _loaded(job: Job, found: FoundImage, route: Route) -> LoadedImage:
    return LoadedImage(
        name=job.definition.name,
        image_id=found.image_id,
        ref=job.reference(route),
        libc=job.definition.libc,
        libc_version=job.definition.libc_version,
        arch=job.arch,
        platform=job.definition.platform(job.arch),
        recipe_sha256=job.recipe_sha256(route),
        route=route,
        size=found.size,
    )
