"""Pins files side by side: each harness from its own file, clashes and broken files told apart."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.errors import NothingSelected, PrerequisiteMissing, SandboxError, UsageError
from sandbox.progress import PlainProgress
from sandbox.runtimes.collection import RuntimeCollection
from sandbox.runtimes.library import RuntimeLibrary
from sandbox.runtimes.store import Store
from tests.unit.test_bundle_library import PINS, Memory


@pytest.fixture
def pinned(tmp_path: Path) -> Callable[..., Path]:
    """Make a locked pins file of one harness."""

    def make(folder: str, harness: str, *, locked: bool = True) -> Path:
        path = tmp_path / folder / "pins.toml"
        path.parent.mkdir()
        path.write_text(PINS.replace("harness.tool", f"harness.{harness}"))
        if locked:
            with library(path, tmp_path) as opened:
                opened.update_lock()
        return path

    return make


def library(path: Path, folder: Path) -> RuntimeLibrary:
    return RuntimeLibrary(path, store=Store(folder / "store"), sources={"npm": Memory})


def collection(own: Path, others: dict[str, Path], folder: Path) -> RuntimeCollection:
    return RuntimeCollection(library(own, folder), others, progress=PlainProgress(quiet=True))


def refused(found: RuntimeCollection, harness: str, kind: type[SandboxError], says: str) -> str:
    with pytest.raises(kind, match=says) as caught:
        found.ensure_bundle(harness, "linux-x64-gnu")
    assert caught.value.cure
    return caught.value.cure


def test_each_harness_comes_from_its_own_file(pinned: Callable[..., Path], tmp_path: Path) -> None:
    with collection(pinned("a", "ours"), {"theirs": pinned("b", "theirs")}, tmp_path) as found:
        assert [entry.harness for entry in found.entries()] == ["ours", "ours", "theirs", "theirs"]
        bundle = found.ensure_bundle("theirs", "linux-x64-gnu")
        assert (bundle.harness, bundle.sha256) == (
            "theirs",
            hashlib.sha256(bundle.path.read_bytes()).hexdigest(),
        )
        assert found.needs("theirs", "linux-x64-musl") == found.needs("ours", "linux-x64-musl")
        assert [one.bundle.harness for one in found.fetch(("their*",))] == ["theirs", "theirs"]
        kinds = [entry.kind for entry in found.verify()]
        assert kinds.count("lock") == 2
        assert {entry.status for entry in found.verify()} == {"ok"}
        with pytest.raises(NothingSelected, match="no runtime matches"):
            found.fetch(("nobody",))


def test_a_harness_without_pins_is_told_where_they_go(
    pinned: Callable[..., Path], tmp_path: Path
) -> None:
    found = collection(pinned("a", "ours"), {}, tmp_path)
    assert "pins_file" in refused(found, "theirs", UsageError, "no pin for harness 'theirs'")


def test_a_missing_lock_leaves_the_others_alone(
    pinned: Callable[..., Path], tmp_path: Path
) -> None:
    path = pinned("b", "theirs", locked=False)
    found = collection(pinned("a", "ours"), {"theirs": path}, tmp_path)
    cure = refused(found, "theirs", PrerequisiteMissing, "no lock file")
    assert f"--pins {path}" in cure
    assert {entry.harness for entry in found.entries()} == {"ours"}
    assert [e.name for e in found.verify() if e.status == "corrupt"] == ["theirs"]
    with pytest.raises(PrerequisiteMissing):
        found.fetch(("theirs",))


def test_a_stale_lock_names_the_file_to_lock_again(
    pinned: Callable[..., Path], tmp_path: Path
) -> None:
    path = pinned("b", "theirs")
    path.write_text(path.read_text().replace('version = "1.2.3"', 'version = "1.2.4"'))
    found = collection(pinned("a", "ours"), {"theirs": path}, tmp_path)
    assert f"--pins {path}" in refused(found, "theirs", UsageError, "is stale")


def test_a_file_without_the_harness_is_refused(pinned: Callable[..., Path], tmp_path: Path) -> None:
    found = collection(pinned("a", "ours"), {"theirs": pinned("b", "other")}, tmp_path)
    refused(found, "theirs", UsageError, r"b/pins.toml has no pin for harness 'theirs'")


def test_one_harness_in_two_files_is_refused_with_both(
    pinned: Callable[..., Path], tmp_path: Path
) -> None:
    found = collection(pinned("a", "ours"), {"ours": pinned("b", "ours")}, tmp_path)
    refused(found, "ours", UsageError, r"a/pins.toml and in .*b/pins.toml")


def test_two_harnesses_may_share_a_file(pinned: Callable[..., Path], tmp_path: Path) -> None:
    path = pinned("b", "theirs")
    found = collection(pinned("a", "ours"), {"theirs": path, "third": path}, tmp_path)
    assert found.library("theirs").pins_path == path
    refused(found, "third", UsageError, "no pin for harness 'third'")
