"""Images on an engine: which one is meant, what must match after loading, which way is taken."""

import re
from pathlib import Path
from typing import Any

import pytest

from sandbox.engine.imagebuild.built import BuiltImage
from sandbox.engine.imagebuild.commands import Completed, Host
from sandbox.engine.imagebuild.definition import ImageDef, Registry, image_definitions
from sandbox.engine.imagebuild.job import Job
from sandbox.engine.imagebuild.loading import ensure_named, find_loaded, load_built, routes_of
from sandbox.engine.imagebuild.packages import Package
from sandbox.engine.imagebuild.registry import pinned_bases
from sandbox.engine.imagebuild.store import FoundImage
from sandbox.engine.images import image_definition, inspect_image, list_images
from sandbox.errors import IntegrityError, UsageError
from sandbox.progress import PlainProgress, Step

ID = "sha256:" + "1" * 64
OTHER = "sha256:" + "2" * 64
DIFF = "sha256:" + "3" * 64


class Store:
    """Stands for an engine: images by ID and by tag; ``loads`` is what an archive becomes."""

    def __init__(self, *images: FoundImage, loads: FoundImage | None = None) -> None:
        self.images = list(images)
        self.loads = loads
        self.tagged: list[tuple[str, str]] = []

    def find(self, reference: str) -> FoundImage | None:
        found = (i for i in self.images if reference == i.image_id or reference in i.tags)
        return next(found, None)

    def load(self, archive: Path, step: Step) -> None:
        if self.loads is not None:
            self.images.append(self.loads)

    def tag(self, image_id: str, reference: str) -> None:
        self.tagged.append((image_id, reference))


def no_tool(*_: object, **__: object) -> Completed:
    raise AssertionError("nothing is to be run")


def job(cache: Path, name: str = "debian-12", definition: ImageDef | None = None) -> Job:
    return Job(
        definition=definition or image_definitions()[name],
        arch="x64",
        host=Host(cache=cache, run=no_tool, machine="x86_64"),
        progress=PlainProgress(quiet=True),
    )


def built(work: Job, *, remember: bool = True) -> BuiltImage:
    packages = (Package(name="libc6", version="2.36-9", arch="amd64"),)
    record = BuiltImage(
        name=work.definition.name,
        arch="x64",
        reference=work.reference("recipe"),
        recipe_sha256=work.recipe_sha256("recipe"),
        image_id=ID,
        diff_id=DIFF,
        layer_size=1,
        archive_sha256="4" * 64,
        archive_size=2,
        labels=work.labels("recipe", packages),
        packages=packages,
        seconds=1.5,
    )
    if remember:
        work.home("recipe").mkdir(parents=True)
        (work.home("recipe") / "image.json").write_text(record.model_dump_json())
    return record


def image(work: Job, image_id: str = ID, *, tagged: bool = True, **more: object) -> FoundImage:
    values: dict[str, object] = {
        "image_id": image_id,
        "tags": (work.reference("recipe"),) if tagged else (),
        "size": 3,
        "created": "2026-01-01T00:00:00Z",
        "layers": (DIFF,),
        "labels": built(work, remember=False).labels,
        "env": (),
        "cmd": ("/bin/sh",),
        "user": "",
        "workdir": "/workspace",
    }
    return FoundImage.model_validate(values | more)


def test_an_image_is_found_by_the_id_its_build_recorded(tmp_path: Path) -> None:
    work = job(tmp_path)
    built(work)
    found = image(work, tagged=False)
    assert find_loaded(Store(found), work) == (found, "recipe")


def test_an_image_is_found_by_its_pinned_id_without_any_cache(tmp_path: Path) -> None:
    work = job(tmp_path, "alpine-3.23")
    found = image(work, work.definition.expect["x64"], tagged=False, labels={})
    assert find_loaded(Store(found), work) == (found, "recipe")


def test_without_a_record_the_name_and_its_label_decide(tmp_path: Path) -> None:
    work = job(tmp_path)
    assert find_loaded(Store(image(work)), work) == (image(work), "recipe")
    for labels in ({}, {"sandbox.image.recipe_sha256": "0" * 64}):
        assert find_loaded(Store(image(work, labels=labels)), work) is None


def test_another_build_under_the_name_is_not_the_recorded_one(tmp_path: Path) -> None:
    work = job(tmp_path)
    built(work)
    assert find_loaded(Store(image(work, OTHER, layers=(OTHER,))), work) is None


def test_an_engine_with_ids_of_its_own_is_known_by_content(tmp_path: Path) -> None:
    work = job(tmp_path)
    record = built(work)
    found = image(work, OTHER)
    assert find_loaded(Store(found), work) == (found, "recipe")
    assert load_built(Store(loads=found), work, record) == found


def test_an_empty_engine_has_nothing(tmp_path: Path) -> None:
    assert find_loaded(Store(), job(tmp_path)) is None


@pytest.mark.parametrize("change", ["layers", "labels", "nothing loaded"])
def test_what_the_engine_makes_of_an_archive_must_be_the_image(tmp_path: Path, change: str) -> None:
    work = job(tmp_path)
    record = built(work)
    changes: dict[str, dict[str, Any]] = {
        "layers": {"layers": (OTHER,)},
        "labels": {"labels": {}},
    }
    wrong = changes.get(change)
    loads = image(work, OTHER, **wrong) if wrong else None
    with pytest.raises(IntegrityError, match=ID):
        load_built(Store(loads=loads), work, record)


