"""Pins into a lock: every artifact resolved and fetched, every bundle made and measured."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from pathlib import Path

from sandbox.cache import locked, writable
from sandbox.errors import SandboxError, UsageError
from sandbox.runtimes.artifacts import ArtifactPin, tag_of
from sandbox.runtimes.bundle import artifacts_of, trees_of
from sandbox.runtimes.integrity import Integrity
from sandbox.runtimes.lock import Lock, LockedArtifact, LockedBundle, LockedTree, load_lock
from sandbox.runtimes.pins import Pins, Runtime
from sandbox.runtimes.trees import digest_of
from sandbox.runtimes.workshop import Workshop

Released = Callable[[Runtime, str], datetime | None]
"""When a runtime's version was published, as far as its registry says."""


def lock(
    workshop: Workshop,
    old: Mapping[str, LockedArtifact],
    lock_path: Path,
    *,
    only: Collection[str] = (),
    released: Released = lambda *_: None,
) -> Lock:
    """Resolve the pins and return their lock; nothing is written beside the pins.

    Args:
        workshop: fetches and assembles.
        old: the old lock's entries for pins that did not change. They keep their hash: when a
            registry now serves other bytes under the same version, that is an error, not a lock.
        lock_path: the old lock; trees whose source did not change keep their entries.
        only: the harnesses to resolve; all when empty. The others keep their entries whole.
        released: asked for the date of a version that the old lock has none for.

    Raises:
        FetchError: an artifact could not be had.
        IntegrityError: a registry serves other bytes than before under an unchanged pin.
        UsageError: a harness that is not in ``only`` cannot keep its entries.
    """
    pins, before = workshop.pins, _lock_at(lock_path)
    wanted = {name: pins.harness_pin(name) for name in sorted(only or pins.harness)}
    kept = pins.harness.keys() - wanted.keys()
    _refuse_changed(workshop, kept, before)
    needed = {one for pin in wanted.values() for r in pin.runtime for one in artifacts_of(r)}
    artifacts: dict[str, LockedArtifact] = {}
    for name in sorted(pins.artifact):
        if name in old and (name in needed or not only):
            workshop.fetch(old[name])
        artifacts[name] = old.get(name) or workshop.resolve(name)
    trees = {name: _tree(workshop, name, before) for name in sorted(pins.tree)}
    bundles = {name: dict(before.bundles[name]) for name in kept} if before else {}
    for harness, pin in wanted.items():
        bundles[harness] = {}
        for runtime in pin.runtime:
            made = _make(workshop, harness, runtime, artifacts, trees)
            date = _known_date(before, harness, runtime, made) or released(runtime, made.version)
            if date:
                made = made.model_copy(update={"released": date.replace(microsecond=0)})
            bundles[harness].update(dict.fromkeys(runtime.platforms, made))
    return Lock.model_validate(
        {
            "schema": 1,
            "pins_sha256": pins.digest(),
            "harness_sha256": {name: pins.digest_of(name) for name in pins.harness},
            "artifacts": artifacts,
            "trees": trees,
            "bundles": bundles,
        }
    )


def unchanged(pins: Pins, lock_path: Path) -> dict[str, LockedArtifact]:
    """Return the artifacts of the lock at ``lock_path`` whose pins still ask for the same file."""
    old = _lock_at(lock_path)
    return {
        name: artifact
        for name, artifact in (old.artifacts if old else {}).items()
        if name in pins.artifact and is_of(pins.artifact[name], artifact)
    }


def is_of(pin: ArtifactPin, artifact: LockedArtifact) -> bool:
    """Whether a lock entry is of the file that ``pin`` asks for."""
    asked = (pin.client, pin.name, pin.version, tag_of(pin))
    return asked == (artifact.client, artifact.name, artifact.version, artifact.tag)


def _lock_at(path: Path) -> Lock | None:
    try:
        return load_lock(path)
    except SandboxError:
        return None


def _refuse_changed(workshop: Workshop, kept: Collection[str], before: Lock | None) -> None:
    """Raise when one of the harnesses that are to keep their entries is not as it was locked."""
    if changed := [name for name in sorted(kept) if not _as_locked(workshop, name, before)]:
        raise UsageError(
            f"the lock's entries of {', '.join(changed)} are not of these pins either",
            cure="lock all: `sandbox pins lock`, or name these harnesses too",
        )


def _as_locked(workshop: Workshop, harness: str, before: Lock | None) -> bool:
    pins = workshop.pins
    if before is None or before.harness_sha256.get(harness) != pins.digest_of(harness):
        return False
    trees = {one for runtime in pins.harness[harness].runtime for one in trees_of(runtime)}
    return harness in before.bundles and all(
        one in before.trees and before.trees[one].digest == _digest(workshop, one) for one in trees
    )


def _digest(workshop: Workshop, tree: str) -> str:
    pins = workshop.pins
    return digest_of(pins.tree[tree], pins.platforms_of_tree(tree), workshop.source_of(tree))


def _known_date(
    before: Lock | None, harness: str, runtime: Runtime, made: LockedBundle
) -> datetime | None:
    """A date does not change, so a version that has one is not asked about again."""
    old = before.bundles.get(harness, {}) if before else {}
    dates = (old[one].released for one in runtime.platforms if one in old and _same(old[one], made))
    return next((date for date in dates if date), None)


def _same(old: LockedBundle, made: LockedBundle) -> bool:
    return (old.version, old.artifacts, old.trees) == (made.version, made.artifacts, made.trees)


def _tree(workshop: Workshop, name: str, before: Lock | None) -> LockedTree:
    old = before.trees.get(name) if before else None
    return old if old and old.digest == _digest(workshop, name) else workshop.resolve_tree(name)


def _make(
    workshop: Workshop,
    harness: str,
    runtime: Runtime,
    artifacts: Mapping[str, LockedArtifact],
    trees: Mapping[str, LockedTree],
) -> LockedBundle:
    store = workshop.store
    scratch = store.root / "bundles" / f"resolve-{uuid.uuid4().hex}.tar"
    try:
        made = workshop.make(harness, runtime, artifacts, scratch, trees=trees, expect=None)
        path = store.bundle(made.sha256)
        with locked(path), writable(path):
            scratch.rename(path)
            store.holds(path, Integrity.of_sha256(made.sha256), size=made.size)
    finally:
        scratch.unlink(missing_ok=True)
    return LockedBundle(
        version=runtime.version or workshop.pins.harness[harness].version,
        artifacts=artifacts_of(runtime),
        trees=trees_of(runtime),
        needs=made.needs,
        size=made.size,
        sha256=made.sha256,
    )
