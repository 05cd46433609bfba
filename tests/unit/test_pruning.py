"""What the cache holds and what a prune takes: nothing that is needed, nothing that is used."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from sandbox.cache import abandoned, claimed, in_use, locked, scratch
from sandbox.runtimes.library import RuntimeLibrary
from sandbox.runtimes.pruning import entries_of, prune, runtime_shelves
from sandbox.runtimes.reports import CacheEntry
from tests.unit.test_bundle_library import PINS, Room, package

OTHER = "#!/bin/sh\necho another\n"


@pytest.fixture
def room(tmp_path: Path) -> Room:
    """A room whose store has the tool's bundle and tree, and those of an earlier lock."""
    found = Room(tmp_path)
    found.pins.write_text(PINS)
    for text in (OTHER, "#!/bin/sh\necho tool 1.2.3\n"):
        found.memory.packages["tool"] = package(text)
        found.lock.unlink(missing_ok=True)
        library = found.library()
        library.update_lock()
        bundle = library.ensure_bundle("tool", "linux-x64-gnu")
        library.ensure_tree(bundle)
        proofs = library.proofs("sha256:1")
        proofs.keep(bundle, "installer", sandbox="box")
    return found


def found_in(room: Room, library: RuntimeLibrary | None = None) -> dict[str, list[CacheEntry]]:
    """The entries of a store by their state."""
    states: dict[str, list[CacheEntry]] = {"needed": [], "used": [], "unneeded": []}
    for shelf in runtime_shelves(room.store, [library or room.library()]):
        for entry in entries_of(shelf):
            states[entry.state].append(entry)
    return states


def kinds(entries: list[CacheEntry]) -> list[str]:
    return sorted(entry.kind for entry in entries)


ALL = ["artifact", "bundle", "proof", "tree"]


def test_a_prune_takes_what_no_lock_names_and_leaves_the_rest_as_it_was(room: Room) -> None:
    before = found_in(room)
    assert kinds(before["needed"]) == kinds(before["unneeded"]) == ALL
    assert before["used"] == []
    assert all(prune(entry) for entry in before["unneeded"])
    after = found_in(room)
    assert (after["needed"], after["unneeded"]) == (before["needed"], [])
    assert {entry.status for entry in room.library().verify()} == {"ok"}
    room.memory.asked = 0
    bundle = room.library().ensure_bundle("tool", "linux-x64-gnu")
    assert bundle.path in [entry.path for entry in after["needed"]]
    assert room.memory.asked == 0


def test_an_entry_says_what_it_takes(room: Room) -> None:
    sizes = {entry.kind: entry.size for entry in found_in(room)["needed"]}
    assert sizes["bundle"] == room.library().ensure_bundle("tool", "linux-x64-gnu").size
    assert 0 < sizes["tree"] < sizes["bundle"]


def test_what_a_living_library_works_with_stays(room: Room) -> None:
    with ExitStack() as stack:
        library = stack.enter_context(room.library())
        bundle = library.ensure_bundle("tool", "linux-x64-gnu")
        library.ensure_tree(bundle)
        room.edit_lock(lambda text: text.replace(bundle.sha256, "0" * 64))
        states = found_in(room)
        assert kinds(states["used"]) == ["bundle", "tree"]
        assert not any(prune(entry) for entry in states["used"])
        assert bundle.path.exists()
    after = found_in(room)
    assert after["used"] == []
    assert {entry.path for entry in states["used"]} < {entry.path for entry in after["unneeded"]}


def make_folder(path: Path) -> Path:
    path.mkdir()
    (path / "file").write_text("half")
    return path


LEFT: dict[str, Callable[[Path], Path]] = {
    "half an entry": lambda store: make_folder(store / "trees" / f".{'0' * 64}.tmp-1"),
    "half a download": lambda store: make_folder(store / "artifacts/sha256-00.part"),
    "a stage": lambda store: make_folder(store / f"bundles/.{'0' * 64}.tar.tmp-stage-1"),
    "packages under way": lambda store: make_folder(store / "artifacts/.tree-abc"),
    "a resolving": lambda store: make_folder(store / "artifacts/.resolve-abc"),
    "a bench": lambda store: make_folder(store / ".bench-abc"),
}


@pytest.mark.parametrize("left", LEFT.values(), ids=LEFT)
def test_what_the_killed_left_goes(room: Room, left: Callable[[Path], Path]) -> None:
    path = left(room.store.root)
    os.utime(path, (0, 0))
    (entry,) = (one for one in found_in(room)["unneeded"] if one.path == path)
    assert (entry.kind, prune(entry), path.exists()) == ("temporary", True, False)


def test_half_a_download_that_is_still_wanted_is_gone_on_with(room: Room) -> None:
    (artifact,) = (one for one in found_in(room)["needed"] if one.kind == "artifact")
    part = make_folder(artifact.path.with_name(artifact.path.name + ".part"))
    assert part in [entry.path for entry in found_in(room)["needed"]]


def test_what_a_living_writer_makes_stays(room: Room) -> None:
    half = make_folder(room.store.root / "trees" / f".{'0' * 64}.tmp-1")
    with locked(room.store.tree("0" * 64)), scratch(room.store.root / "artifacts", ".tree-") as own:
        os.utime(own, (0, 0))
        states = found_in(room)
        assert {half, own} <= {entry.path for entry in states["used"]}
        for entry in states["used"]:
            assert not prune(entry)
        assert half.exists()
        assert own.exists()
    assert not own.exists()


def test_a_young_scratch_folder_is_not_taken_for_abandoned(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / ".tree-new")
    assert not abandoned(folder)
    os.utime(folder, (0, 0))
    assert abandoned(folder)


def test_what_nobody_here_made_is_not_touched(room: Room) -> None:
    for name in ("artifacts/.mine", ".other", "other"):
        (room.store.root / name).write_text("x")
    listed = [entry.path.name for entries in found_in(room).values() for entry in entries]
    assert not {".mine", ".other", "other"} & set(listed)


def test_a_claim_and_a_use_exclude_each_other(tmp_path: Path) -> None:
    path = tmp_path / "entry"
    with in_use(path), in_use(path), claimed(path) as free:
        assert not free
    with claimed(path) as free:
        assert free
        with claimed(path) as again:
            assert not again


def test_an_empty_cache_has_no_entries(room: Room) -> None:
    shutil.rmtree(room.store.root)
    assert found_in(room) == {"needed": [], "used": [], "unneeded": []}


def test_a_scratch_folder_whose_removal_is_interrupted_is_removed_all_the_same(
    tmp_path: Path,
) -> None:
    calls = []

    def interrupted(folder: Path) -> None:
        calls.append(folder)
        if len(calls) == 1:
            raise KeyboardInterrupt
        shutil.rmtree(folder)

    with pytest.raises(KeyboardInterrupt), scratch(tmp_path, ".x-", remove=interrupted) as made:
        (made / "file").write_text("content")
    assert list(tmp_path.iterdir()) == []
