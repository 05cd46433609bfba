"""Built images in the cache: build one from its recipe, find it again, know when it is damaged."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from sandbox.cache import locked, published
from sandbox.engine.imagebuild.archive import Layer, Written, write_archive
from sandbox.engine.imagebuild.bootstrap import SELECTION as BOOTSTRAP_SELECTION
from sandbox.engine.imagebuild.bootstrap import bootstrapped
from sandbox.engine.imagebuild.definition import Arch, BootstrapRecipe, DerivedRecipe
from sandbox.engine.imagebuild.job import Job
from sandbox.engine.imagebuild.layout import on_top, whole
from sandbox.engine.imagebuild.packages import Package, check_libc, difference, read_packages
from sandbox.engine.imagebuild.tartree import tar_entries
from sandbox.engine.imagebuild.tree import Entry, Selection, canonical
from sandbox.engine.imagebuild.wheel import SELECTION as DISK_SELECTION
from sandbox.engine.imagebuild.wheel import disk_from_wheel, file_sha256
from sandbox.errors import IntegrityError

_ARCHIVE = "image.tar"
_RECORD = "image.json"


class BuiltImage(BaseModel):
    """What is known of an image archive in the cache; kept beside it as ``image.json``.

    Sizes are bytes, ``seconds`` is how long the build took. ``packages`` explains why another
    build of the same recipe has another ``image_id``. ``diff_id`` and ``layer_size`` are the top
    layer's; ``below`` is the diff ID of the layer of the image it is derived from.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    arch: Arch
    reference: str
    recipe_sha256: str
    image_id: str
    diff_id: str
    below: str | None = None
    layer_size: int
    archive_sha256: str
    archive_size: int
    labels: dict[str, str]
    packages: tuple[Package, ...]
    seconds: float

    @property
    def layers(self) -> tuple[str, ...]:
        """Give the diff IDs, lowest first."""
        return (*([self.below] if self.below else []), self.diff_id)


def archive_path(job: Job) -> Path:
    """Say where the image's archive is, if it was built."""
    return job.home("recipe") / _ARCHIVE


def find_built(job: Job) -> BuiltImage | None:
    """Read the record of the built image; None when there is none (a broken one is none)."""
    try:
        text = (job.home("recipe") / _RECORD).read_text(encoding="utf-8")
        return BuiltImage.model_validate_json(text)
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError, ValidationError):
        return None


def built_image(job: Job, *, again: bool = False) -> BuiltImage:
    """Give the image's archive in the cache, whole; build it when it is not there or damaged.

    Args:
        job: the image; its definition has a recipe.
        again: build even when a good archive is there, and say whether the result is the same.

    Raises:
        IntegrityError: the result is not what ``image.toml`` promises.
        PrerequisiteMissing, FetchError, CacheUnusable, Unsupported: see the recipes.
    """
    entry = job.home("recipe")
    with locked(entry):
        before = find_built(job)
        if not again and before is not None and _is_whole(entry, before):
            return before
        if not again and entry.exists():
            job.say("its archive in the cache is damaged: building it again")
        fresh = _build(job, entry)
    if before is not None:
        job.say(_compared(before, fresh))
    return fresh


def _is_whole(entry: Path, record: BuiltImage) -> bool:
    path = entry / _ARCHIVE
    return (
        path.is_file()
        and path.stat().st_size == record.archive_size
        and file_sha256(path) == record.archive_sha256
    )


def _compared(before: BuiltImage, now: BuiltImage) -> str:
    if before.image_id == now.image_id:
        return f"built again with the same image ID {now.image_id}"
    why = difference(before.packages, now.packages) or "with the same packages"
    return f"the image ID is now {now.image_id}, it was {before.image_id}: {why}"


def _build(job: Job, entry: Path) -> BuiltImage:
    started = time.monotonic()
    with published(entry) as fresh:
        work = fresh / "work"
        work.mkdir(parents=True)
        with _made(job, work) as made:
            check_libc(job.definition, made.packages)
            written = _write(job, fresh / _ARCHIVE, made)
        shutil.rmtree(work)
        _check_expected(job, written.image_id)
        record = BuiltImage(
            name=job.definition.name,
            arch=job.arch,
            reference=job.reference("recipe"),
            recipe_sha256=job.recipe_sha256("recipe"),
            archive_sha256=file_sha256(fresh / _ARCHIVE),
            archive_size=(fresh / _ARCHIVE).stat().st_size,
            labels=job.labels("recipe", made.packages),
            packages=made.packages,
            below=made.below.diff_id if made.below else None,
            seconds=round(time.monotonic() - started, 3),
            **written.model_dump(),
        )
        (fresh / _RECORD).write_text(record.model_dump_json(indent=2), encoding="utf-8")
        shutil.rmtree(entry, ignore_errors=True)  # a damaged one: a rename replaces no folder
    job.say(f"built {record.image_id} in {record.seconds:.1f} s, {record.layer_size / 1e6:.0f} MB")
    return record


@dataclass(frozen=True, kw_only=True)
class _Made:
    """What a recipe gave: entries in canonical order, what they go on top of, the packages."""

    entries: tuple[Entry, ...]
    packages: tuple[Package, ...]
    below: Layer | None = None


def _made(job: Job, work: Path) -> AbstractContextManager[_Made]:
    recipe = job.definition.recipe
    assert recipe is not None
    if isinstance(recipe, DerivedRecipe):
        return _derived(job)
    if isinstance(recipe, BootstrapRecipe):
        return _whole(job, bootstrapped(job, recipe, work), BOOTSTRAP_SELECTION)
    return _whole(job, disk_from_wheel(job, recipe, work), DISK_SELECTION)


@contextmanager
def _whole(
    job: Job, made: AbstractContextManager[tuple[Entry, ...]], selection: Selection
) -> Iterator[_Made]:
    with made as found:
        layout, settings = job.definition.layout, job.definition.config
        entries = _canonical(job, whole(found, layout, epoch=settings.epoch), selection)
        yield _Made(entries=entries, packages=read_packages(entries))


@contextmanager
def _derived(job: Job) -> Iterator[_Made]:
    base = replace(job, definition=job.definition.base())
    built = built_image(base)
    below = Layer(archive=archive_path(base), diff_id=built.diff_id, size=built.layer_size)
    with below.opened() as stream, tar_entries(stream) as found:
        changed = on_top(found, job.definition.layout, epoch=job.definition.config.epoch)
        entries = _canonical(job, changed, Selection(drop=()))
        yield _Made(entries=entries, packages=built.packages, below=below)


def _canonical(job: Job, entries: tuple[Entry, ...], selection: Selection) -> tuple[Entry, ...]:
    settings = job.definition.config
    return canonical(
        entries,
        selection=selection,
        epoch=settings.epoch,
        workdir=settings.workdir,
        owner=settings.user,
    )


def _write(job: Job, path: Path, made: _Made) -> Written:
    with job.step("archive"), path.open("wb") as target:
        return write_archive(
            target,
            made.entries,
            settings=job.definition.config,
            arch=job.arch,
            labels=job.labels("recipe", made.packages),
            reference=job.reference("recipe"),
            below=made.below,
        )


def _check_expected(job: Job, image_id: str) -> None:
    expected = job.definition.expect.get(job.arch)
    if expected is not None and expected != image_id:
        raise IntegrityError(
            f"{job.title} for {job.arch} came out as {image_id}, not {expected}",
            cure="if its recipe or the code was changed on purpose, put the new ID under [expect]",
        )
