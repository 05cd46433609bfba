"""Which pins have newer versions: the newest that every wanted platform has, after a cooldown.

A registry that holds a version for some platforms only (it happens) offers nothing to bump to. The
cooldown is for releases that are taken back within days, by their vendor or for what was in them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

from sandbox.errors import FetchError
from sandbox.evidence.records import Record
from sandbox.runtimes.artifacts import ArtifactPin
from sandbox.runtimes.needs import ordered
from sandbox.runtimes.pins import HarnessPin, Pins, Runtime
from sandbox.runtimes.pipindex import releases
from sandbox.runtimes.sources import Sources
from sandbox.runtimes.trees import NpmTreePin, PipTreePin, source_of

COOLDOWN = timedelta(days=7)
_PLAIN = re.compile(r"[0-9]+(\.[0-9]+)+")

Releases = Mapping[str, datetime | None]


@dataclass(frozen=True)
class Subject:
    """A package that carries a harness's version, there followed by ``suffix``."""

    client: str
    name: str
    suffix: str = ""
    python: str = ""


class OutdatedEntry(Record):
    """One line of `pins outdated`: ``newest`` is None when there is nothing newer to bump to.

    ``waiting`` is a newer version still: too young, or not there for all platforms.
    """

    harness: str
    platforms: tuple[str, ...]
    current: str
    newest: str | None
    released: datetime | None = None
    waiting: str | None = None


def outdated(
    pins: Pins,
    pins_path: Path,
    ask: Callable[[Subject], Releases],
    *,
    now: datetime,
    cooldown: timedelta = COOLDOWN,
) -> tuple[OutdatedEntry, ...]:
    """Compare each pinned version with what the registries hold.

    Args:
        pins: what is pinned.
        pins_path: where; the sources of trees lie beside it.
        ask: gives a package's versions, with their times where they are known.
        now: the time to count the cooldown from.
        cooldown: how old a release must be.
    """
    return tuple(
        offer(pins, pins_path, harness, version, ask, latest=now - cooldown)
        for harness, pin in sorted(pins.harness.items())
        for version in sorted(by_version(pin))
    )


def offer(
    pins: Pins,
    pins_path: Path,
    harness: str,
    version: str,
    ask: Callable[[Subject], Releases],
    *,
    latest: datetime,
) -> OutdatedEntry:
    """Return what there is to bump one pinned version of a harness to, released by ``latest``."""
    runtimes = by_version(pins.harness[harness])[version]
    subjects = {one for r in runtimes for one in subjects_of(pins, pins_path, r, version)}
    ordered_subjects = sorted(subjects, key=lambda one: (one.client, one.name, one.suffix))
    platforms = tuple(sorted(p for r in runtimes for p in r.platforms))
    offers = [plain_versions(ask(subject), subject.suffix) for subject in ordered_subjects]
    return _entry(harness, platforms, version, offers, latest=latest)


def ask_with(clients: Sources) -> Callable[[Subject], Releases]:
    """Return how the package clients of this machine are asked, each package once."""

    @cache
    def asked(client: str, name: str, python: str) -> Releases:
        if client == "npm":
            return clients.registry().releases(name)
        versions = clients.pip.versions(name, python=python or "3.11")
        try:
            times = releases(clients.index().files(name))
        except FetchError:
            times = {}  # an index of the old kind tells no times
        return {version: times.get(version) for version in versions}

    return lambda subject: asked(subject.client, subject.name, subject.python)


def released_with(
    pins: Pins, pins_path: Path, ask: Callable[[Subject], Releases]
) -> Callable[[Runtime, str], datetime | None]:
    """Return what tells when a runtime's version was published; None when no registry says it."""

    def released(runtime: Runtime, version: str) -> datetime | None:
        try:
            said = [
                ask(subject).get(version + subject.suffix)
                for subject in subjects_of(pins, pins_path, runtime, version)
            ]
        except FetchError:
            return None
        return max((time for time in said if time), default=None)

    return released


def subjects_of(pins: Pins, pins_path: Path, runtime: Runtime, version: str) -> set[Subject]:
    """Return the packages of a runtime that carry its harness's version."""
    found = set()
    for content in runtime.content:
        artifact = pins.artifact[content.artifact]
        suffix = suffix_of(artifact, version)
        if suffix is not None:
            found.add(Subject(artifact.client, artifact.name, suffix))
    for planted in runtime.tree:
        tree = pins.tree[planted.tree]
        source = source_of(tree, pins_path)
        if isinstance(tree, NpmTreePin):
            roots = json.loads(source.read_text("utf-8"))["packages"][""]["dependencies"]
            found |= {Subject("npm", name) for name in roots if roots[name] == version}
        else:
            found |= set(_asked_for(tree, source, version))
    return found


def suffix_of(artifact: ArtifactPin, version: str) -> str | None:
    """What follows a harness's version in an artifact's; None when it carries another one."""
    if not artifact.version.startswith(version):
        return None
    suffix = artifact.version.removeprefix(version)
    return suffix if not suffix or suffix.startswith("-") else None


def _asked_for(tree: PipTreePin, source: Path, version: str) -> Iterable[Subject]:
    """What the requirements were made from lies beside them, ending in ``.in``."""
    asked = source.with_suffix(".in")
    for line in asked.read_text("utf-8").splitlines() if asked.is_file() else ():
        name, _, pinned = line.partition("==")
        if pinned.strip() == version:
            yield Subject("pip", name.strip(), python=tree.python)


def by_version(pin: HarnessPin) -> dict[str, list[Runtime]]:
    """Return the runtimes of a harness by the version that they are pinned to."""
    found: dict[str, list[Runtime]] = {}
    for runtime in pin.runtime:
        found.setdefault(runtime.version or pin.version, []).append(runtime)
    return found


def plain_versions(releases: Releases, suffix: str) -> Releases:
    """Return the releases that end in ``suffix``, without it; none that is a prerelease."""
    return {
        version.removesuffix(suffix): time
        for version, time in releases.items()
        if version.endswith(suffix) and _PLAIN.fullmatch(version.removesuffix(suffix))
    }


def _entry(
    harness: str,
    platforms: tuple[str, ...],
    current: str,
    offers: list[Releases],
    *,
    latest: datetime,
) -> OutdatedEntry:
    newer = {v for offer in offers for v in offer if ordered(v) > ordered(current)}
    ripe = {
        version
        for version in newer
        if all(version in offer and _before(offer[version], latest) for offer in offers)
    }
    newest = max(ripe, key=ordered, default=None)
    waiting = max(newer, key=ordered, default=None)
    times = [time for offer in offers if newest and (time := offer[newest])]
    return OutdatedEntry(
        harness=harness,
        platforms=platforms,
        current=current,
        newest=newest,
        released=max(times, default=None),
        waiting=waiting if waiting != newest else None,
    )


def _before(time: datetime | None, latest: datetime) -> bool:
    return time is None or time <= latest
