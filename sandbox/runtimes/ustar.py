"""A tar writer whose bytes depend on the tree alone (POSIX.1-1988 ustar, section 10.1.1).

Python's tarfile changed its headers between versions; a hash that is locked for years must not.
Owner 0:0, times 0, modes 755 or 644, entries sorted by name, folders before what they hold. Every
tar reads it: GNU, busybox, bsdtar. The archive ends with two zero blocks and no record padding.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import IO, Protocol

_BLOCK = 512
_CHUNK = 1 << 20
_MAX_SIZE = 8 << 30


class Sink(Protocol):
    """Where the bytes go."""

    def write(self, data: bytes, /) -> object:
        """Take them."""


def write_folder(sink: Sink, name: str) -> None:
    """Write a folder entry; ``name`` without a slash at its end."""
    sink.write(_header(name + "/", b"5", mode=0o755))


def write_link(sink: Sink, name: str, target: str) -> None:
    """Write a symlink entry."""
    sink.write(_header(name, b"2", mode=0o777, target=target))


def write_file(sink: Sink, name: str, data: IO[bytes], size: int, *, executable: bool) -> None:
    """Write a file entry of exactly ``size`` bytes from ``data``."""
    sink.write(_header(name, b"0", mode=0o755 if executable else 0o644, size=size))
    left = size
    while left:
        block = data.read(min(left, _CHUNK))
        if not block:
            raise ValueError(f"{name} ended {left} bytes early")
        sink.write(block)
        left -= len(block)
    sink.write(bytes(-size % _BLOCK))


def write_end(sink: Sink) -> None:
    """Write the end of the archive."""
    sink.write(bytes(2 * _BLOCK))


def folders_of(names: Iterable[str]) -> set[str]:
    """Return every folder that ``names`` lie in."""
    return {str(p) for name in names for p in Path(name).parents if str(p) != "."}


def _header(name: str, kind: bytes, *, mode: int, size: int = 0, target: str = "") -> bytes:
    if size >= _MAX_SIZE:
        raise ValueError(f"{name} is too large for a ustar archive")
    prefix, short = _split(name.encode())
    linkname = target.encode()
    if len(linkname) > 100:
        raise ValueError(f"the target of link {name} is too long for a ustar archive")
    fields = [
        short.ljust(100, b"\0"),
        b"%07o\0" % mode,
        b"0000000\0",
        b"0000000\0",
        b"%011o\0" % size,
        b"00000000000\0",
        b" " * 8,
        kind,
        linkname.ljust(100, b"\0"),
        b"ustar\x0000",
        bytes(32),
        bytes(32),
        b"0000000\0",
        b"0000000\0",
        prefix.ljust(155, b"\0"),
        bytes(12),
    ]
    block = b"".join(fields)
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def _split(name: bytes) -> tuple[bytes, bytes]:
    if len(name) <= 100:
        return b"", name
    for at, byte in enumerate(name):
        if byte == ord("/") and at <= 155 and 0 < len(name) - at - 1 <= 100:
            return name[:at], name[at + 1 :]
    raise ValueError(f"{name.decode()} is too long for a ustar archive")
