"""Another version of a harness: what changes in its pins file, and whether all platforms have it.

Runtimes of one version move together. A harness that is pinned to different versions on different
platforms has one such group each; the one with the harness's own ``version`` moves unless another
one is chosen by its platforms.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from sandbox.errors import NothingSelected, Unsupported, UsageError
from sandbox.evidence.records import Record
from sandbox.runtimes.needs import ordered
from sandbox.runtimes.outdated import (
    OutdatedEntry,
    Releases,
    Subject,
    by_version,
    plain_versions,
    subjects_of,
    suffix_of,
)
from sandbox.runtimes.pinedit import Edit
from sandbox.runtimes.pins import Pins, Runtime

Ask = Callable[[Subject], Releases]


class Bump(Record):
    """One harness from ``old`` to ``new`` on ``platforms``.

    ``trees`` are the dependency trees whose sources have to be written anew. ``left`` are the
    platforms that stay: platform to its version.
    """

    harness: str
    old: str
    new: str
    platforms: tuple[str, ...]
    left: dict[str, str]
    edits: tuple[Edit, ...]
    trees: tuple[str, ...]


def group_of(pins: Pins, harness: str, platforms: Sequence[str]) -> tuple[str, list[Runtime]]:
    """Return the pinned version that is to move, and its runtimes.

    Args:
        pins: what is pinned.
        harness: whose.
        platforms: globs; the harness's own version when empty.

    Raises:
        UsageError: no such harness, or the globs match no version's platforms, or several's.
    """
    pin = pins.harness_pin(harness)
    groups = by_version(pin)
    if not platforms:
        chosen = [pin.version] if pin.version in groups else sorted(groups)
    else:
        chosen = [
            version
            for version, runtimes in sorted(groups.items())
            if any(
                fnmatchcase(p, glob) for r in runtimes for p in r.platforms for glob in platforms
            )
        ]
    if len(chosen) != 1:
        known = "; ".join(f"{v}: {' '.join(_platforms(r))}" for v, r in sorted(groups.items()))
        raise UsageError(
            f"{harness}: these platforms are of {len(chosen)} pinned versions, not of one",
            cure=f"choose with --platform; pinned are {known}",
        )
    return chosen[0], groups[chosen[0]]


def target(entry: OutdatedEntry) -> str:
    """Return the version to bump to when none is named; ``NothingSelected`` when there is none."""
    if entry.newest:
        return entry.newest
    waiting = f"{entry.waiting} is too young, or not there for every platform; " * bool(
        entry.waiting
    )
    raise NothingSelected(
        f"{entry.harness} {entry.current} is the newest version for {' '.join(entry.platforms)}",
        cure=f"{waiting}name a VERSION, or another --cooldown",
    )


def plan_bump(
    pins: Pins, pins_path: Path, harness: str, new: str, ask: Ask, *, platforms: Sequence[str] = ()
) -> Bump:
    """Return what has to change for ``harness`` to be ``new`` on the platforms of its group.

    Args:
        pins: what is pinned.
        pins_path: where; the sources of trees lie beside it.
        harness: what is bumped.
        new: the version, without the suffix of a platform.
        ask: gives a package's versions.
        platforms: globs that choose the group; see ``group_of``.

    Raises:
        UsageError: no such harness or version.
        NothingSelected: that version is pinned already.
        Unsupported: the registry has the version for some of the platforms only.
    """
    old, runtimes = group_of(pins, harness, platforms)
    if new == old:
        raise NothingSelected(f"{harness} is pinned to {old} already", cure="name another VERSION")
    carriers = _carriers(pins, pins_path, runtimes, old)
    _refuse_missing(f"{harness} {new}", new, carriers, ask)
    moved = {platform for runtime in runtimes for platform in runtime.platforms}
    pin = pins.harness[harness]
    return Bump(
        harness=harness,
        old=old,
        new=new,
        platforms=tuple(sorted(moved)),
        left={
            platform: runtime.version or pin.version
            for runtime in pin.runtime
            for platform in runtime.platforms
            if platform not in moved
        },
        edits=(
            *_artifact_edits(pins, runtimes, old, new),
            *harness_edits(pins, harness, old, new),
        ),
        trees=_trees(pins, pins_path, runtimes, old),
    )


def output_edits(pins: Pins, harness: str, version: str, said: str) -> tuple[Edit, ...]:
    """Return what makes the pins of ``harness`` expect ``said`` of the runtimes of ``version``."""
    pin, found = pins.harness[harness], []
    if pin.version == version and pin.version_output != said:
        found.append(_edit(f"harness.{harness}", "version_output", pin.version_output, said))
    for at, runtime in enumerate(pin.runtime):
        expected = runtime.version_output
        if (runtime.version or pin.version) == version and expected not in {None, said}:
            table = f"harness.{harness}.runtime"
            found.append(_edit(table, "version_output", str(expected), said, at))
    return tuple(found)


def _edit(table: str, key: str, old: str, new: str, at: int | None = None) -> Edit:
    return Edit(table=table, key=key, old=old, new=new, at=at)


def _platforms(runtimes: Sequence[Runtime]) -> tuple[str, ...]:
    return tuple(sorted(platform for runtime in runtimes for platform in runtime.platforms))


def _carriers(
    pins: Pins, pins_path: Path, runtimes: Sequence[Runtime], old: str
) -> dict[Subject, tuple[str, ...]]:
    """Return the packages that carry the version, each with the platforms that need it."""
    found: dict[Subject, tuple[str, ...]] = {}
    for runtime in runtimes:
        for subject in subjects_of(pins, pins_path, runtime, old):
            found[subject] = tuple(sorted({*found.get(subject, ()), *runtime.platforms}))
    return dict(sorted(found.items(), key=lambda one: str(one[0])))


def _refuse_missing(
    what: str, new: str, carriers: Mapping[Subject, tuple[str, ...]], ask: Ask
) -> None:
    if not carriers:
        raise UsageError(
            f"{what}: none of the harness's packages carries its pinned version",
            cure="edit pins.toml by hand, then run `sandbox pins lock`",
        )
    offers = {subject: plain_versions(ask(subject), subject.suffix) for subject in carriers}
    lacking = [subject for subject in carriers if new not in offers[subject]]
    if not lacking:
        return
    common = sorted(set.intersection(*map(set, offers.values())), key=ordered)
    if len(lacking) == len(carriers):
        near = difflib.get_close_matches(new, common, n=3) or common[-3:]
        raise UsageError(f"the registry has no {what}", cure=f"it has: {', '.join(near) or 'none'}")
    named = "; ".join(
        f"{one.name} {new}{one.suffix} ({', '.join(carriers[one])})" for one in lacking
    )
    newest = f"{common[-1]} is the newest that all have; otherwise " if common else ""
    raise Unsupported(
        f"{what} is not there for every platform: the registry has no {named}",
        cure=f"{newest}give those platforms a runtime table with a `version` of its own, or name"
        " them under `unavailable`",
    )


def _artifact_edits(pins: Pins, runtimes: Sequence[Runtime], old: str, new: str) -> list[Edit]:
    names = {content.artifact for runtime in runtimes for content in runtime.content}
    return [
        _edit(f"artifact.{name}", "version", pin.version, new + suffix)
        for name, pin in sorted(pins.artifact.items())
        if name in names and (suffix := suffix_of(pin, old)) is not None
    ]


def harness_edits(pins: Pins, harness: str, old: str, new: str) -> list[Edit]:
    """Return the edits of a harness's own tables; what it prints is a guess until it was asked."""
    pin, found = pins.harness[harness], []
    if pin.version == old:
        table = f"harness.{harness}"
        found.append(_edit(table, "version", old, new))
        if old in pin.version_output:
            said = pin.version_output.replace(old, new)
            found.append(_edit(table, "version_output", pin.version_output, said))
    for at, runtime in enumerate(pin.runtime):
        table = f"harness.{harness}.runtime"
        if runtime.version == old:
            found.append(_edit(table, "version", old, new, at))
        own = runtime.version_output
        if own and old in own and (runtime.version or pin.version) == old:
            found.append(_edit(table, "version_output", own, own.replace(old, new), at))
    return found


def _trees(pins: Pins, pins_path: Path, runtimes: Sequence[Runtime], old: str) -> tuple[str, ...]:
    return tuple(
        sorted(
            {
                planted.tree
                for runtime in runtimes
                for planted in runtime.tree
                if subjects_of(pins, pins_path, runtime.model_copy(update={"content": ()}), old)
            }
        )
    )
