"""Verified artifacts into one deterministic tar: the bundle of a harness for its platforms.

Layout: ``MANIFEST.json`` (what it is, what it was made of, every file's sha256), ``bin/<harness>``
(always the entry point), and whatever the pins put beside them. The same pins and artifacts give
the same bytes on every machine and Python.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sandbox.errors import IntegrityError, UsageError
from sandbox.progress import Step
from sandbox.runtimes.archive import members
from sandbox.runtimes.artifacts import ArtifactPin
from sandbox.runtimes.bytecode import bytecode_place, compile_sources
from sandbox.runtimes.entries import ExecEntry, LinkEntry, launcher
from sandbox.runtimes.layout import bin_links, content_place, is_bin, package_places
from sandbox.runtimes.lock import LockedArtifact, LockedPackage
from sandbox.runtimes.needing import needs_of
from sandbox.runtimes.pins import INSTALLERS, Content, HarnessPin, Runtime, TreeContent
from sandbox.runtimes.staging import Assembled, Staging
from sandbox.runtimes.trees import PipTreePin, TreePin

_SCHEMA = 1


@dataclass(frozen=True)
class Ingredient:
    """One artifact of a bundle: its pin, its lock entry, its verified file."""

    pin: ArtifactPin
    locked: LockedArtifact
    path: Path


@dataclass(frozen=True)
class Grove:
    """One dependency tree of a bundle: its pin, and its packages with their verified files."""

    pin: TreePin
    packages: Sequence[tuple[LockedPackage, Path]]


def assemble(
    harness: str,
    pin: HarnessPin,
    runtime: Runtime,
    ingredients: Mapping[str, Ingredient],
    out: Path,
    *,
    stage: Path,
    step: Step,
    groves: Mapping[str, Grove] | None = None,
    python: Callable[[], Sequence[str]] | None = None,
) -> Assembled:
    """Write the bundle of ``runtime`` to ``out``; members pass through the folder ``stage``.

    ``python`` gives the argv of the Python that makes bytecode, where a tree asks for it.

    Raises:
        UsageError: the pins ask for what the artifacts do not hold, or for one name twice.
        IntegrityError: an artifact's members cannot be trusted.
    """
    staging, groves = Staging(stage, step), groves or {}
    try:
        for content in runtime.content:
            _take(staging, content, ingredients[content.artifact])
        for tree in runtime.tree:
            _plant(staging, tree, groves[tree.tree])
        for tree in runtime.tree:
            if tree.bytecode and python is not None:
                _compile(staging, tree, groves[tree.tree].pin, python(), stage)
        _enter(staging, harness, runtime)
    except ValueError as error:
        raise UsageError(
            f"the bundle of {harness} for {runtime.platforms[0]} cannot be put together: {error}",
            cure="correct its runtime table in pins.toml",
        ) from error
    used = [ingredients[name] for name in artifacts_of(runtime)]
    said = _manifest(harness, pin, runtime, used=used, groves=groves, files=staging.described())
    staging.add_data("MANIFEST.json", said)
    needs = needs_of(staging.entries, runtime.entry, platform=runtime.platforms[0], cpu=runtime.cpu)
    return replace(staging.write(out), needs=needs)


def artifacts_of(runtime: Runtime) -> tuple[str, ...]:
    """Return the ids of the artifacts a runtime is made of, sorted."""
    return tuple(sorted({content.artifact for content in runtime.content}))


def trees_of(runtime: Runtime) -> tuple[str, ...]:
    """Return the ids of the trees a runtime is made of, sorted."""
    return tuple(sorted({content.tree for content in runtime.tree}))


def _take(staging: Staging, content: Content, ingredient: Ingredient) -> None:
    """Stage what ``content`` selects of an artifact, then its extra links."""
    what = f"{ingredient.pin.name} {ingredient.pin.version}"
    before = len(staging.entries)
    with members(ingredient.path, what=what, within=content.within) as found:
        for member in found:
            name = content_place(member.name, content)
            if name is not None:
                below = name.removeprefix(content.put) or posixpath.basename(name)
                executable, runpath = below in content.executable, content.runpath.get(below)
                staging.put(name, member, executable=executable, runpath=runpath)
    if len(staging.entries) == before:
        raise ValueError(f"{what} holds nothing below {content.take!r}")
    for link, target in content.links.items():
        staging.add_link(content.put + link, target)


def _plant(staging: Staging, content: TreeContent, grove: Grove) -> None:
    """Stage every package of a tree, then its extra links."""
    links: dict[str, str] = {}
    for package, path in grove.packages:
        what = f"{package.name} {package.version}"
        with members(path, what=what, repeats=True) as found:
            for member in found:
                places = package_places(member.name, package, grove.pin, content)
                if not places or member.data is None:
                    continue  # npm takes no links out of a package, and a wheel has none
                staging.put_package_file(
                    [content.put + place for place in places],
                    member,
                    executable=places[0] in content.executable or is_bin(places[0], package),
                    runpath=content.runpath.get(places[0]),
                )
        links = bin_links(package) | links  # of two programs of one name the first one stays
    for link, target in links.items():
        reached = posixpath.normpath(posixpath.join(posixpath.dirname(link), target))
        if content.put + reached in staging.entries:
            staging.add_link(content.put + link, target)
    for link, target in content.links.items():
        staging.add_link(content.put + link, target)


def _compile(
    staging: Staging, content: TreeContent, pin: TreePin, python: Sequence[str], stage: Path
) -> None:
    """Add the bytecode of every Python file below the tree's folder."""
    assert isinstance(pin, PipTreePin)  # the pins say so
    sources = [
        (name, staged.path)
        for name, staged in staging.entries.items()
        if name.startswith(content.put) and name.endswith(".py") and staged.path is not None
    ]
    folder = stage / "bytecode"
    folder.mkdir(exist_ok=True)
    made = compile_sources(python, pin.python, sources, folder)
    for name, path in made.items():
        staging.add_file(bytecode_place(name, pin.python), path)


