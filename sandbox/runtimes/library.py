"""One pins file with its lock and store: list, fetch, verify and lock its bundles."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import TracebackType
from typing import Self

from sandbox.cache import Uses, locked
from sandbox.errors import NothingSelected, Unsupported
from sandbox.progress import PlainProgress, Progress
from sandbox.runtimes.fetch import Source
from sandbox.runtimes.integrity import Integrity
from sandbox.runtimes.lock import (
    Lock,
    LockedArtifact,
    check_current,
    load_lock,
    lock_path_for,
    write_lock,
)
from sandbox.runtimes.needs import ImageFacts, Needs, Refusal, refusals
from sandbox.runtimes.pins import HarnessPin, Pins, Runtime, default_pins_path, load_pins
from sandbox.runtimes.proofs import Proofs
from sandbox.runtimes.reports import Bundle, FetchEntry, LockEntry, RuntimeEntry, VerifyEntry
from sandbox.runtimes.resolve import Released, unchanged
from sandbox.runtimes.resolve import lock as resolve_lock
from sandbox.runtimes.sources import Sources
from sandbox.runtimes.store import Store
from sandbox.runtimes.unpacked import ensure_unpacked
from sandbox.runtimes.verify import Cached
from sandbox.runtimes.workshop import Workshop

__all__ = [
    "Bundle",
    "FetchEntry",
    "LockEntry",
    "RuntimeEntry",
    "RuntimeLibrary",
    "VerifyEntry",
]


class RuntimeLibrary:
    """The runtimes that one pins file describes; a context manager.

    Args:
        pins_path: the pins file (this project's own when None); its lock lies beside it.
        progress: told about all long work.
        store: where files are kept (below the cache root when None).
        sources: overrides how artifacts are fetched, by client name.
        env: what the package clients find their configuration with (this process's when None).
        npm: gives the argv of a pinned npm (that of these pins when None).

    Raises:
        PrerequisiteMissing: there is no such file.
        UsageError: the pins are not valid.
    """

    def __init__(
        self,
        pins_path: Path | None = None,
        *,
        progress: Progress | None = None,
        store: Store | None = None,
        sources: Mapping[str, Callable[[], Source]] | None = None,
        env: Mapping[str, str] | None = None,
        npm: Callable[[], tuple[str, ...]] | None = None,
    ) -> None:
        self.pins_path = pins_path or default_pins_path()
        self.lock_path = lock_path_for(self.pins_path)
        self.pins: Pins = load_pins(self.pins_path)
        self.store = store or Store.default()
        self._progress = progress or PlainProgress(quiet=True)
        self._lock: Lock | None = None
        self._uses = Uses()
        self._workshop = Workshop(
            self.pins,
            self._known,
            pins_path=self.pins_path,
            store=self.store,
            progress=self._progress,
            sources=sources,
            env=env,
            npm=npm,
        )

    def __enter__(self) -> Self:
        self._workshop.__enter__()
        self._uses.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._uses.__exit__(kind, error, trace)
        self._workshop.__exit__(kind, error, trace)

    @property
    def clients(self) -> Sources:
        """The package clients of this machine."""
        return self._workshop.clients

    def pinned_npm(self) -> tuple[str, ...]:
        """Return the argv of the pinned npm; see ``Workshop.pinned_tool``."""
        return self._workshop.pinned_tool("npm")

    def npm_at_hand(self) -> bool:
        """Whether npm can be asked at once, without fetching the pinned one first."""
        return self._workshop.npm_at_hand()

    def lock(self) -> Lock:
        """Return the lock, read and held against the pins once.

        Raises:
            PrerequisiteMissing: there is none.
            UsageError: it is not valid, or stale.
        """
        if self._lock is None:
            lock = load_lock(self.lock_path)
            check_current(self.pins, lock, self.lock_path)
            self._lock = lock
        return self._lock

    def entries(self) -> tuple[RuntimeEntry, ...]:
        """Return every locked bundle, sorted; no network, nothing is hashed."""
        return tuple(
            RuntimeEntry(
                harness=name,
                version=bundle.version,
                platform=platform,
                licence=self.pins.harness[name].licence,
                size=bundle.size,
                sha256=bundle.sha256,
                artifacts=bundle.artifacts,
                needs=bundle.needs,
                released=bundle.released,
                redistributable=all(
                    self.pins.artifact[one].redistributable for one in bundle.artifacts
                ),
                cached=self.store.bundle(bundle.sha256).is_file(),
            )
            for name, platforms in sorted(self.lock().bundles.items())
            for platform, bundle in sorted(platforms.items())
        )

    def needs(self, harness: str, platform: str) -> Needs:
        """Return what the bundle of a harness needs of an image; nothing is fetched.

        Raises:
            UsageError: no such harness, or the lock is stale.
            Unsupported: the harness has no pin for that platform.
        """
        _runtime(harness, self.pins.harness_pin(harness), platform)
        return next(b.needs for p, b in self.lock().bundles[harness].items() if p == platform)

    def refusals(self, harness: str, platform: str, facts: ImageFacts) -> tuple[Refusal, ...]:
        """Return what an image lacks for the bundle of a harness; nothing is fetched.

        Raises:
            UsageError: no such harness, or the lock is stale.
            Unsupported: the harness has no pin for that platform.
        """
        brought = self.pins.bringing(platform)
        needs = self.needs(harness, platform)
        return refusals(needs, facts, libraries=facts.libraries, brought_by=brought)

    def ensure_bundle(self, harness: str, platform: str) -> Bundle:
        """Return the verified bundle of a harness, fetching and assembling it if need be.

        Concurrent callers, in this process or another, share one fetch and one assembly.

        Raises:
            UsageError: no such harness, or the lock is stale.
            Unsupported: the harness has no pin for that platform.
            FetchError: an artifact could not be had.
            IntegrityError: an artifact or the bundle is not what is locked.
            CacheUnusable: the store's disk is full or not writable.
        """
        pin = self.pins.harness_pin(harness)
        runtime = _runtime(harness, pin, platform)
        lock = self.lock()
        entry = next(b for p, b in lock.bundles[harness].items() if p == platform)
        path, integrity = self.store.bundle(entry.sha256), Integrity.of_sha256(entry.sha256)
        self._uses.keep(path)
        with locked(path):
            if wrong := self.store.holds_or_drops(path, integrity, size=entry.size):
                self._progress.say(f"{wrong}; making it again")
            if not path.exists():
                self._workshop.make(
                    harness, runtime, lock.artifacts, path, trees=lock.trees, expect=entry
                )
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
            version_first_line=pin.version_first_line,
            version_env=pin.version_env,
        )

    def ensure_tree(self, bundle: Bundle) -> Path:
        """Return a bundle's verified tree, to be shown read-only; see ``ensure_unpacked``."""
        folder = self.store.tree(bundle.sha256)
        self._uses.keep(folder)
        return ensure_unpacked(bundle, folder, self._progress)

    def proofs(self, image_id: str) -> Proofs:
        """Return the proofs that programs ran in an image."""
        return Proofs(folder=self.store.proofs(), image_id=image_id)

    def fetch(
        self, harnesses: Sequence[str] = ("*",), platforms: Sequence[str] = ("*",)
    ) -> tuple[FetchEntry, ...]:
        """Bring every bundle whose harness and platform match one of the globs of each axis.

        Raises:
            NothingSelected: no bundle matches.
        """
        wanted = choose(self.entries(), harnesses, platforms)
        return tuple(self.fetched(entry) for entry in wanted)

    def fetched(self, entry: RuntimeEntry) -> FetchEntry:
        """Bring one bundle and say how long that took."""
        started = time.monotonic()
        here = self.store.bundle(entry.sha256).is_file()
        bundle = self.ensure_bundle(entry.harness, entry.platform)
        duration = round(time.monotonic() - started, 3)
        return FetchEntry(bundle=bundle, already_here=here, duration_s=duration)

    def verify(self) -> tuple[VerifyEntry, ...]:
        """Hash every cached file of the lock; no network. A corrupt file is left where it is.

        Raises:
            UsageError: the lock itself is not valid, or stale.
        """
        lock, cached = self.lock(), Cached(self.store, self._progress)
        whole = VerifyEntry(kind="lock", name=self.lock_path.name, status="ok")
        return (whole, *cached.sources(lock), *cached.bundles(self.entries()))

    def update_lock(
        self, only: Collection[str] = (), *, released: Released = lambda *_: None
    ) -> LockEntry:
        """Resolve the pins anew and write the lock beside them; see ``resolve.lock``."""
        lock = resolve_lock(
            self._workshop,
            unchanged(self.pins, self.lock_path),
            self.lock_path,
            only=only,
            released=released,
        )
        changed = write_lock(self.lock_path, lock)
        self._lock = None
        return LockEntry(path=self.lock_path, changed=changed)

    def _known(self) -> Mapping[str, LockedArtifact]:
        return unchanged(self.pins, self.lock_path)


def choose(
    entries: Sequence[RuntimeEntry], harnesses: Sequence[str], platforms: Sequence[str]
) -> tuple[RuntimeEntry, ...]:
    """Return the entries whose harness and platform match one of the globs of each axis.

    Raises:
        NothingSelected: no entry matches; the cure lists them.
    """
    wanted = tuple(
        entry
        for entry in entries
        if any(fnmatchcase(entry.harness, glob) for glob in harnesses)
        and any(fnmatchcase(entry.platform, glob) for glob in platforms)
    )
    if not wanted:
        known = ", ".join(sorted({f"{e.harness} {e.platform}" for e in entries}))
        raise NothingSelected("no runtime matches", cure=f"there are: {known}")
    return wanted


def _runtime(harness: str, pin: HarnessPin, platform: str) -> Runtime:
    try:
        return pin.runtime_for(platform)
    except Unsupported as error:
        raise Unsupported(f"{harness}: {error.message}", cure=error.cure) from error
