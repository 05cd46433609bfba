"""Unpacking a sandbox's tar stream on the host, without trust in what is in it."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import IO

CHUNK = 1 << 20


class IterReader(io.RawIOBase):
    """Reads the chunks of an iterator as a file."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        super().__init__()
        self._chunks = iter(chunks)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill ``buffer`` from the next chunk; 0 at the end."""
        while not len(self._rest):
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def unpack(tar: IO[bytes], into: Path) -> tuple[str, ...]:
    """Unpack a tar stream below the empty folder ``into``; names what was left out.

    Files and folders go through Python's "data" filter. Symbolic links are made last, so that
    nothing is ever written through one, and only when they stay in the tree. Left out are
    links that leave it, hard links to what is not there, devices and pipes.

    Owners, set-id bits, other people's write bits and the modes of folders are not kept.
    """
    left_out: list[str] = []
    links: list[tarfile.TarInfo] = []
    with tarfile.open(fileobj=tar, mode="r|", bufsize=CHUNK) as archive:
        for member in archive:
            if member.issym():
                links.append(member)
                continue
            try:
                archive.extract(member, into, filter="data")
            except (tarfile.FilterError, KeyError):  # KeyError: hard link to what was left out
                left_out.append(member.name)
    left_out += [link.name for link in links if not _make_link(link, into)]
    return tuple(left_out)


def stays_inside(name: str, target: str) -> bool:
    """Tell whether a link ``name`` to ``target`` cannot lead out of the tree they are in.

    Only leading ".." are allowed, and no more than there are folders above the link: then each
    step down is through the tree, where every other link keeps the same rule.
    """
    link, parts = PurePosixPath(name), PurePosixPath(target).parts
    if link.is_absolute() or ".." in link.parts or target.startswith("/"):
        return False
    ups = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    return ".." not in parts[ups:] and ups <= len(link.parts) - 1


def _make_link(link: tarfile.TarInfo, into: Path) -> bool:
    if not stays_inside(link.name, link.linkname):
        return False
    place = into
    for part in PurePosixPath(link.name).parts[:-1]:
        place /= part
        if place.is_symlink() or not place.is_dir():
            return False
    place /= PurePosixPath(link.name).name
    if os.path.lexists(place):
        return False
    place.symlink_to(link.linkname)
    return True
