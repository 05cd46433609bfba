"""Hashes every cached file that a lock names; no network. A corrupt file is left where it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sandbox.errors import IntegrityError
from sandbox.progress import Progress
from sandbox.runtimes.integrity import Integrity
from sandbox.runtimes.lock import Lock
from sandbox.runtimes.reports import RuntimeEntry, VerifyEntry
from sandbox.runtimes.store import Store
from sandbox.runtimes.unpacked import check_unpacked


@dataclass(frozen=True)
class Cached:
    """What a store holds of a lock.

    Attributes:
        store: where the files are.
        progress: told about each file.
    """

    store: Store
    progress: Progress

    def sources(self, lock: Lock) -> Iterator[VerifyEntry]:
        """Verify the downloaded files: artifacts, then the packages of each tree."""
        for name, artifact in sorted(lock.artifacts.items()):
            integrity = Integrity.parse(artifact.integrity)
            path = self.store.artifact(integrity)
            yield self._file("artifact", name, path, integrity, artifact.size)
        for tree, packages in sorted(lock.trees.items()):
            for package in packages.packages:
                integrity = Integrity.parse(package.integrity)
                path, name = self.store.artifact(integrity), f"{tree} {package.file}"
                yield self._file("artifact", name, path, integrity, package.size)

    def bundles(self, entries: Iterable[RuntimeEntry]) -> Iterator[VerifyEntry]:
        """Verify the bundles, each with its unpacked tree where there is one."""
        for entry in entries:
            name, path = f"{entry.harness} {entry.platform}", self.store.bundle(entry.sha256)
            integrity = Integrity.of_sha256(entry.sha256)
            verified = self._file("bundle", name, path, integrity, entry.size)
            yield verified
            if verified.status == "ok" and self.store.tree(entry.sha256).exists():
                yield self._tree(name, path, entry.sha256)

    def _file(
        self,
        kind: Literal["artifact", "bundle"],
        name: str,
        path: Path,
        integrity: Integrity,
        size: int,
    ) -> VerifyEntry:
        try:
            with self.progress.step(f"verifying {name}"):
                held = self.store.holds(path, integrity, size=size, rehash=True)
        except IntegrityError as error:
            return VerifyEntry(kind=kind, name=name, status="corrupt", detail=error.message)
        return VerifyEntry(kind=kind, name=name, status="ok" if held else "absent")

    def _tree(self, name: str, bundle: Path, sha256: str) -> VerifyEntry:
        folder = self.store.tree(sha256)
        with self.progress.step(f"verifying the tree of {name}"):
            wrong = check_unpacked(bundle, sha256, folder, rehash=True)
        return VerifyEntry(
            kind="tree", name=name, status="corrupt" if wrong else "ok", detail=wrong or ""
        )
