"""Teaching a program to find the libraries of its own bundle: a RUNPATH, written in place.

For programs that must be started directly (Bun's older executables read their payload from the file
that the kernel started, so a loader's option is no way in) and whose libraries the image lacks. No
byte moves: the entry for debuggers (DT_DEBUG) in the dynamic table becomes DT_RUNPATH, and its text
goes into alignment bytes of the segment that holds the string table, which now ends there.
"""

from __future__ import annotations

from itertools import pairwise
from typing import BinaryIO

from sandbox.runtimes.elf import (
    DT_DEBUG,
    DT_RPATH,
    DT_RUNPATH,
    DT_STRSZ,
    DT_STRTAB,
    DYNAMIC,
    PT_DYNAMIC,
    PT_LOAD,
    Extent,
    read_tags,
    sections_of,
    segments_of,
)

_SHF_ALLOC, _SHT_NOBITS = 2, 8


def set_runpath(program: BinaryIO, runpath: str) -> None:
    """Give the ELF file ``program`` (open for reading and writing) a RUNPATH.

    Raises:
        ValueError: it is no such program, has a search path already, or has no room for one.
    """
    _, segments = segments_of(program)
    dynamic = next((e for kind, e in segments if kind == PT_DYNAMIC), None)
    if dynamic is None:
        raise ValueError("it is linked statically")
    tags = {tag: (at, value) for tag, at, value in read_tags(program, dynamic)}
    if {DT_RPATH, DT_RUNPATH} & tags.keys():
        raise ValueError("it has a search path already")
    if not {DT_DEBUG, DT_STRTAB, DT_STRSZ} <= tags.keys():
        raise ValueError("its dynamic table has no entry to spare")
    strings = tags[DT_STRTAB][1]
    home = next(e for kind, e in segments if kind == PT_LOAD and e.holds(strings))
    text = runpath.encode() + b"\0"
    place = _room(program, home, strings, _occupied(sections_of(program)), len(text))
    program.seek(place)
    program.write(text)
    at = home.address + place - home.offset - strings
    program.seek(tags[DT_DEBUG][0])
    program.write(DYNAMIC.pack(DT_RUNPATH, at))
    program.seek(tags[DT_STRSZ][0])
    program.write(DYNAMIC.pack(DT_STRSZ, at + len(text)))


def _occupied(sections: list[tuple[int, ...]]) -> list[Extent]:
    found = []
    for _, kind, flags, address, offset, size, *_ in sections:
        if flags & _SHF_ALLOC and kind != _SHT_NOBITS and size:
            found.append(Extent(offset, address, size))
    return sorted(found, key=lambda extent: extent.offset)


def _room(program: BinaryIO, home: Extent, strings: int, sections: list[Extent], size: int) -> int:
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
