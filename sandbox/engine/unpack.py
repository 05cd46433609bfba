"""Unpacking a sandbox's tar stream on the host, without trust in what is in it."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO

BUFFER = 1 << 18  # tarfile copies the rest of its buffer at each read: larger ones are slower
IN_THE_WAY = (FileExistsError, IsADirectoryError, NotADirectoryError)


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

    Links are made last, so that nothing is ever written through one, and only when they stay in
    the tree. Left out are names and links that leave it, hard links to what is not there, devices,
    pipes, and names that are in each other's way. (Python's own "data" filter does the same, but
    Debian 12's Python 3.11.2 has none.)

    Owners, set-id bits, other people's write bits and the modes of folders are not kept.
    """
    left_out: list[str] = []
    links: list[tarfile.TarInfo] = []
    with tarfile.open(fileobj=tar, mode="r|", bufsize=BUFFER) as archive:
        for member in archive:
            if member.issym() or member.islnk():
                links.append(member)
                continue
            try:
                made = _make(archive, member, into)
            except IN_THE_WAY:
                made = False
            if not made:
                left_out.append(member.name)
    hard_links_first = sorted(links, key=tarfile.TarInfo.issym)  # they need files, no links
    left_out += [link.name for link in hard_links_first if not _make_link(link, into)]
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


def _make(archive: tarfile.TarFile, member: tarfile.TarInfo, into: Path) -> bool:
    """Make a file or folder, with the folders above it; False when it is neither, or leaves."""
    parts = PurePosixPath(member.name.lstrip("/")).parts
    if ".." in parts or not (member.isreg() or member.isdir()):
        return False
    place = into.joinpath(*parts)
    if member.isdir():
        place.mkdir(parents=True, exist_ok=True)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        content = archive.extractfile(member)
        with place.open("wb") as file:
            if content is not None:
                shutil.copyfileobj(content, file, BUFFER)
            runs = 0o755 if member.mode & 0o100 else 0o644
            os.fchmod(file.fileno(), member.mode & runs | 0o600)
    with suppress(OSError, OverflowError):
        os.utime(place, (member.mtime, member.mtime))
    return True


def _make_link(link: tarfile.TarInfo, into: Path) -> bool:
    """Make a link if all that it touches is in the tree; False when it is not."""
    place = _beneath(into, link.name)
    if place is None or os.path.lexists(place):
        return False
    if link.issym():
        if not stays_inside(link.name, link.linkname):
            return False
        place.symlink_to(link.linkname)
        return True
    source = _beneath(into, link.linkname)
    if source is None or source.is_symlink() or not source.is_file():
        return False
    place.hardlink_to(source)
    return True


def _beneath(into: Path, name: str) -> Path | None:
    """Give the place of ``name`` if its parents are folders of the tree, reached by no link."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts:
        return None
    place = into
    for part in parts[:-1]:
        place /= part
        if place.is_symlink() or not place.is_dir():
            return None
    return place / parts[-1]
