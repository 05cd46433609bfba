"""Members of npm tarballs, wheels and Debian packages, with names that cannot leave their root.

They are read as a stream. Refused: absolute names, "..", empty and control-character parts, links
that point outside, files below a link, hard links, devices, and one name twice. Reading starts only
after the archive's hash was found right; this is the second wall.
"""

from __future__ import annotations

import gzip
import lzma
import posixpath
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sandbox.errors import IntegrityError
from sandbox.runtimes.deb import NotDebianError, data_tar, is_deb

_Stream = IO[bytes] | gzip.GzipFile | lzma.LZMAFile


@dataclass(frozen=True)
class Member:
    """One file or symlink: ``name`` is checked; exactly one of ``data`` and ``target`` is set.

    ``data`` must be read before the next member is asked for.
    """

    name: str
    executable: bool
    data: IO[bytes] | None = None
    target: str | None = None


def safe_name(name: str) -> str:
    """Return an archive name as a plain relative path; "." parts, which some packers write, go.

    Raises:
        ValueError: it is absolute, climbs, or holds control characters or backslashes.
    """
    parts = [part for part in name.rstrip("/").split("/") if part != "."]
    bad = not parts or any(part in {"", ".."} for part in parts)
    if bad or "\\" in name or any(ord(c) < 32 or ord(c) == 127 for c in name):
        raise ValueError(f"unsafe name {name!r}")
    return "/".join(parts)


def safe_target(name: str, target: str) -> str:
    """Return the target of a symlink at ``name``; ``ValueError`` when it points out of the root."""
    reached = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    if not target or target.startswith("/") or reached.split("/")[0] == ".." or "\0" in target:
        raise ValueError(f"link {name!r} leads outside, to {target!r}")
    return target


class Names:
    """Remembers the names of one tree and refuses those that cannot stand beside the others.

    Args:
        repeats: take the name of a file once more.
    """

    def __init__(self, *, repeats: bool = False) -> None:
        self._repeats = repeats
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def add(self, name: str) -> None:
        """Take a file or link; ``ValueError`` if it is there, or lies below or above another."""
        parents = {name[:at] for at, c in enumerate(name) if c == "/"}
        if name in self._files and self._repeats:
            return
        if name in self._files or name in self._folders:
            raise ValueError(f"{name!r} appears twice")
        if below := sorted(parents & self._files):
            raise ValueError(f"{name!r} lies below {below[0]!r}, which is no folder")
        self._files.add(name)
        self._folders |= parents


@contextmanager
def members(
    path: Path, *, what: str, within: str | None = None, repeats: bool = False
) -> Iterator[Iterator[Member]]:
    """Give the members of a .tgz, a wheel or a .deb in archive order.

    Args:
        path: the archive.
        what: what messages call it.
        within: the member, a compressed tar, whose members are meant instead.
        repeats: give a file that is there twice twice, as some npm packages have it.

    Raises:
        IntegrityError: it is no such archive, or a member is refused; names both.
    """
    try:
        with _opened(path, Names(repeats=repeats)) as outer:
            if within is None:
                yield outer
                return
            with _unpacked(outer, within) as plain, _tar(plain) as tarball:
                yield _tar_members(tarball, plain, Names())
    except _DAMAGE as error:
        raise IntegrityError(
            f"{what}: the archive cannot be used: {error}",
            cure="its hash is the pinned one, so the pin itself is bad: pin another version",
        ) from error


@contextmanager
def _opened(path: Path, names: Names) -> Iterator[Iterator[Member]]:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as wheel:
            yield _zip_members(wheel, names)
    elif is_deb(path):
        with data_tar(path) as plain, _tar(plain) as tarball:
            yield _tar_members(tarball, plain, names)
    else:
        with gzip.open(path) as packed, _tar(packed) as tarball:
            yield _tar_members(tarball, packed, names)


def _tar(plain: _Stream) -> tarfile.TarFile:
    # never tarfile's own "r|gz": that one takes a cut or damaged stream for its end
    return tarfile.open(fileobj=plain, mode="r|")


@contextmanager
def _unpacked(outer: Iterator[Member], within: str) -> Iterator[_Stream]:
    inner = next((member.data for member in outer if member.name == within), None)
    if inner is None:
        raise _BadMemberError(f"it holds no file {within!r}")
    with lzma.LZMAFile(inner) if within.endswith(".xz") else gzip.GzipFile(fileobj=inner) as plain:
        yield plain


class _BadMemberError(Exception):
    """A member that is refused."""


_DAMAGE = (
    _BadMemberError,
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    NotDebianError,
    EOFError,
)


def _tar_members(tarball: tarfile.TarFile, plain: _Stream, names: Names) -> Iterator[Member]:
    for info in tarball:
        if info.isdir():
            continue
        name = _admitted(names, info.name)
        executable = bool(info.mode & 0o111)
        if info.issym():
            yield Member(name, executable, target=_target(name, info.linkname))
        elif info.isreg():
            yield Member(name, executable, data=tarball.extractfile(info))
        else:
            raise _BadMemberError(f"{name!r} is neither file, folder nor symlink")
    while plain.read(1 << 20):  # to the end, where the packer's sum is checked
        pass


def _zip_members(wheel: zipfile.ZipFile, names: Names) -> Iterator[Member]:
    for info in wheel.infolist():
        if info.is_dir():
            continue
        name = _admitted(names, info.filename)
        mode = info.external_attr >> 16
        if stat.S_IFMT(mode) not in {0, stat.S_IFREG}:
            raise _BadMemberError(f"{name!r} is neither file nor folder")
        with wheel.open(info) as data:
            yield Member(name, bool(mode & 0o111), data=data)


def _admitted(names: Names, raw: str) -> str:
    try:
        name = safe_name(raw)
        names.add(name)
    except ValueError as error:
        raise _BadMemberError(str(error)) from error
    return name


def _target(name: str, target: str) -> str:
    try:
        return safe_target(name, target)
    except ValueError as error:
        raise _BadMemberError(str(error)) from error
