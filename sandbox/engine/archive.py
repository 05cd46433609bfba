"""Tar streams: made from memory or a host folder as they are sent, and unpacked safely."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from sandbox.errors import UsageError

CHUNK = 1 << 20
FILE_MODE = 0o644


@dataclass(frozen=True, kw_only=True)
class PutFile:
    """One file to put: ``data`` from memory, or the host file ``source``.

    Attributes:
        path: where, relative to the folder it is put in; missing folders are made.
        data: the bytes; None when ``source`` or ``link_to`` is given.
        source: a host file; its modification time is kept.
        link_to: make a symbolic link to this instead of a file.
        mode: permission bits; None keeps those of ``source``, or 0644.
    """

    path: str
    data: bytes | None = None
    source: Path | None = None
    link_to: str | None = None
    mode: int | None = None

    def __post_init__(self) -> None:
        if sum(one is not None for one in (self.data, self.source, self.link_to)) != 1:
            raise UsageError(f"{self.path}: give exactly one of data, source and link_to")
        pure = PurePosixPath(self.path)
        if pure.is_absolute() or ".." in pure.parts or not pure.parts:
            raise UsageError(f"{self.path!r} must be a relative path without ..")


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Numeric user and group that put files belong to."""

    uid: int
    gid: int


def stream_files(files: Sequence[PutFile], owner: Owner) -> Iterator[bytes]:
    """Give a tar of ``files``, piece by piece, with folders for their parents."""
    folders: set[PurePosixPath] = set()
    for file in files:
        for folder in reversed(PurePosixPath(file.path).parents[:-1]):
            if folder not in folders:
                folders.add(folder)
                yield _header(_info(str(folder), tarfile.DIRTYPE, 0o755, owner))
        yield from _one(file, owner)
    yield _END


def stream_tree(source: Path, owner: Owner) -> Iterator[bytes]:
    """Give a tar of a host folder's content, or of one host file, in order of names.

    Modes, modification times and symbolic links are kept; hard links become files.

    Raises:
        UsageError: there is no such path, or it holds something that is neither file, folder
            nor symbolic link.
    """
    if not os.path.lexists(source):
        raise UsageError(f"there is nothing at {source}")
    if not source.is_dir() or source.is_symlink():
        yield from _host_entry(source, source.name, owner)
    else:
        yield from _walk(source, "", owner)
    yield _END


def _walk(folder: Path, prefix: str, owner: Owner) -> Iterator[bytes]:
    for entry in sorted(folder.iterdir()):
        name = f"{prefix}{entry.name}"
        yield from _host_entry(entry, name, owner)
        if entry.is_dir() and not entry.is_symlink():
            yield from _walk(entry, f"{name}/", owner)


def _one(file: PutFile, owner: Owner) -> Iterator[bytes]:
    if file.source is not None:
        if not file.source.is_file():
            raise UsageError(f"there is no file at {file.source}")
        yield from _host_file(file.source, file.path, owner, file.source.stat(), mode=file.mode)
        return
    kind = tarfile.REGTYPE if file.link_to is None else tarfile.SYMTYPE
    info = _info(file.path, kind, FILE_MODE if file.mode is None else file.mode, owner)
    if file.link_to is not None:
        info.linkname = file.link_to
        yield _header(info)
        return
    data = file.data or b""
    info.size = len(data)
    yield _header(info)
    yield from (data[start : start + CHUNK] for start in range(0, len(data), CHUNK))
    yield _padding(len(data))


def _host_entry(path: Path, name: str, owner: Owner) -> Iterator[bytes]:
    status = path.lstat()
    if stat.S_ISREG(status.st_mode):
        yield from _host_file(path, name, owner, status, mode=None)
        return
    if stat.S_ISDIR(status.st_mode):
        info = _info(name, tarfile.DIRTYPE, stat.S_IMODE(status.st_mode), owner, status.st_mtime)
    elif stat.S_ISLNK(status.st_mode):
        info = _info(name, tarfile.SYMTYPE, 0o777, owner, status.st_mtime)
        info.linkname = str(path.readlink())
    else:
        raise UsageError(f"{path} is neither file, folder nor symbolic link: it cannot be put")
    yield _header(info)


def _host_file(
    path: Path, name: str, owner: Owner, status: os.stat_result, *, mode: int | None
) -> Iterator[bytes]:
    bits = stat.S_IMODE(status.st_mode) if mode is None else mode
    info = _info(name, tarfile.REGTYPE, bits, owner, status.st_mtime)
    info.size = left = status.st_size
    yield _header(info)
    with path.open("rb") as file:
        while left:
            data = file.read(min(CHUNK, left))
            if not data:
                raise UsageError(f"{path} became shorter while it was read")
            left -= len(data)
            yield data
    yield _padding(info.size)


def _info(
    name: str, kind: bytes, mode: int, owner: Owner, mtime: float = 0.0
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.mode = mode
    info.mtime = mtime
    info.uid, info.gid = owner.uid, owner.gid
    return info


def _header(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)


_END = bytes(2 * tarfile.BLOCKSIZE)


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


def unpack(tar: io.RawIOBase | io.BufferedIOBase, into: Path) -> tuple[str, ...]:
    """Unpack a tar stream below ``into``; names the members that were left out.

    Left out is what Python's "data" filter refuses: links out of the tree, absolute links,
    devices and pipes. Set-id and group and other write bits are dropped, owners are not kept.
    """
    left_out = []
    with tarfile.open(fileobj=tar, mode="r|", bufsize=CHUNK) as archive:
        for member in archive:
            try:
                archive.extract(member, into, filter="data")
            except tarfile.FilterError:
                left_out.append(member.name)
            except KeyError:  # a hard link to a member that was left out
                left_out.append(member.name)
    return tuple(left_out)
