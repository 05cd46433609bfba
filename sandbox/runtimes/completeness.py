"""Whether a lock says all that its pins ask for, nothing else, and nothing that contradicts itself.

``check_current`` refuses a lock that was made from other pins. What stays is a lock that was edited
by hand or merged badly: its digests are right and its entries are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from sandbox.runtimes.bundle import artifacts_of, trees_of
from sandbox.runtimes.lock import Lock, LockedTree
from sandbox.runtimes.pins import HarnessPin, Pins
from sandbox.runtimes.resolve import is_of
from sandbox.runtimes.words import Platform


def lock_faults(pins: Pins, lock: Lock) -> tuple[str, ...]:
    """Return what is wrong with a lock, one line for each entry; none when it is whole."""
    return (*_artifacts(pins, lock), *_trees(pins, lock), *_bundles(pins, lock))


def _artifacts(pins: Pins, lock: Lock) -> Iterator[str]:
    for name in sorted(lock.artifacts.keys() - pins.artifact.keys()):
        yield f"artifacts.{name}: nothing pins it"
    for name, locked in sorted(lock.artifacts.items()):
        if name in pins.artifact and not is_of(pins.artifact[name], locked):
            pin = pins.artifact[name]
            said = f"{locked.name} {locked.version}, the pin says {pin.name} {pin.version}"
            yield f"artifacts.{name}: it is {said}"


def _trees(pins: Pins, lock: Lock) -> Iterator[str]:
    for name in sorted(lock.trees.keys() - pins.tree.keys()):
        yield f"trees.{name}: nothing pins it"
    for name in sorted(lock.trees.keys() & pins.tree.keys()):
        yield from _tree(name, lock.trees[name], set(pins.platforms_of_tree(name)))


def _tree(name: str, tree: LockedTree, platforms: set[Platform]) -> Iterator[str]:
    served = {platform for package in tree.packages for platform in package.platforms}
    if served != platforms:
        yield f"trees.{name}: it serves {_and(served)}, the pins want {_and(platforms)}"
    keys = Counter((p.name, p.version, p.file, p.integrity, p.platforms) for p in tree.packages)
    for (package, version, *_), times in keys.items():
        if times > 1:
            yield f"trees.{name}: {package} {version} is there {times} times"


def _bundles(pins: Pins, lock: Lock) -> Iterator[str]:
    for name in sorted(lock.bundles.keys() - pins.harness.keys()):
        yield f"bundles.{name}: nothing pins it"
    for name, pin in sorted(pins.harness.items()):
        was = lock.harness_sha256.get(name)
        if was is not None and was != pins.digest_of(name):
            yield f"harness_sha256.{name}: its pins are others"
        yield from _bundles_of(name, pin, lock)


def _bundles_of(name: str, pin: HarnessPin, lock: Lock) -> Iterator[str]:
    bundles = lock.bundles.get(name, {})
    for platform in sorted(bundles.keys() - set(pin.platforms)):
        yield f"bundles.{name}.{platform}: nothing pins it"
    for runtime in pin.runtime:
        made = {bundles[one] for one in runtime.platforms if one in bundles}
        where = f"bundles.{name}.{'+'.join(runtime.platforms)}"
        if len(made) > 1:
            yield f"{where}: one bundle serves these platforms, and their entries differ"
        asked = (runtime.version or pin.version, artifacts_of(runtime), trees_of(runtime))
        for bundle in made:
            if (bundle.version, bundle.artifacts, bundle.trees) != asked:
                yield f"{where}: version or ingredients are not those of the pins"


def _and(platforms: set[Platform]) -> str:
    return ", ".join(sorted(platforms)) or "nothing"
