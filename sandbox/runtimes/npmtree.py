"""npm's lock file, read: which packages a platform gets, and where each goes.

Format: package-lock.json, lockfileVersion 3, whose ``packages`` keys are the folders themselves
(npm's own page "package-lock.json" describes it). Left out, as npm leaves them
out: development packages, optional ones whose ``os``, ``cpu`` or ``libc`` is another, what lies
below those, and what comes inside another package's tarball.
"""

from __future__ import annotations

import json
import posixpath
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from sandbox.errors import UsageError
from sandbox.runtimes.integrity import Integrity
from sandbox.runtimes.lock import Wanted
from sandbox.runtimes.words import Platform

_CURE = "write it with `npm install --package-lock-only --ignore-scripts`"
_MODULES = "node_modules/"
_WORDS: dict[Platform, tuple[str, str, str]] = {
    "linux-x64-gnu": ("linux", "x64", "glibc"),
    "linux-x64-musl": ("linux", "x64", "musl"),
    "linux-arm64-gnu": ("linux", "arm64", "glibc"),
    "linux-arm64-musl": ("linux", "arm64", "musl"),
}


class _Node(BaseModel):
    """One entry of ``packages``; what is not read here is ignored."""

    model_config = ConfigDict(extra="ignore")

    name: str | None = None
    version: str | None = None
    integrity: str | None = None
    license: str | dict[str, Any] | None = None
    bin: dict[str, str] | str | None = None
    os: tuple[str, ...] | str = ()
    cpu: tuple[str, ...] | str = ()
    libc: tuple[str, ...] | str = ()
    optional: bool = False
    dev: bool = False
    link: bool = False
    inBundle: bool = False  # noqa: N815 - npm's name


class _LockFile(BaseModel):
    model_config = ConfigDict(extra="ignore")

    lockfileVersion: Literal[3]  # noqa: N815 - npm's name
    packages: dict[str, _Node]


class NpmPackage(BaseModel):
    """One package of a tree: its ``paths``, programs, and the platforms that get it."""

    model_config = ConfigDict(frozen=True)

    wanted: Wanted
    licence: str
    paths: tuple[str, ...]
    bins: Mapping[str, str]
    platforms: tuple[Platform, ...]


def read_npm_tree(path: Path, platforms: Sequence[Platform]) -> tuple[NpmPackage, ...]:
    """Return the packages that at least one platform gets, sorted by name and version.

    Raises:
        UsageError: it is no such lock file, or asks for what cannot be locked by a hash.
    """
    try:
        nodes = _LockFile.model_validate_json(path.read_text("utf-8")).packages
    except (ValidationError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not a lock file of version 3: {error}", cure=_CURE) from error
    chosen: dict[str, list[Platform]] = defaultdict(list)
    for platform in platforms:
        for folder in _folders(nodes, platform, path):
            chosen[folder].append(platform)
    groups: dict[str, list[str]] = defaultdict(list)
    for folder in sorted(chosen):
        wanted = _wanted(nodes[folder], folder, path)
        key = (wanted.name, wanted.version, wanted.integrity, *map(str, chosen[folder]))
        groups[json.dumps(key)].append(folder)
    return tuple(_package(nodes, folders, chosen, path) for _, folders in sorted(groups.items()))


def _package(
    nodes: Mapping[str, _Node],
    folders: list[str],
    chosen: Mapping[str, list[Platform]],
    path: Path,
) -> NpmPackage:
    node, first = nodes[folders[0]], folders[0]
    wanted = _wanted(node, first, path)
    bins = {wanted.name.rpartition("/")[2]: node.bin} if isinstance(node.bin, str) else node.bin
    return NpmPackage(
        wanted=wanted,
        licence=node.license if isinstance(node.license, str) else "LicenseRef-unknown",
        paths=tuple(folders),
        bins={name: posixpath.normpath(file) for name, file in sorted((bins or {}).items())},
        platforms=tuple(sorted(chosen[first])),
    )


def _folders(nodes: Mapping[str, _Node], platform: Platform, path: Path) -> Iterator[str]:
    left: set[str] = set()
    for folder in sorted(nodes):
        node = nodes[folder]
        if not folder or node.dev or node.inBundle or any(_below(folder, one) for one in left):
            continue
        if _fits(node, platform):
            yield folder
        elif node.optional:
            left.add(folder)
        else:
            raise UsageError(
                f"{path}: {folder} is not optional and is not for {platform}",
                cure="pin the harness for the platforms that its packages serve",
            )


def _below(folder: str, other: str) -> bool:
    return folder.startswith(other + "/")


def _fits(node: _Node, platform: Platform) -> bool:
    asked = (node.os, node.cpu, node.libc)
    return all(
        _allows((rule,) if isinstance(rule, str) else rule, word)
        for rule, word in zip(asked, _WORDS[platform], strict=True)
    )


def _allows(rule: tuple[str, ...], word: str) -> bool:
    """As npm-install-checks: a "!word" forbids; any plain word must be ours."""
    plain = [one for one in rule if not one.startswith("!")]
    return f"!{word}" not in rule and (not plain or word in plain or "any" in plain)


def _wanted(node: _Node, folder: str, path: Path) -> Wanted:
    name = node.name or folder.rpartition(_MODULES)[2]
    if node.link or not node.version or not node.integrity or not folder.startswith(_MODULES):
        raise UsageError(f"{path}: {folder} has no version and integrity", cure=_CURE)
    try:
        Integrity.parse(node.integrity)
        file = f"{name.rpartition('/')[2]}-{node.version}.tgz"
        return Wanted(
            client="npm", name=name, version=node.version, file=file, integrity=node.integrity
        )
    except (ValueError, ValidationError) as error:
        raise UsageError(f"{path}: {folder} cannot be locked: {error}", cure=_CURE) from error
