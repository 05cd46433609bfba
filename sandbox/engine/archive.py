"""Tar streams made from memory or a host folder, piece by piece as they are sent."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

from sandbox.errors import UsageError

CHUNK = 1 << 20
SMALL = 1 << 18
FILE_MODE = 0o644
FOLDER_MODE = 0o755
OCTAL_11 = 0o77777777777  # the most that eleven octal digits say
END = bytes(2 * tarfile.BLOCKSIZE)


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


def stream_folders(path: str, owner: Owner) -> Iterator[bytes]:
    """Give the tar members of the folders on a relative path, the outermost first."""
    pure = PurePosixPath(path)
    for folder in (*reversed(pure.parents[:-1]), pure) if pure.parts else ():
        yield _header(_info(str(folder), tarfile.DIRTYPE, FOLDER_MODE, owner))


def stream_files(files: Sequence[PutFile], prefix: str, owner: Owner) -> Iterator[bytes]:
    """Give the tar members of ``files`` below ``prefix``, with folders for their parents.

    Args:
        files: what to put.
        prefix: a relative folder path ending in a slash, or nothing.
        owner: who they will belong to.
    """
    folders: set[PurePosixPath] = set()
    for file in files:
        for folder in reversed(PurePosixPath(file.path).parents[:-1]):
            if folder not in folders:
                folders.add(folder)
                yield _header(_info(f"{prefix}{folder}", tarfile.DIRTYPE, FOLDER_MODE, owner))
        yield from _one(file, f"{prefix}{file.path}", owner)


def stream_tree(source: Path, prefix: str, owner: Owner) -> Iterator[bytes]:
    """Give the tar members of a host folder's content, or of one host file, in order of names.

    Modes, modification times and symbolic links are kept; hard links become files.

    Raises:
        UsageError: there is no such path, or it holds something that is neither file, folder
            nor symbolic link.
    """
    if not os.path.lexists(source):
        raise UsageError(f"there is nothing at {source}")
    if not source.is_dir() or source.is_symlink():
        yield from _host_entry(source, f"{prefix}{source.name}", owner)
    else:
        yield from _walk(source, prefix, owner)


def coalesce(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Join small chunks, since each costs a round of system calls on its way; end the tar."""
    pending = bytearray()
    for chunk in chunks:
        if len(chunk) >= SMALL and not pending:
            yield chunk
            continue
        pending += chunk
        if len(pending) >= SMALL:
            yield bytes(pending)
            pending.clear()
    yield bytes(pending) + END


def _walk(folder: str | Path, prefix: str, owner: Owner) -> Iterator[bytes]:
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        name = f"{prefix}{entry.name}"
        yield from _host_entry(entry.path, name, owner)
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, f"{name}/", owner)


def _one(file: PutFile, name: str, owner: Owner) -> Iterator[bytes]:
    if file.source is not None:
        if not file.source.is_file():
            raise UsageError(f"there is no file at {file.source}")
        yield from _host_file(file.source, name, owner, file.source.stat(), mode=file.mode)
        return
    kind = tarfile.REGTYPE if file.link_to is None else tarfile.SYMTYPE
    info = _info(name, kind, FILE_MODE if file.mode is None else file.mode, owner)
    if file.link_to is not None:
        info.linkname = file.link_to
        yield _header(info)
        return
    data = file.data or b""
    info.size = len(data)
    yield _header(info)
    yield from (data[start : start + CHUNK] for start in range(0, len(data), CHUNK))
    yield _padding(len(data))


def _host_entry(path: str | Path, name: str, owner: Owner) -> Iterator[bytes]:
    status = os.lstat(path)
    if stat.S_ISREG(status.st_mode):
        yield from _host_file(path, name, owner, status, mode=None)
        return
    if stat.S_ISDIR(status.st_mode):
        info = _info(name, tarfile.DIRTYPE, stat.S_IMODE(status.st_mode), owner, status.st_mtime)
    elif stat.S_ISLNK(status.st_mode):
        info = _info(name, tarfile.SYMTYPE, 0o777, owner, status.st_mtime)
        info.linkname = str(Path(path).readlink())
    else:
        raise UsageError(f"{path} is neither file, folder nor symbolic link: it cannot be put")
    yield _header(info)


def _host_file(
    path: str | Path, name: str, owner: Owner, status: os.stat_result, *, mode: int | None
) -> Iterator[bytes]:
    bits = stat.S_IMODE(status.st_mode) if mode is None else mode
    info = _info(name, tarfile.REGTYPE, bits, owner, status.st_mtime)
    info.size = status.st_size
    yield file_header(info)
    yield from _content(path, info.size)
    yield _padding(info.size)


def _content(path: str | Path, size: int) -> Iterator[bytes]:
    """Give exactly ``size`` bytes of a file; an OSError here would pass for the engine's."""
    left = size
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - a Path costs as much as a file
            while left:
                data = file.read(min(CHUNK, left))
                if not data:
                    raise UsageError(f"{path} became shorter while it was read")
                left -= len(data)
                yield data
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def _info(name: str, kind: bytes, mode: int, owner: Owner, mtime: float = 0.0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.mode = mode
    info.mtime = mtime
    info.uid, info.gid = owner.uid, owner.gid
    return info


def _header(info: tarfile.TarInfo) -> bytes:
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def file_header(info: tarfile.TarInfo) -> bytes:
    """Give what ``_header`` gives, in a fraction of the time where all fits its plain fields.

    Thousands of small files are mostly headers. Offsets: the "old GNU" header of tar(5).
    """
    name, mtime = info.name.encode("utf-8", "surrogateescape"), int(info.mtime)
    if len(name) > tarfile.LENGTH_NAME or not 0 <= mtime <= OCTAL_11 or info.size > OCTAL_11:
        return _header(info)
    block = bytearray(_plain_header(info.uid, info.gid))
    block[: len(name)] = name
    block[100:107] = b"%07o" % (info.mode & 0o7777)
    block[124:135] = b"%011o" % info.size
    block[136:147] = b"%011o" % mtime
    block[148:154] = b"%06o" % (sum(block) - sum(block[148:156]) + 8 * ord(" "))
    return bytes(block)


@cache
def _plain_header(uid: int, gid: int) -> bytes:
    return _header(_info("", tarfile.REGTYPE, 0, Owner(uid=uid, gid=gid)))


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)
