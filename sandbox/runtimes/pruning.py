"""What lies in the cache folder, what of it is needed, and removing the rest.

Needed is what a present lock, pin or image recipe names; used is what a living process has locked
(``sandbox.cache``). Lock files stay: removing one that somebody waits for would let two in.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from sandbox.cache import abandoned, claimed, remove
from sandbox.evidence.records import VersionCheck
from sandbox.runtimes.integrity import Integrity
from sandbox.runtimes.library import RuntimeLibrary
from sandbox.runtimes.reports import CacheEntry
from sandbox.runtimes.store import Store, proof_path

Kind = Literal["artifact", "bundle", "tree", "tool", "proof", "image", "wheel"]
_BESIDE = (".lock", ".use", ".ok")
_SCRATCH = (".tree-", ".resolve-", ".bench-", ".arrive-")


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """One folder of the cache: the kind of its entries, and which are needed."""

    folder: Path
    kind: Kind | None
    needed: Collection[Path]


def runtime_shelves(store: Store, libraries: Sequence[RuntimeLibrary]) -> Iterator[Shelf]:
    """Give the folders of a store with what the locks of ``libraries`` name."""
    artifacts: set[Integrity] = set()
    bundles: set[str] = set()
    tools: set[Path] = set()
    for library in libraries:
        lock = library.lock()
        named = {name: Integrity.parse(one.integrity) for name, one in lock.artifacts.items()}
        packages = (package for tree in lock.trees.values() for package in tree.packages)
        artifacts |= {*named.values(), *(Integrity.parse(one.integrity) for one in packages)}
        bundles |= {entry.sha256 for entry in library.entries()}
        for pinned in library.pins.tool.values():
            tools |= {
                store.tool(named[one.artifact], one.within)
                for one in pinned
                if one.artifact in named
            }
    proofs = {path for path in store.proofs().glob("*.json") if _bundle_of(path) in bundles}
    yield Shelf(
        folder=store.root / "artifacts", kind="artifact", needed={*map(store.artifact, artifacts)}
    )
    yield Shelf(folder=store.root / "bundles", kind="bundle", needed={*map(store.bundle, bundles)})
    yield Shelf(folder=store.root / "trees", kind="tree", needed={*map(store.tree, bundles)})
    yield Shelf(folder=store.root / "tools", kind="tool", needed=tools)
    yield Shelf(folder=store.proofs(), kind="proof", needed=proofs)
    yield Shelf(folder=store.root, kind=None, needed=())


def entries_of(shelf: Shelf) -> Iterator[CacheEntry]:
    """Give what lies in a folder of the cache, sorted by name."""
    if not shelf.folder.is_dir():
        return
    for path in sorted(shelf.folder.iterdir()):
        if path.name.endswith(_BESIDE):
            continue
        owner = _owner(path)
        if owner is None and (shelf.kind is None or path.name.startswith(".")):
            continue  # not an entry, and nothing that this code left
        yield CacheEntry(
            kind=shelf.kind if owner is None and shelf.kind else "temporary",
            path=path,
            size=size_of(path),
            state=_state(path, owner, shelf.needed),
        )


def prune(entry: CacheEntry) -> bool:
    """Remove an entry unless somebody came to use it meanwhile; tell whether it is gone."""
    path, owner = entry.path, _owner(entry.path)
    if owner == path:
        if path.is_dir() and abandoned(path):
            remove(path)
        return not path.exists()
    with claimed(owner or path) as free:
        if free:
            remove(path)
            remove(proof_path(path))
        return free


def size_of(path: Path) -> int:
    """Return the bytes that a file or folder takes, links unfollowed."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum(
        os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118 - many files
        for folder, _, names in os.walk(path)
        for name in names
    )


def _state(
    path: Path, owner: Path | None, needed: Collection[Path]
) -> Literal["needed", "used", "unneeded"]:
    if owner == path:
        return "unneeded" if abandoned(path) else "used"
    if path in needed or (path.suffix == ".part" and owner in needed):
        return "needed"  # half a download is gone on with
    with claimed(owner or path) as free:
        return "unneeded" if free else "used"


def _owner(path: Path) -> Path | None:
    """Return whose lock guards a temporary: an entry's, or its own; None for an entry."""
    name = path.name
    if name.startswith(_SCRATCH):
        return path
    if name.startswith(".") and ".tmp-" in name:
        return path.with_name(name[1:].partition(".tmp-")[0])
    return path.with_suffix("") if name.endswith(".part") else None


def _bundle_of(proof: Path) -> str | None:
    try:
        return VersionCheck.model_validate_json(proof.read_bytes()).bundle_sha256
    except (OSError, ValidationError):
        return None
