"""A tar writer whose bytes depend on the tree alone (POSIX.1-1988 ustar, section 10.1.1).

Python's tarfile changed its headers between versions; a hash that is locked for years must not.
Owner 0:0, times 0, modes 755 or 644, entries sorted by name, folders before what they hold. Every
tar reads it: GNU, busybox, bsdtar. A name that ustar cannot split goes before its entry in one of
GNU's type L, which they all read too (busybox has no pax headers). The archive ends with two zero
blocks and no record padding.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import IO, Protocol

_BLOCK = 512
_CHUNK = 1 << 20
_MAX_SIZE = 8 << 30
_LONG = b"././@LongLink"


class Sink(Protocol):
    """Where the bytes go."""

    def write(self, data: bytes, /) -> object:
        """Take them."""


def write_folder(sink: Sink, name: str) -> None:
    """Write a folder entry; ``name`` without a slash at its end."""
    _write_header(sink, name + "/", b"5", mode=0o755)


def write_link(sink: Sink, name: str, target: str) -> None:
    """Write a symlink entry."""
    _write_header(sink, name, b"2", mode=0o777, target=target)


def write_file(sink: Sink, name: str, data: IO[bytes], size: int, *, executable: bool) -> None:
    """Write a file entry of exactly ``size`` bytes from ``data``."""
    _write_header(sink, name, b"0", mode=0o755 if executable else 0o644, size=size)
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


def _write_header(
    sink: Sink, name: str, kind: bytes, *, mode: int, size: int = 0, target: str = ""
) -> None:
    if size >= _MAX_SIZE:
        raise ValueError(f"{name} is too large for a ustar archive")
    if len(target.encode()) > 100:
        raise ValueError(f"the target of link {name} is too long for a ustar archive")
    raw = name.encode()
    split = _split(raw)
    if split is None:
        sink.write(_block(_LONG, b"", b"L", mode=0o644, size=len(raw) + 1))
        sink.write(raw + bytes(-len(raw) % _BLOCK or _BLOCK))
        split = b"", raw[:100]
    sink.write(_block(split[1], split[0], kind, mode=mode, size=size, target=target.encode()))


def _block(
    name: bytes, prefix: bytes, kind: bytes, *, mode: int, size: int, target: bytes = b""
) -> bytes:
    fields = [
        name.ljust(100, b"\0"),
        b"%07o\0" % mode,
        b"0000000\0",
        b"0000000\0",
        b"%011o\0" % size,
        b"00000000000\0",
        b" " * 8,
        kind,
        target.ljust(100, b"\0"),
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


def _split(name: bytes) -> tuple[bytes, bytes] | None:
    """Return prefix and name, or None when ustar has no room for them."""
    if len(name) <= 100:
        return b"", name
    for at, byte in enumerate(name):
        if byte == ord("/") and at <= 155 and 0 < len(name) - at - 1 <= 100:
            return name[:at], name[at + 1 :]
    return None
