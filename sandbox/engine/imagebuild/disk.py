"""Read the entries of a root file system from a virtual machine's disk: ext4 inside qcow2."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dissect.extfs.exceptions
import dissect.hypervisor.exceptions
from dissect.extfs import ExtFS
from dissect.hypervisor.disk.qcow2 import QCow2

from sandbox.engine.imagebuild.tree import Entry, Kind
from sandbox.errors import IntegrityError

_KINDS = {stat.S_IFDIR: Kind.FOLDER, stat.S_IFREG: Kind.FILE, stat.S_IFLNK: Kind.SYMLINK}
_UNREADABLE = (
    dissect.extfs.exceptions.Error,
    dissect.hypervisor.exceptions.Error,
    EOFError,
    ValueError,
)


@contextmanager
def disk_entries(path: Path) -> Iterator[tuple[Entry, ...]]:
    """Give the entries of the ext4 file system on the disk ``path``, without root and mounts.

    Their contents can be read while inside. Device nodes, pipes and sockets are left out.

    Raises:
        IntegrityError: it is no qcow2 disk with an ext file system that can be read.
    """
    with path.open("rb") as stream:
        try:
            entries = tuple(_walk(ExtFS(QCow2(stream).open()).root, "", {}))
        except _UNREADABLE as error:
            raise IntegrityError(f"cannot read the disk {path.name}: {error}") from error
        yield entries


def _walk(folder: Any, above: str, seen: dict[int, str]) -> Iterator[Entry]:
    for node in sorted(folder.iterdir(), key=lambda node: str(node.filename)):
        if node.filename in {".", ".."} or node.filetype not in _KINDS:
            continue
        path = f"{above}{node.filename}"
        yield _entry(node, path, seen)
        if node.filetype == stat.S_IFDIR:
            yield from _walk(node, f"{path}/", seen)


def _entry(node: Any, path: str, seen: dict[int, str]) -> Entry:
    """Describe one inode; a file met before, under another name, is a hard link to that name."""
    inode = node.inode
    kind = _KINDS[node.filetype]
    first = seen.setdefault(node.inum, path) if kind is Kind.FILE else path
    target = first if first != path else str(node.link) if kind is Kind.SYMLINK else ""
    kind = Kind.HARDLINK if first != path else kind
    return Entry(
        path=path,
        kind=kind,
        mode=stat.S_IMODE(inode.i_mode),
        uid=inode.i_uid | inode.i_uid_high << 16,
        gid=inode.i_gid | inode.i_gid_high << 16,
        mtime=inode.i_mtime,
        size=node.size if kind is Kind.FILE else 0,
        target=target,
        xattrs={str(item.name): bytes(item.value) for item in node.xattr},
        content=node.open if kind is Kind.FILE else None,
    )
