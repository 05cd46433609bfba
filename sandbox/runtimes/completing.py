"""Pins of which only versions were changed, as an update bot does, made whole again.

A bot changes what it understands: the version of an artifact, or what a tree is made for. The
harness's own version, what its program is expected to print and the tree's source follow from it.
"""

from __future__ import annotations

from pathlib import Path

from sandbox.errors import UsageError
from sandbox.runtimes.bump import Bump, harness_edits
from sandbox.runtimes.outdated import by_version, suffix_of
from sandbox.runtimes.pins import Pins, Runtime
from sandbox.runtimes.treesource import asked_versions


def unfinished(old: Pins, old_path: Path, new: Pins, new_path: Path) -> tuple[Bump, ...]:
    """Return the bumps that ``new`` has begun: packages of another version, the rest as in ``old``.

    Raises:
        UsageError: the packages of one harness are of several versions.
    """
    found = []
    for harness in sorted(old.harness.keys() & new.harness.keys()):
        for version, runtimes in sorted(by_version(old.harness[harness]).items()):
            here = by_version(new.harness[harness]).get(version)
            said = _versions((old, old_path), (new, new_path), runtimes, version)
            if here is None or said <= {version}:
                continue
            if len(said) > 1:
                raise UsageError(
                    f"{harness}: its packages are of the versions {', '.join(sorted(said))}",
                    cure="one version for all of them, or a runtime table with its own `version`",
                )
            (now,) = said
            found.append(
                Bump(
                    harness=harness,
                    old=version,
                    new=now,
                    platforms=tuple(sorted(p for r in here for p in r.platforms)),
                    left={},
                    edits=tuple(harness_edits(new, harness, version, now)),
                    trees=tuple(sorted({one.tree for r in here for one in r.tree})),
                )
            )
    return tuple(found)


def _versions(
    before: tuple[Pins, Path], after: tuple[Pins, Path], runtimes: list[Runtime], version: str
) -> set[str]:
    """Return the versions that the packages which carried ``version`` have now."""
    (old, old_path), (new, new_path) = before, after
    found = set()
    for runtime in runtimes:
        for content in runtime.content:
            was, now = old.artifact[content.artifact], new.artifact.get(content.artifact)
            suffix = suffix_of(was, version)
            if now is not None and suffix is not None:
                found.add(now.version.removesuffix(suffix))
        for planted in runtime.tree:
            was_asked = asked_versions(old.tree[planted.tree], old_path)
            now_asked = asked_versions(new.tree[planted.tree], new_path)
            carried = [name for name, asked in was_asked.items() if asked == version]
            found |= {now_asked[name] for name in carried if name in now_asked}
    return found
