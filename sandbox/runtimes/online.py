"""Whether the registries still serve what is locked: the same hash for every file, asked anew.

Nothing is downloaded. npm names an integrity for each version, a Python index a sha256 for each
file, and Debian's signed package lists one for each package.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from sandbox.errors import NotServed, SandboxError
from sandbox.evidence.records import Record
from sandbox.runtimes.integrity import Integrity
from sandbox.runtimes.lock import Lock, LockedArtifact
from sandbox.runtimes.sources import Sources

_AT_ONCE = 6

Ask = Callable[[LockedArtifact], str]
"""What the registry says a locked file hashes to, as ``Integrity.parse`` reads it."""


Status = Literal["ok", "changed", "gone", "unknown"]


class ServedEntry(Record):
    """One line of `pins verify --online`.

    ``changed``: the registry names another hash. ``gone``: it holds that version no more.
    ``unknown``: it could not be asked, or names no hash of the locked kind.
    """

    client: str
    name: str
    version: str
    file: str
    status: Status
    detail: str = ""


def served(lock: Lock, ask: Ask) -> tuple[ServedEntry, ...]:
    """Ask for every file of the lock once, several at a time; the order is the lock's."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return tuple(pool.map(lambda one: _served(one, ask), files_of(lock)))


def files_of(lock: Lock) -> tuple[LockedArtifact, ...]:
    """Return every distinct file of a lock: artifacts and the packages of trees, sorted."""
    found: dict[tuple[str, ...], LockedArtifact] = {}
    trees = (package for tree in lock.trees.values() for package in tree.packages)
    for one in (*lock.artifacts.values(), *trees):
        found.setdefault((one.client, one.name, one.version, one.file), one)
    return tuple(found[key] for key in sorted(found))


def ask_with(clients: Sources) -> Ask:
    """Return how the package clients of this machine are asked."""

    def ask(one: LockedArtifact) -> str:
        if one.client == "npm":
            return clients.registry().dist(one.name, one.version).integrity.text
        if one.client == "pip":
            file = clients.index().files(one.name).get(one.file)
            if file is None:
                raise NotServed(f"the index has no {one.file}")
            return " ".join(f"{kind}:{value}" for kind, value in sorted(file.hashes.items()))
        with tempfile.TemporaryDirectory() as folder:
            tag = one.tag or "amd64"
            return "sha256:" + clients.apt.offered(one.name, one.version, tag, Path(folder))

    return ask


def _served(one: LockedArtifact, ask: Ask) -> ServedEntry:
    try:
        status, detail = _held_against(Integrity.parse(one.integrity), ask(one))
    except SandboxError as error:
        status, detail = _failed(error), error.message
    return ServedEntry(
        client=one.client,
        name=one.name,
        version=one.version,
        file=one.file,
        status=status,
        detail=detail,
    )


def _failed(error: SandboxError) -> Status:
    return "gone" if isinstance(error, NotServed) else "unknown"


def _held_against(locked: Integrity, said: str) -> tuple[Status, str]:
    hashes = [_parsed(word) for word in said.split()]
    same_kind = [one for one in hashes if one and one.algorithm == locked.algorithm]
    if not same_kind:
        return "unknown", f"the registry names no {locked.algorithm}: {said or 'nothing'}"
    if any(one.hexdigest == locked.hexdigest for one in same_kind):
        return "ok", ""
    return "changed", f"the registry names {said}, locked is {locked.text}"


def _parsed(word: str) -> Integrity | None:
    try:
        return Integrity.parse(word)
    except ValueError:
        return None
