"""Pins into a lock: every artifact resolved and fetched, every bundle made and measured."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path

from sandbox.cache import locked, writable
from sandbox.errors import SandboxError
from sandbox.runtimes.artifacts import ArtifactPin, tag_of
from sandbox.runtimes.bundle import artifacts_of, trees_of
from sandbox.runtimes.integrity import Integrity
from sandbox.runtimes.lock import Lock, LockedArtifact, LockedBundle, LockedTree, load_lock
from sandbox.runtimes.pins import Pins, Runtime
from sandbox.runtimes.trees import digest_of
from sandbox.runtimes.workshop import Workshop


def lock(workshop: Workshop, old: Mapping[str, LockedArtifact], lock_path: Path) -> Lock:
    """Resolve all pins and return their lock; nothing is written beside the pins.

    Args:
        workshop: fetches and assembles.
        old: the old lock's entries for pins that did not change. They keep their hash: when a
            registry now serves other bytes under the same version, that is an error, not a lock.
        lock_path: the old lock; trees whose source did not change keep their entries.

    Raises:
        FetchError: an artifact could not be had.
        IntegrityError: a registry serves other bytes than before under an unchanged pin.
    """
    pins = workshop.pins
    artifacts: dict[str, LockedArtifact] = {}
    for name in sorted(pins.artifact):
        if name in old:
            workshop.fetch(old[name])
        artifacts[name] = old.get(name) or workshop.resolve(name)
    trees = {name: _tree(workshop, name, lock_path) for name in sorted(pins.tree)}
    bundles: dict[str, dict[str, LockedBundle]] = {}
    for harness, pin in sorted(pins.harness.items()):
        for runtime in pin.runtime:
            made = _make(workshop, harness, runtime, artifacts, trees)
            bundles.setdefault(harness, {}).update(dict.fromkeys(runtime.platforms, made))
    return Lock.model_validate(
        {
            "schema": 1,
            "pins_sha256": pins.digest(),
            "artifacts": artifacts,
            "trees": trees,
            "bundles": bundles,
        }
    )


def unchanged(pins: Pins, lock_path: Path) -> dict[str, LockedArtifact]:
    """Return the artifacts of the lock at ``lock_path`` whose pins still ask for the same file."""
    try:
        old = load_lock(lock_path)
    except SandboxError:
        return {}
    return {
        name: artifact
        for name, artifact in old.artifacts.items()
        if name in pins.artifact and _same(pins.artifact[name], artifact)
    }


def _same(pin: ArtifactPin, artifact: LockedArtifact) -> bool:
    asked = (pin.client, pin.name, pin.version, tag_of(pin))
    return asked == (artifact.client, artifact.name, artifact.version, artifact.tag)


def _tree(workshop: Workshop, name: str, lock_path: Path) -> LockedTree:
    pins = workshop.pins
    digest = digest_of(pins.tree[name], pins.platforms_of_tree(name), workshop.source_of(name))
    try:
        old = load_lock(lock_path).trees.get(name)
    except SandboxError:
        old = None
    return old if old and old.digest == digest else workshop.resolve_tree(name)


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
            store.holds(path, Integrity.parse(f"sha256:{made.sha256}"), size=made.size)
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
