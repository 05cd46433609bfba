"""Every harness that is pinned: other bytes than the locked ones are never unpacked, whoever brings
them: the registry, the store, or an edited lock."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandbox.errors import IntegrityError, SandboxError, UsageError
from sandbox.progress import PlainProgress, Step
from sandbox.runtimes import ustar
from sandbox.runtimes.artifacts import ArtifactPin
from sandbox.runtimes.fetch import Arrival, Fetcher
from sandbox.runtimes.integrity import Integrity
from sandbox.runtimes.library import RuntimeLibrary
from sandbox.runtimes.lock import LockedArtifact, Wanted, load_lock
from sandbox.runtimes.pins import INSTALLERS
from sandbox.runtimes.reports import Bundle
from sandbox.runtimes.store import Store

LOCK = load_lock()
BUNDLES = [(h, p) for h, platforms in sorted(LOCK.bundles.items()) for p in sorted(platforms)]
QUIET = PlainProgress(quiet=True)


@dataclass
class Evil:
    """Brings what nobody pinned."""

    asked: list[str] = field(default_factory=list)

    def bring(
        self, pin: ArtifactPin | Wanted, folder: Path, *,
        integrity: Integrity | None, size: int | None, step: Step,
    ) -> Arrival:  # fmt: skip
        self.asked.append(pin.name)
        path = folder / "file"
        path.write_bytes(b"evil".ljust(size or 4) if size and size < 1 << 20 else b"evil")
        return Arrival(path, "file", integrity)


def files_of(harness: str) -> Iterator[tuple[str, LockedArtifact]]:
    bundles = LOCK.bundles[harness].values()
    for name in sorted({name for bundle in bundles for name in bundle.artifacts}):
        yield name, LOCK.artifacts[name]
    for tree in sorted({tree for bundle in bundles for tree in bundle.trees}):
        yield from ((one.file, one) for one in LOCK.trees[tree].packages)


def unpacked(store: Store) -> list[Path]:
    return [path for path in store.root.rglob("*.tar") if path.is_file()]


@pytest.mark.parametrize("harness", sorted(LOCK.bundles))
def test_every_file_of_a_harness_is_hashed_before_it_is_kept(harness: str, tmp_path: Path) -> None:
    store, evil = Store(tmp_path / "store"), Evil()
    fetcher = Fetcher(store, dict.fromkeys(("npm", "pip", "apt"), lambda: evil))
    for name, locked in files_of(harness):
        with pytest.raises(IntegrityError, match="pinned"):
            fetcher.ensure(locked, QUIET)
        assert not store.artifact(Integrity.parse(locked.integrity)).exists(), name
    assert len(evil.asked) == len(list(files_of(harness)))


@pytest.mark.parametrize(("harness", "platform"), BUNDLES)
def test_a_tampered_store_is_no_way_around(harness: str, platform: str, tmp_path: Path) -> None:
    store, evil = Store(tmp_path / "store"), Evil()
    locked = LOCK.bundles[harness][platform]
    for path in [
        store.bundle(locked.sha256),
        *(store.artifact(Integrity.parse(LOCK.artifacts[n].integrity)) for n in locked.artifacts),
    ]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"evil")
    sources = dict.fromkeys(("npm", "pip", "apt"), lambda: evil)
    with (
        RuntimeLibrary(store=store, sources=sources) as library,
        pytest.raises(IntegrityError, match="pinned"),
    ):
        library.ensure_bundle(harness, platform)
    assert unpacked(store) == []


@pytest.mark.parametrize(("harness", "platform"), BUNDLES)
def test_a_tampered_tree_is_no_way_around(harness: str, platform: str, tmp_path: Path) -> None:
    locked, store = LOCK.bundles[harness][platform], Store(tmp_path / "store")
    evil = tmp_path / "evil.tar"
    with evil.open("wb") as out:
        ustar.write_folder(out, "bin")
        ustar.write_file(out, f"bin/{harness}", io.BytesIO(b"evil"), 4, executable=True)
        ustar.write_end(out)
    bundle = Bundle(
        harness=harness,
        version=locked.version,
        platform=platform,
        path=evil,
        sha256=hashlib.sha256(evil.read_bytes()).hexdigest(),
        size=evil.stat().st_size,
        version_argv=("--version",),
        version_output="evil",
    )
    with RuntimeLibrary(store=store) as library:
        library.ensure_tree(bundle).parent.rename(store.tree(locked.sha256))
        with pytest.raises(IntegrityError, match="pinned"):
            library.ensure_tree(bundle.model_copy(update={"sha256": locked.sha256}))
    assert not store.tree(locked.sha256).exists()


@pytest.mark.parametrize(("harness", "platform"), BUNDLES)
def test_an_edited_lock_is_refused_or_leads_to_no_bundle(
    harness: str, platform: str, tmp_path: Path
) -> None:
    shutil.copytree(INSTALLERS, tmp_path / "installers", ignore=shutil.ignore_patterns("*.sh"))
    path = tmp_path / "installers/pins.lock"
    data = json.loads(path.read_text())
    locked = LOCK.bundles[harness][platform]
    for name in locked.artifacts:
        entry = data["artifacts"][name]
        entry["size"] += 1
        path.write_text(json.dumps(data))
        store, evil = Store(tmp_path / name), Evil()
        sources = dict.fromkeys(("npm", "pip", "apt"), lambda one=evil: one)
        library = RuntimeLibrary(tmp_path / "installers/pins.toml", store=store, sources=sources)
        with pytest.raises(SandboxError) as caught:
            library.ensure_bundle(harness, platform)
        assert isinstance(caught.value, IntegrityError)
        assert unpacked(store) == []
        entry["size"] -= 1
    data["bundles"][harness][platform]["sha256"] = "0"
    path.write_text(json.dumps(data))
    with pytest.raises(UsageError, match=f"bundles.{harness}.{platform}.sha256"):
        RuntimeLibrary(tmp_path / "installers/pins.toml").ensure_bundle(harness, platform)