def test_a_lost_name_is_given_again(tmp_path: Path) -> None:
    work = job(tmp_path)
    store = Store()
    ensure_named(store, image(work), work.reference("recipe"))
    assert store.tagged == []
    ensure_named(store, image(work, tagged=False), work.reference("recipe"))
    assert store.tagged == [(ID, work.reference("recipe"))]


def with_registry(
    folder: Path, dockerfile: str, *, source: str = "auto", **more: object
) -> ImageDef:
    (folder / "Dockerfile").write_text(dockerfile)
    registry = Registry.model_validate({"base": "some/base", "digest": OTHER} | more)
    return image_definitions()["debian-12"].model_copy(
        update={"folder": folder, "registry": registry, "source": source}
    )


def test_the_ways_and_their_order(tmp_path: Path) -> None:
    recipe = image_definitions()["debian-12"]
    both = with_registry(tmp_path, "")
    assert routes_of(recipe) == ("recipe",)
    assert routes_of(both) == ("registry", "recipe")
    assert routes_of(both.model_copy(update={"source": "recipe"})) == ("recipe",)
    assert routes_of(both.model_copy(update={"source": "registry"})) == ("registry",)
    assert routes_of(both.model_copy(update={"recipe": None})) == ("registry",)
    assert routes_of(recipe.model_copy(update={"source": "auto"})) == ("recipe",)


def test_what_was_loaded_one_way_is_used(tmp_path: Path) -> None:
    """With auto a loaded recipe image is used: no registry is asked again and again."""
    work = job(tmp_path / "cache", definition=with_registry(tmp_path, ""))
    assert find_loaded(Store(image(work)), work) == (image(work), "recipe")
    ref = work.reference("registry")
    made = image(work, OTHER, tags=(ref,), labels=work.labels("registry"))
    assert find_loaded(Store(image(work), made), work) == (made, "registry")


def test_the_base_comes_from_image_toml(tmp_path: Path) -> None:
    definition = with_registry(tmp_path, "ARG BASE\nFROM ${BASE}\n")
    (base,) = pinned_bases(job(tmp_path / "cache", definition=definition))
    assert base.reference == f"some/base@{OTHER}"
    local = with_registry(tmp_path, "ARG BASE\nFROM ${BASE}\n", base=None)
    (base,) = pinned_bases(job(tmp_path / "cache", definition=local))
    assert base.is_local_id


@pytest.mark.parametrize(
    ("dockerfile", "said"),
    [
        ("FROM debian:12\n", "Dockerfile:1: FROM debian:12 is not pinned"),
        (
            f"ARG BASE\nFROM ${{BASE}}\nFROM some/base@{ID}\nCOPY --from=x / /\n",
            "Dockerfile:4: COPY",
        ),
        (f"FROM some/base@{ID}\n", "nothing starts from some/base@"),
        ("FROM ${BASE}\n", "BASE has no value"),
        ("RUN true\n", "no FROM"),
    ],
)
def test_an_unpinned_dockerfile_is_refused(tmp_path: Path, dockerfile: str, said: str) -> None:
    definition = with_registry(tmp_path, dockerfile)
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        pinned_bases(job(tmp_path / "cache", definition=definition))
    assert str(tmp_path / "Dockerfile") in caught.value.message


def test_the_list_without_an_engine(tmp_path: Path) -> None:
    host = Host(cache=tmp_path, run=no_tool, machine="x86_64")
    states = {item.name: item.state for item in list_images(None, host=host)}
    assert (states["alpine-3.23"], states["debian-12"]) == ("absent", "absent")
    assert states["ubuntu-24.04"] == "unlocked"
    built(job(tmp_path))
    listed = {item.name: item for item in list_images(None, host=host)}
    alpine, debian = listed["alpine-3.23"], listed["debian-12"]
    assert (alpine.state, debian.state) == ("absent", "cached")
    assert (debian.image_id, debian.platform, debian.size) == (ID, "linux-x64-gnu", 1)
    assert alpine.image_id == image_definitions()["alpine-3.23"].expect["x64"]


def test_an_inspection_has_everything_and_makes_nothing(tmp_path: Path) -> None:
    host = Host(cache=tmp_path, run=no_tool, machine="x86_64")
    work = job(tmp_path)
    nothing = inspect_image(None, work.definition, host=host)
    assert (nothing.record.state, nothing.archive, nothing.layers) == ("absent", None, ())
    record = built(work)
    found = inspect_image(None, work.definition, host=host)
    assert found.record.state == "cached"
    assert found.archive == str(work.home("recipe") / "image.tar")
    assert found.labels == record.labels
    assert found.packages == record.packages
    assert found.definition["recipe"]["suite"] == "bookworm"
    assert "folder" not in found.definition
    assert found.model_dump_json()


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no image 'debian'") as caught:
        image_definition("debian")
    assert "debian-11, debian-12" in str(caught.value)
    assert image_definition("debian-12").name == "debian-12"
