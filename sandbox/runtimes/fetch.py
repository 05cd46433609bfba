"""Artifacts into the store: each fetched once, by its client, and hashed before it is used."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sandbox.cache import locked, scratch, writable
from sandbox.errors import IntegrityError
from sandbox.progress import Progress, Step
from sandbox.runtimes.artifacts import ArtifactPin, tag_of
from sandbox.runtimes.integrity import Integrity, hash_file, verify_file
from sandbox.runtimes.lock import LockedArtifact, Wanted
from sandbox.runtimes.store import Store


@dataclass(frozen=True)
class Arrival:
    """A file that a client brought: the hash to check (None: nobody named one) and its name."""

    path: Path
    file: str
    integrity: Integrity | None
    resumed: bool = False


class Source(Protocol):
    """A package client that brings one artifact."""

    def bring(
        self,
        pin: ArtifactPin | Wanted,
        folder: Path,
        *,
        integrity: Integrity | None,
        size: int | None,
        step: Step,
    ) -> Arrival:
        """Bring the artifact into ``folder``; parts of a killed try may lie there.

        Raises:
            FetchError: it could not be had.
            IntegrityError: the registry itself offers other bytes than the pinned ones.
        """


@dataclass(frozen=True)
class Fetcher:
    """Fills the store from package clients.

    Attributes:
        store: where artifacts go.
        sources: client name (``npm`` ...) to what makes its source, when first needed.
    """

    store: Store
    sources: Mapping[str, Callable[[], Source]]

    def ensure(self, artifact: Wanted, progress: Progress) -> Path:
        """Return the artifact's verified file, fetching it when the store has no good one.

        Raises:
            FetchError: it could not be had.
            IntegrityError: what came is not what is pinned; nothing of it was kept.
        """
        integrity = Integrity.parse(artifact.integrity)
        path = self.store.artifact(integrity)
        label = f"{artifact.name} {artifact.version}"
        with locked(path):
            if wrong := self.store.holds_or_drops(path, integrity, size=artifact.size):
                progress.say(f"{wrong}; fetching it again")
            if not path.exists():
                size = f" ({artifact.size / 1e6:.0f} MB)" if artifact.size else ""
                with progress.step(f"fetching {label}{size}") as step:
                    self._fetch(artifact, integrity, path, step)
        return path

    def resolve(self, pin: ArtifactPin, progress: Progress) -> LockedArtifact:
        """Fetch a pin that has no lock entry yet and return that entry; for `lock` only."""
        tag = tag_of(pin)
        label = f"{pin.name} {pin.version}" + (f" ({tag})" if tag else "")
        artifacts = self.store.root / "artifacts"
        with (
            progress.step(f"resolving {label}") as step,
            scratch(artifacts, ".resolve-") as folder,
            writable(folder),
        ):
            arrival = self._bring(pin, folder, None, None, step)
            found = arrival.integrity or _sha256(arrival.path)
            size = arrival.path.stat().st_size
            verify_file(arrival.path, found, size=size, what=label)
            path = self.store.artifact(found)
            with locked(path):
                arrival.path.rename(path)
                self.store.holds(path, found, size=size)
        return LockedArtifact(
            client=pin.client,
            name=pin.name,
            version=pin.version,
            tag=tag,
            file=arrival.file,
            size=size,
            integrity=found.text,
        )

    def _fetch(self, artifact: Wanted, integrity: Integrity, path: Path, step: Step) -> None:
        """Fetch into ``<path>.part/``, where what a killed process had fetched may lie."""
        parts = path.with_name(path.name + ".part")
        what = f"{artifact.name} {artifact.version}"
        with writable(path):
            for again in (True, False):
                parts.mkdir(parents=True, exist_ok=True)
                try:
                    arrival = self._bring(artifact, parts, integrity, artifact.size, step)
                finally:
                    with suppress(OSError):
                        parts.rmdir()  # goes only while nothing came
                try:
                    verify_file(arrival.path, integrity, size=artifact.size, what=what)
                    arrival.path.rename(path)
                    break
                except IntegrityError:
                    if not (again and arrival.resumed):
                        raise
                finally:
                    shutil.rmtree(parts)
            self.store.holds(path, integrity, size=artifact.size)

    def _bring(
        self,
        pin: ArtifactPin | Wanted,
        folder: Path,
        integrity: Integrity | None,
        size: int | None,
        step: Step,
    ) -> Arrival:
        source = self.sources[pin.client]()
        return source.bring(pin, folder, integrity=integrity, size=size, step=step)


def _sha256(path: Path) -> Integrity:
    return Integrity.of_sha256(hash_file(path, "sha256"))
