"""Read the entries of a root file system from a tar: mmdebstrap's file, a layer of ours."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO, BinaryIO, cast

from sandbox.engine.imagebuild.tree import Entry, Kind
from sandbox.errors import IntegrityError

XATTR = "SCHILY.xattr."  # the pax record of an extended attribute (star, GNU tar, Go archive/tar)
_KINDS = {
    tarfile.DIRTYPE: Kind.FOLDER,
    tarfile.REGTYPE: Kind.FILE,
    tarfile.AREGTYPE: Kind.FILE,
    tarfile.SYMTYPE: Kind.SYMLINK,
    tarfile.LNKTYPE: Kind.HARDLINK,
}


@contextmanager
def tar_entries(stream: BinaryIO) -> Iterator[tuple[Entry, ...]]:
    """Give the entries of the tar that begins where the seekable ``stream`` is.

    Their contents can be read while inside. Device nodes and pipes are left out.

    Raises:
        IntegrityError: it is no readable tar file.
    """
    try:
        with tarfile.open(fileobj=stream, mode="r:") as archive:
            members = archive.getmembers()
            yield tuple(
                _entry(archive, member)
                for member in members
                if member.type in _KINDS and member.name not in {".", ""}
            )
    except tarfile.TarError as error:
        raise IntegrityError(f"cannot read the root file system {stream.name}: {error}") from error


def _entry(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Entry:
    kind = _KINDS[member.type]
    target = _relative(member.linkname) if kind is Kind.HARDLINK else member.linkname
    return Entry(
        path=_relative(member.name),
        kind=kind,
        mode=member.mode,
        uid=member.uid,
        gid=member.gid,
        mtime=int(member.mtime),
        size=member.size if kind is Kind.FILE else 0,
        target=target if kind in {Kind.HARDLINK, Kind.SYMLINK} else "",
        xattrs={
            name.removeprefix(XATTR): value.encode(errors="surrogateescape")
            for name, value in member.pax_headers.items()
            if name.startswith(XATTR)
        },
        content=partial(_opened, archive, member) if kind is Kind.FILE else None,
    )


def _opened(archive: tarfile.TarFile, member: tarfile.TarInfo) -> BinaryIO:
    return cast("BinaryIO", cast("IO[bytes]", archive.extractfile(member)))


def _relative(name: str) -> str:
    return name.removeprefix("./").rstrip("/")
