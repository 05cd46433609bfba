"""Ways in: what a sandbox is shown for a runtime, by way and engine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox.conformance.volumes import RuntimeVolumes
from sandbox.conformance.ways import (
    BUNDLE_MOUNT,
    TREE_MOUNT,
    ImageRuntimes,
    Way,
    choose_way,
    room_of,
    run_volumes,
)
from sandbox.engine.limits import ReadOnlyMount, VolumeMount
from sandbox.errors import EngineFailure, InstallError, UsageError

IMAGE: Any = SimpleNamespace(ref="image:1", image_id="sha256:1")
BUNDLE: Any = SimpleNamespace(sha256="ab" * 32, path=Path("/cache/bundle.tar"), size=1000)
LIBRARY: Any = SimpleNamespace(ensure_tree=lambda _: Path("/cache/tree"))


def engine(*, is_local: bool) -> Any:
    return SimpleNamespace(info=SimpleNamespace(is_local=is_local))


class Volumes:
    """Fails as it is told, once."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def ensure(self, *_: object) -> str:
        error, self.error = self.error, None
        if error is not None:
            raise error
        return "volume"


def runtimes(way: Way, *, is_local: bool, volumes: Any = None) -> ImageRuntimes:
    return ImageRuntimes(engine(is_local=is_local), LIBRARY, IMAGE, way=way, volumes=volumes)


def test_a_copy_is_made_for_those_who_want_it() -> None:
    assert [choose_way(wanted) for wanted in ("auto", "mount", "copy")] == [
        "mount",
        "mount",
        "copy",
    ]


@pytest.mark.parametrize(
    ("way", "is_local", "volumes"),
    [("mount", True, None), ("copy", True, None), ("copy", False, None), ("mount", False, "run")],
)
def test_volumes_are_for_engines_elsewhere(way: Way, is_local: bool, volumes: str | None) -> None:
    with run_volumes(engine(is_local=is_local), way, "run") as found:
        assert (found and found.run_id) == volumes


def test_what_a_sandbox_is_shown() -> None:
    tree = ReadOnlyMount(source=Path("/cache/tree"), target=TREE_MOUNT)
    assert runtimes("mount", is_local=True).mounts(BUNDLE) == (tree,)
    bundle = ReadOnlyMount(source=BUNDLE.path, target=BUNDLE_MOUNT)
    assert runtimes("copy", is_local=True).mounts(BUNDLE) == (bundle,)
    assert runtimes("copy", is_local=False).mounts(BUNDLE) == ()
    away = runtimes("mount", is_local=False, volumes=Volumes())
    assert away.mounts(BUNDLE) == (VolumeMount(volume="volume", target=TREE_MOUNT),)
    assert [room_of(9, way, is_local=False) for way in ("copy", "mount")] == [18, 0]


def test_a_volume_that_the_image_cannot_fill_is_told_by_the_installation() -> None:
    error = InstallError("no tar")
    away = runtimes("mount", is_local=False, volumes=Volumes(error))
    assert away.mounts(BUNDLE) == ()
    with pytest.raises(InstallError) as caught:
        away.install(IMAGE, BUNDLE, "/prefix")
    assert caught.value is error
    assert away.mounts(BUNDLE) != (), "another sandbox tries again"


def test_an_engine_that_fails_is_no_matter_of_the_image() -> None:
    away = runtimes("mount", is_local=False, volumes=Volumes(EngineFailure("gone")))
    with pytest.raises(EngineFailure):
        away.mounts(BUNDLE)


def test_a_volume_is_named_and_its_place_absolute() -> None:
    for volume, target in (("/a/path", "/x"), ("name", "x")):
        with pytest.raises(UsageError):
            VolumeMount(volume=volume, target=target)


class Api:
    """Keeps volumes; cannot remove the one that is in use."""

    def __init__(self) -> None:
        self.removed: list[str] = []

    def remove_volume(self, name: str, *, force: bool) -> None:
        assert force
        if name == "in-use":
            raise ConnectionError(name)
        self.removed.append(name)


def test_an_end_removes_what_it_can_and_tells_the_first_error_only_by_itself() -> None:
    api = Api()
    away: Any = SimpleNamespace(sdk=SimpleNamespace(api=api))
    volumes = RuntimeVolumes(away, "run", _made=["in-use", "other"])
    with pytest.raises(KeyboardInterrupt), volumes:
        raise KeyboardInterrupt
    assert api.removed == ["other"]
