"""A root file system as values: its entries, what is left out, and the one order they get."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import BinaryIO

from sandbox.errors import IntegrityError

_XATTRS = ("security.capability", "user.")  # others (labels, ACLs) belong to the building host
_LINK_DEPTH = 8  # a link to a link; more is a loop
_WHITEOUT = ".wh."  # an image layer takes such a name for a deletion (OCI image spec, layer.md)


class Kind(StrEnum):
    """What an entry is; device nodes and pipes have no place in an image."""

    FOLDER = "folder"
    FILE = "file"
    SYMLINK = "symlink"
    HARDLINK = "hardlink"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One path of a root file system.

    ``path`` is relative without ``./``; ``target`` is a symlink's text or a hard link's path;
    ``content`` opens a file's bytes, ``size`` of them.
    """

    path: str
    kind: Kind
    mode: int
    uid: int = 0
    gid: int = 0
    mtime: int = 0
    size: int = 0
    target: str = ""
    xattrs: Mapping[str, bytes] = field(default_factory=dict)
    content: Callable[[], BinaryIO] | None = None


class Selection:
    """Which paths are left out: patterns with whole subtrees, and exact exceptions.

    In a pattern ``*`` stands for any characters but a slash; ``dev/*`` is the content of ``dev``.
    """

    def __init__(self, *, drop: Iterable[str], keep: Iterable[str] = ()) -> None:
        patterns = [re.escape(pattern).replace(r"\*", "[^/]*") for pattern in drop]
        self._drop = re.compile(rf"(?:{'|'.join(patterns)})(?:/.*)?", re.DOTALL)
        self._keep = frozenset(keep)
        self._nothing = not patterns

    def has(self, path: str) -> bool:
        """Say whether ``path`` stays."""
        return self._nothing or path in self._keep or self._drop.fullmatch(path) is None


def order(path: str) -> tuple[bytes, ...]:
    """Give the sort key: by bytes, component by component, so a folder comes before its content."""
    return tuple(part.encode(errors="surrogateescape") for part in path.split("/"))


def canonical(
    entries: Iterable[Entry], *, selection: Selection, epoch: int, workdir: str, owner: str = ""
) -> tuple[Entry, ...]:
    """Give the entries that an image gets, in their one order.

    Left-out paths are gone, mtimes are at most ``epoch``, of names for one file the first is the
    file and the others are hard links to it, host-specific attributes are gone, and ``workdir``
    exists (owned by ``owner``, as ``uid`` or ``uid:gid``).

    Raises:
        IntegrityError: a path twice, an escaping path, a name that a layer cannot hold, or a
            path below something that is no folder.
    """
    held = _by_path(entries)
    chosen = [item for item in _regrouped(held) if selection.has(item.path)]
    ready = {item.path: _normal(item, epoch) for item in _relinked(chosen)}
    for item in _folders_of(workdir, epoch, owner):
        ready.setdefault(item.path, item)
    for path in ready:
        parent = path.rpartition("/")[0]
        if parent and (parent not in ready or ready[parent].kind is not Kind.FOLDER):
            raise IntegrityError(f"root file system: {path!r} has no folder to be in")
    return tuple(ready[path] for path in sorted(ready, key=order))


def _by_path(entries: Iterable[Entry]) -> dict[str, Entry]:
    held: dict[str, Entry] = {}
    for item in entries:
        parts = item.path.split("/")
        if {"", ".", ".."} & set(parts) or "\0" in item.path or "\0" in item.target:
            raise IntegrityError(f"root file system: {item.path!r} is no plain relative path")
        if any(part.startswith(_WHITEOUT) for part in parts):
            raise IntegrityError(f"root file system: a layer cannot hold the name {item.path!r}")
        if item.path in held:
            raise IntegrityError(f"root file system: {item.path!r} is there twice")
        held[item.path] = item
    return held


def _regrouped(held: Mapping[str, Entry]) -> Iterable[Entry]:
    """Turn each hard link into a full copy of its file that still names it in ``target``."""
    for item in held.values():
        if item.kind is not Kind.HARDLINK:
            yield item
            continue
        origin = held.get(item.target)
        for _ in range(_LINK_DEPTH):
            if origin is not None and origin.kind is Kind.HARDLINK:
                origin = held.get(origin.target)
        if origin is None or origin.kind is not Kind.FILE:
            raise IntegrityError(f"root file system: {item.path!r} links to no file")
        yield replace(origin, path=item.path, target=origin.path)


def _relinked(chosen: list[Entry]) -> Iterable[Entry]:
    """Make the first name of each file the file, and its other names hard links to that one."""
    first: dict[str, str] = {}
    for item in sorted(chosen, key=lambda item: order(item.path)):
        if item.kind is not Kind.FILE:
            yield item
            continue
        leader = first.setdefault(item.target or item.path, item.path)
        if leader == item.path:
            yield replace(item, target="")
        else:
            yield replace(item, kind=Kind.HARDLINK, target=leader, size=0, content=None)


def _normal(item: Entry, epoch: int) -> Entry:
    return replace(
        item,
        mode=item.mode & 0o7777,
        mtime=min(max(item.mtime, 0), epoch),
        xattrs={
            name: item.xattrs[name] for name in sorted(item.xattrs) if name.startswith(_XATTRS)
        },
    )


def _folders_of(workdir: str, epoch: int, owner: str) -> Iterable[Entry]:
    uid, _, gid = owner.partition(":")
    parts = workdir.strip("/").split("/")
    for depth in range(1, len(parts) + 1):
        path = "/".join(parts[:depth])
        is_last = depth == len(parts)
        yield Entry(
            path=path,
            kind=Kind.FOLDER,
            mode=0o755,
            uid=int(uid or 0) if is_last else 0,
            gid=int(gid or 0) if is_last else 0,
            mtime=epoch,
        )


def read_small(entries: Iterable[Entry], path: str, *, limit: int = 64 << 20) -> bytes | None:
    """Give the bytes of the file ``path``; None when there is no such file.

    Raises:
        IntegrityError: it is larger than ``limit`` bytes, or shorter than its size says.
    """
    for item in entries:
        if item.path == path and item.kind is Kind.FILE and item.content is not None:
            if item.size > limit:
                raise IntegrityError(f"root file system: {path} has {item.size} bytes")
            with item.content() as stream:
                data = stream.read(item.size + 1)
            if len(data) != item.size:
                raise IntegrityError(f"root file system: {path} has not the size it claims")
            return data
    return None
