"""One pins file with its lock, store and clients: list, fetch, lock and verify bundles."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Self

from sandbox.cache import locked, published, writable
from sandbox.errors import IntegrityError, SandboxError, Unsupported
from sandbox.evidence.records import Record
from sandbox.progress import Progress, Step
from sandbox.runtimes.bundle import (
    Assembled,
    Ingredient,
    artifacts_of,
    assemble,
    check_assembled,
)
from sandbox.runtimes.fetch import Fetcher, Source
from sandbox.runtimes.integrity import Integrity
from sandbox.runtimes.lock import (
    Lock,
    LockedArtifact,
    LockedBundle,
    check_current,
    load_lock,
    lock_path_for,
)
from sandbox.runtimes.pins import HarnessPin, Pins, Runtime, default_pins_path, load_pins
from sandbox.runtimes.sources import Sources
from sandbox.runtimes.store import Store, proof_path
from sandbox.runtimes.tools import ensure_tool, host_platform, tool_for


class Bundle(Record):
    """A verified bundle on this machine; ``path`` is its tar, ``size`` its bytes."""

    harness: str
    version: str
    platform: str
    path: Path
    sha256: str
    size: int
    version_argv: tuple[str, ...]
    version_output: str


class RuntimeEntry(Record):
    """One line of `runtimes list`: a bundle as locked, and whether its file is here."""

    harness: str
    version: str
    platform: str
    licence: str
    size: int
    sha256: str
    artifacts: tuple[str, ...]
    cached: bool


class VerifyEntry(Record):
    """One line of `runtimes verify`: a cached file, hashed; ``detail`` says what is wrong."""

    kind: Literal["lock", "artifact", "bundle"]
    name: str
    status: Literal["ok", "absent", "corrupt"]
    detail: str = ""


class RuntimeLibrary:
    """The runtimes that one pins file describes; a context manager.

    Args:
        pins_path: the pins file (this project's own when None); its lock lies beside it.
        store: where files are kept (below the cache root when None).
        sources: overrides how artifacts are fetched, by client name.
    """

    def __init__(
        self,
        pins_path: Path | None = None,
        *,
        store: Store | None = None,
        sources: Mapping[str, Callable[[], Source]] | None = None,
    ) -> None:
        self.pins_path = pins_path or default_pins_path()
        self.lock_path = lock_path_for(self.pins_path)
        self.pins: Pins = load_pins(self.pins_path)
        self.store = store or Store.default()
        self._lock: Lock | None = None
        self._progress: Progress | None = None
        self._clients = Sources(self._pinned_npm)
        self._fetcher = Fetcher(self.store, sources or self._clients.by_client())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._clients.__exit__(None, None, None)

    @property
    def clients(self) -> Sources:
        """The package clients of this machine."""
        return self._clients

    def lock(self) -> Lock:
        """Return the lock, read and held against the pins once."""
        if self._lock is None:
            lock = load_lock(self.lock_path)
            check_current(self.pins, lock, self.lock_path)
            self._lock = lock
        return self._lock

    def entries(self) -> tuple[RuntimeEntry, ...]:
        """Return every locked bundle, sorted; no network, nothing is hashed."""
        lock = self.lock()
        return tuple(
            RuntimeEntry(
                harness=name,
                version=bundle.version,
                platform=platform,
                licence=self.pins.harness[name].licence,
                size=bundle.size,
                sha256=bundle.sha256,
                artifacts=bundle.artifacts,
                cached=self.store.bundle(bundle.sha256).is_file(),
            )
            for name, platforms in sorted(lock.bundles.items())
            for platform, bundle in sorted(platforms.items())
        )

    def ensure_bundle(self, harness: str, platform: str, progress: Progress) -> Bundle:
        """Return the verified bundle of a harness, fetching and assembling it if need be.

        Raises:
            UsageError: no such harness, or the lock is stale.
            Unsupported: the harness has no pin for that platform.
            FetchError: an artifact could not be had.
            IntegrityError: an artifact or the bundle is not what is locked.
            CacheUnusable: the store's disk is full or not writable.
        """
        pin = self.pins.harness_pin(harness)
        runtime = _runtime(harness, pin, platform)
        entry = self.lock().bundles[harness][platform]  # type: ignore[index]
        path = self.store.bundle(entry.sha256)
        integrity = Integrity.parse(f"sha256:{entry.sha256}")
        with locked(path):
            if wrong := self.store.holds_or_drops(path, integrity, size=entry.size):
                progress.say(f"{wrong}; making it again")
            if not path.exists():
                self._make(harness, runtime, entry, path, progress)
                self.store.holds(path, integrity, size=entry.size)
        return Bundle(
            harness=harness,
            version=entry.version,
            platform=platform,
            path=path,
            sha256=entry.sha256,
            size=entry.size,
            version_argv=pin.version_argv,
            version_output=runtime.version_output or pin.version_output,
        )

    def resolve(self, progress: Progress) -> Lock:
        """Resolve the pins anew and return their lock; nothing is written beside the pins.

        An artifact whose pin did not change keeps its hash: if the registry now serves other
        bytes under the same version, that is an ``IntegrityError`` and not a new lock.
        """
        known = self._known_artifacts()
        artifacts: dict[str, LockedArtifact] = {}
        for name, pin in sorted(self.pins.artifact.items()):
            if name in known:
                self._fetch(known[name], progress)
                artifacts[name] = known[name]
            else:
                artifacts[name] = self._resolving(name, progress)
        bundles: dict[str, dict[str, LockedBundle]] = {}
        for harness, harness_pin in sorted(self.pins.harness.items()):
            for runtime in harness_pin.runtime:
                made = self._resolve_bundle(harness, runtime, artifacts, progress)
                for platform in runtime.platforms:
                    bundles.setdefault(harness, {})[platform] = made
        return Lock.model_validate(
            {
                "schema": 1,
                "pins_sha256": self.pins.digest(),
                "artifacts": artifacts,
                "bundles": bundles,
            }
        )

    def verify(self, progress: Progress) -> tuple[VerifyEntry, ...]:
        """Hash every cached file of the lock; no network. A corrupt file is left where it is.

        Raises:
            UsageError: the lock itself is not valid, or stale.
        """
        lock = self.lock()
        found = [VerifyEntry(kind="lock", name=self.lock_path.name, status="ok")]
        for name, artifact in sorted(lock.artifacts.items()):
            integrity = Integrity.parse(artifact.integrity)
            path = self.store.artifact(integrity)
            with progress.step(f"verifying {name}"):
                found.append(self._verified("artifact", name, path, integrity, artifact.size))
        for entry in self.entries():
            name = f"{entry.harness} {entry.platform}"
            path = self.store.bundle(entry.sha256)
            integrity = Integrity.parse(f"sha256:{entry.sha256}")
            with progress.step(f"verifying {name}"):
                found.append(self._verified("bundle", name, path, integrity, entry.size))
        return tuple(found)

    def _verified(
        self,
        kind: Literal["artifact", "bundle"],
        name: str,
        path: Path,
        integrity: Integrity,
        size: int,
    ) -> VerifyEntry:
        try:
            held = self.store.holds(path, integrity, size=size, rehash=True)
        except IntegrityError as error:
            return VerifyEntry(kind=kind, name=name, status="corrupt", detail=error.message)
        return VerifyEntry(kind=kind, name=name, status="ok" if held else "absent")

    def _make(
        self, harness: str, runtime: Runtime, entry: LockedBundle, path: Path, progress: Progress
    ) -> None:
        lock = self.lock()
        made = self._assemble(harness, runtime, lock.artifacts, path, progress, expect=entry)
        progress.say(f"made the bundle of {harness} {entry.version}: {made.size / 1e6:.0f} MB")

    def _assemble(
        self,
        harness: str,
        runtime: Runtime,
        artifacts: Mapping[str, LockedArtifact],
        path: Path,
        progress: Progress,
        *,
        expect: LockedBundle | None,
    ) -> Assembled:
        """Publish the bundle at ``path``; with ``expect`` only if it is that one."""
        ingredients = {
            name: Ingredient(
                self.pins.artifact[name], artifacts[name], self._fetch(artifacts[name], progress)
            )
            for name in artifacts_of(runtime)
        }
        pin = self.pins.harness[harness]
        label = f"assembling {harness} for {' and '.join(runtime.platforms)}"
        with published(path) as out, self._stage(path) as stage, progress.step(label) as step:
            if expect:
                step.total(2 * expect.size)
            made = assemble(harness, pin, runtime, ingredients, out, stage=stage, step=step)
            if expect:
                check_assembled(made, size=expect.size, sha256=expect.sha256, what=label)
        return made

    def _resolve_bundle(
        self,
        harness: str,
        runtime: Runtime,
        artifacts: Mapping[str, LockedArtifact],
        progress: Progress,
    ) -> LockedBundle:
        scratch = self.store.root / "bundles" / f"resolve-{uuid.uuid4().hex}.tar"
        try:
            made = self._assemble(harness, runtime, artifacts, scratch, progress, expect=None)
            final = self.store.bundle(made.sha256)
            with locked(final), writable(final):
                scratch.rename(final)
                integrity = Integrity.parse(f"sha256:{made.sha256}")
                self.store.holds(final, integrity, size=made.size)
        finally:
            scratch.unlink(missing_ok=True)
        return LockedBundle(
            version=runtime.version or self.pins.harness[harness].version,
            artifacts=artifacts_of(runtime),
            size=made.size,
            sha256=made.sha256,
        )

    @contextmanager
    def _stage(self, path: Path) -> Iterator[Path]:
        # named like the leftovers that the next writer of ``path`` removes
        folder = path.parent / f".{path.name}.tmp-stage-{uuid.uuid4().hex}"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder)

    def _fetch(self, artifact: LockedArtifact, progress: Progress) -> Path:
        self._progress = progress
        return self._fetcher.ensure(artifact, progress)

    def _resolving(self, name: str, progress: Progress) -> LockedArtifact:
        self._progress = progress
        return self._fetcher.resolve(self.pins.artifact[name], progress)

    def _known_artifacts(self) -> dict[str, LockedArtifact]:
        """Return the old lock's artifacts whose pins are still the same."""
        try:
            old = load_lock(self.lock_path)
        except SandboxError:
            return {}
        return {
            name: artifact
            for name, artifact in old.artifacts.items()
            if (pin := self.pins.artifact.get(name))
            and (pin.client, pin.name, pin.version, getattr(pin, "tag", None))
            == (artifact.client, artifact.name, artifact.version, artifact.tag)
        }

    def _pinned_npm(self) -> tuple[str, ...]:
        assert self._progress is not None
        tool = tool_for(self.pins, "npm", host_platform())
        known = self._known_artifacts().get(tool.artifact)
        artifact = known or self._resolving(tool.artifact, self._progress)
        return ensure_tool(
            tool, artifact, store=self.store, fetch=self._fetch, progress=self._progress
        )


def _runtime(harness: str, pin: HarnessPin, platform: str) -> Runtime:
    try:
        return pin.runtime_for(platform)
    except Unsupported as error:
        raise Unsupported(f"{harness}: {error.message}", cure=error.cure) from error


def ensure_bundle(
    harness: str, platform: str, progress: Progress, *, pins_path: Path | None = None
) -> Bundle:
    """Return the verified bundle of a harness; see ``RuntimeLibrary.ensure_bundle``."""
    with RuntimeLibrary(pins_path) as library:
        return library.ensure_bundle(harness, platform, progress)