def _enter(staging: Staging, harness: str, runtime: Runtime) -> None:
    """Add ``bin/<harness>``, and see that what it starts is there and every link leads on."""
    entry = runtime.entry
    program = staging.entries.get(entry.program)
    if program is None or not program.executable:
        raise ValueError(f"the entry's program {entry.program!r} is no executable file")
    if isinstance(entry, ExecEntry) and entry.script and entry.script not in staging.entries:
        raise ValueError(f"the entry's script {entry.script!r} is not in the bundle")
    if isinstance(entry, LinkEntry):
        staging.add_link(f"bin/{harness}", f"../{entry.program}")
    else:
        text = launcher(entry, INSTALLERS / "launcher.sh")
        staging.add_data(f"bin/{harness}", text, executable=True)
    staging.check_links()


def _manifest(
    harness: str,
    pin: HarnessPin,
    runtime: Runtime,
    *,
    used: Sequence[Ingredient],
    groves: Mapping[str, Grove],
    files: Mapping[str, Any],
) -> bytes:
    manifest: dict[str, Any] = {
        "schema": _SCHEMA,
        "harness": harness,
        "version": runtime.version or pin.version,
        "platforms": sorted(runtime.platforms),
        "licence": pin.licence,
        "entry": f"bin/{harness}",
        "version_argv": list(pin.version_argv),
        "version_output": runtime.version_output or pin.version_output,
        "artifacts": [
            item.locked.model_dump(mode="json", exclude_none=True)
            | item.pin.model_dump(include={"licence", "redistributable"}, exclude_defaults=True)
            for item in used
        ],
        "files": files,
    }
    if pin.version_env:
        manifest["version_env"] = dict(pin.version_env)
    if groves:
        manifest["trees"] = {
            name: [_said(package) for package, _ in grove.packages]
            for name, grove in sorted(groves.items())
        }
    return (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode()


def _said(package: LockedPackage) -> dict[str, Any]:
    fields = {"client", "name", "version", "file", "size", "integrity", "licence"}
    return package.model_dump(mode="json", include=fields)


def check_assembled(made: Assembled, *, size: int, sha256: str, what: str) -> None:
    """Raise ``IntegrityError`` unless the bundle made is the one that is locked."""
    if (made.size, made.sha256) != (size, sha256):
        raise IntegrityError(
            f"the bundle {what} came out with sha256 {made.sha256}, locked is {sha256}",
            cure="the artifacts are right, so how bundles are made has changed:"
            " run `sandbox pins lock` and review it",
        )
