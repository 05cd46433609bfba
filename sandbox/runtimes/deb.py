"""The files of a Debian package: an ar archive with a compressed tar inside.

The format is deb(5), version 2.0: ``debian-binary``, ``control.tar*`` and ``data.tar*``, each
behind a header of 60 bytes (name 16, date 12, owner 6, group 6, mode 8, size 10, two end bytes) and
padded to an even length.
"""

from __future__ import annotations

import gzip
import io
import lzma
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

_MAGIC = b"!<arch>\n"
_HEADER, _END = 60, b"`\n"


class NotDebianError(Exception):
    """A file that is no Debian package, or one packed in a way that is not read here."""


def is_deb(path: Path) -> bool:
    """Whether the file begins as an ar archive does."""
    with path.open("rb") as stream:
        return stream.read(len(_MAGIC)) == _MAGIC


@contextmanager
def data_tar(path: Path) -> Iterator[IO[bytes]]:
    """Give the plain tar of a package's files as a stream.

    Raises:
        NotDebianError: it is no Debian package, is cut, or is compressed in a way we cannot read.
    """
    with path.open("rb") as stream:
        name, size = _find_data(stream)
        part = io.BufferedReader(_Part(stream, size))
        if name == "data.tar.xz":
            with io.BufferedReader(lzma.LZMAFile(part)) as plain:
                yield plain
        elif name == "data.tar.gz":
            with io.BufferedReader(gzip.GzipFile(fileobj=part)) as plain:  # checks its sum
                yield plain
        elif name == "data.tar":
            yield part
        else:
            raise NotDebianError(f"its files are in {name!r}: neither xz nor gzip")


def _find_data(stream: IO[bytes]) -> tuple[str, int]:
    if stream.read(len(_MAGIC)) != _MAGIC:
        raise NotDebianError("it is no ar archive")
    while header := stream.read(_HEADER):
        if len(header) != _HEADER or header[-2:] != _END or not header[48:58].strip().isdigit():
            raise NotDebianError("it is cut, or no Debian package")
        name, size = header[:16].decode("ascii", "replace").rstrip(" /"), int(header[48:58])
        if name.startswith("data.tar"):
            return name, size
        stream.seek(size + size % 2, io.SEEK_CUR)
    raise NotDebianError("it has no data.tar")


class _Part(io.RawIOBase):
    """The next ``size`` bytes of a stream; it ends there."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        super().__init__()
        self._stream, self._left = stream, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer)
        wanted = min(len(view), self._left)
        block = self._stream.read(wanted)
        if len(block) < wanted:
            raise EOFError("the package is cut")
        view[:wanted] = block
        self._left -= wanted
        return wanted
