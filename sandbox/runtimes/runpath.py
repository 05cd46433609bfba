"""Teaching a program to find the libraries of its own bundle: a RUNPATH, written in place.

For programs that must be started directly (Bun's older executables read their payload from the file
that the kernel started, so a loader's option is no way in) and whose libraries the image lacks. No
byte moves: the entry for debuggers (DT_DEBUG) in the dynamic table becomes DT_RUNPATH, and its text
goes into alignment bytes of the segment that holds the string table. Format: System V ABI chapter
5, 64 bits, little endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO

_HEADER = struct.Struct("<4sBBB9xHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_DYNAMIC = struct.Struct("<qQ")
_PT_LOAD, _PT_DYNAMIC = 1, 2
_SHF_ALLOC, _SHT_NOBITS = 2, 8
_DT_NULL, _DT_STRTAB, _DT_RPATH, _DT_DEBUG, _DT_RUNPATH = 0, 5, 15, 21, 29


@dataclass(frozen=True)
class _Extent:
    """A piece of the file and where it is in memory."""

    offset: int
    address: int
    size: int


def set_runpath(program: BinaryIO, runpath: str) -> None:
    """Give the ELF file ``program`` (open for reading and writing) a RUNPATH.

    Raises:
        ValueError: it is no such program, has a search path already, or has no room for one.
    """
    segments, sections = _layout(program)
    dynamic = next((e for kind, e in segments if kind == _PT_DYNAMIC), None)
    if dynamic is None:
        raise ValueError("it is linked statically")
    tags = _tags(program, dynamic)
    if {_DT_RPATH, _DT_RUNPATH} & tags.keys():
        raise ValueError("it has a search path already")
    if not {_DT_DEBUG, _DT_STRTAB} <= tags.keys():
        raise ValueError("its dynamic table has no entry to spare")
    strings = tags[_DT_STRTAB][1]
    home = next(e for kind, e in segments if kind == _PT_LOAD and _holds(e, strings))
    text = runpath.encode() + b"\0"
    place = _room(program, home, strings, sections, len(text))
    program.seek(place)
    program.write(text)
    program.seek(tags[_DT_DEBUG][0])
    program.write(_DYNAMIC.pack(_DT_RUNPATH, home.address + place - home.offset - strings))


def _layout(program: BinaryIO) -> tuple[list[tuple[int, _Extent]], list[_Extent]]:
    program.seek(0)
    head = _HEADER.unpack(program.read(_HEADER.size))
    if head[0] != b"\x7fELF" or head[1:3] != (2, 1):
        raise ValueError("it is no ELF file of 64 bits, little endian")
    segments = []
    for fields in _table(program, head[8], _SEGMENT, head[12]):
        kind, _, offset, address, _, size, _, _ = fields
        segments.append((kind, _Extent(offset, address, size)))
    sections = []
    for fields in _table(program, head[9], _SECTION, head[14]):
        _, kind, flags, address, offset, size, *_ = fields
        if flags & _SHF_ALLOC and kind != _SHT_NOBITS and size:
            sections.append(_Extent(offset, address, size))
    return segments, sorted(sections, key=lambda extent: extent.offset)


def _table(program: BinaryIO, offset: int, row: struct.Struct, count: int) -> list[tuple[int, ...]]:
    program.seek(offset)
    return [row.unpack(program.read(row.size)) for _ in range(count)]


def _tags(program: BinaryIO, dynamic: _Extent) -> dict[int, tuple[int, int]]:
    """Return tag to (offset in the file, value)."""
    found = {}
    for at in range(dynamic.offset, dynamic.offset + dynamic.size, _DYNAMIC.size):
        program.seek(at)
        tag, value = _DYNAMIC.unpack(program.read(_DYNAMIC.size))
        if tag == _DT_NULL:
            break
        found[tag] = (at, value)
    return found


def _holds(extent: _Extent, address: int) -> bool:
    return extent.address <= address < extent.address + extent.size


def _room(
    program: BinaryIO, home: _Extent, strings: int, sections: list[_Extent], size: int
) -> int:
    """Return the offset of ``size`` zero bytes between two sections, after the string table."""
    for one, two in pairwise(sections):
        start = one.offset + one.size
        inside = home.offset <= start and two.offset <= home.offset + home.size
        after = start - home.offset + home.address > strings
        if inside and after and two.offset - start >= size:
            program.seek(start)
            if not any(program.read(size)):
                return start
    raise ValueError(f"it has no {size} bytes to spare beside its string table")
