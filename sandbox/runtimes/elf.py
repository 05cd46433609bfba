"""What an ELF file needs to start, read from its own headers: loader, libraries, symbol versions.

Our own small reader, since the few fields that count fill one page and a bundle holds hundreds of
files (docs/decisions/0008-own-elf-reader.md). Format: System V ABI chapters 4 and 5, and the GNU
symbol version sections of the LSB core specification, chapter 11; program properties: the Linux
extensions to the gABI, 2.1, and the x86-64 psABI's own. 64 bits, little endian.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from sandbox.runtimes.words import Cpu

MAGIC = b"\x7fELF"
MACHINES = {62: "x64", 183: "arm64"}

HEADER = struct.Struct("<4sBBB9xHHIQQQIHHHHHH")
SEGMENT = struct.Struct("<IIQQQQQQ")
SECTION = struct.Struct("<IIQQQQIIQQ")
DYNAMIC = struct.Struct("<qQ")
PT_LOAD, PT_DYNAMIC, PT_INTERP, _PT_NOTE = 1, 2, 3, 4
DT_NULL, DT_NEEDED, DT_STRTAB, DT_STRSZ, DT_SONAME, DT_RPATH = 0, 1, 5, 10, 14, 15
DT_DEBUG, DT_RUNPATH = 21, 29
_DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
_VERNEED, _VERNAUX = struct.Struct("<HHIII"), struct.Struct("<IHHII")
_NOTE, _PROPERTY = struct.Struct("<III"), struct.Struct("<II")
_PROPERTIES = (b"GNU\0", 5)  # NT_GNU_PROPERTY_TYPE_0
_X86_ISA_1_NEEDED = 0xC0008002
_CPUS: dict[int, Cpu] = {8: "x86-64-v4", 4: "x86-64-v3", 2: "x86-64-v2"}  # 1: every x64 CPU
_LIMIT = 1 << 16
_VERSION = re.compile(r"^(GLIBC|GLIBCXX|CXXABI|GCC)_([0-9]+(?:\.[0-9]+)*)$")


@dataclass(frozen=True)
class Extent:
    """A piece of the file and where it is in memory."""

    offset: int
    address: int
    size: int

    def holds(self, address: int) -> bool:
        """Whether that address lies in it."""
        return self.address <= address < self.address + self.size


@dataclass(frozen=True)
class ElfFile:
    """Facts of one ELF file.

    Attributes:
        machine: "x64", "arm64", or the number of another machine.
        interpreter: its dynamic loader; None for libraries and static programs.
        needed: the libraries it names, in order.
        soname: what others call it; None when it has no such name.
        runpath: its own search path, each part as written ("$ORIGIN/../lib").
        versions: the symbol versions it needs, as ("GLIBC", "2.28").
        cpu: what its linker noted that the CPU must be; None: every CPU will do, or no note.
    """

    machine: str
    interpreter: str | None = None
    needed: tuple[str, ...] = ()
    soname: str | None = None
    runpath: tuple[str, ...] = ()
    versions: frozenset[tuple[str, str]] = frozenset()
    cpu: Cpu | None = None


def is_elf(head: bytes) -> bool:
    """Whether a file that begins so is an ELF file."""
    return head.startswith(MAGIC)


def read_elf(file: BinaryIO) -> ElfFile:
    """Read an ELF file.

    Raises:
        ValueError: it is not one of 64 bits, little endian, or its tables lead nowhere.
    """
    try:
        return _read(file)
    except (struct.error, UnicodeDecodeError, OverflowError) as error:
        raise ValueError(f"a damaged ELF file: {error}") from error


def segments_of(file: BinaryIO) -> tuple[str, list[tuple[int, Extent]]]:
    """Return the machine, and each segment's kind and extent."""
    head = _header(file)
    segments = []
    for kind, _, offset, address, _, size, _, _ in _table(file, head[8], SEGMENT, head[13]):
        segments.append((kind, Extent(offset, address, size)))
    return MACHINES.get(head[5], str(head[5])), segments


def sections_of(file: BinaryIO) -> list[tuple[int, ...]]:
    """Return the raw section headers; none when they were stripped."""
    head = _header(file)
    return _table(file, head[9], SECTION, head[15])


def _header(file: BinaryIO) -> tuple[Any, ...]:
    """Fields: see Elf64_Ehdr; 8 and 9 are the tables' offsets, 13 and 15 their lengths."""
    file.seek(0)
    head = HEADER.unpack(file.read(HEADER.size))
    if head[0] != MAGIC or head[1:3] != (2, 1):
        raise ValueError("no ELF file of 64 bits, little endian")
    return head


def _read(file: BinaryIO) -> ElfFile:
    machine, segments = segments_of(file)
    loads = [extent for kind, extent in segments if kind == PT_LOAD]
    interpreter = next((e for kind, e in segments if kind == PT_INTERP), None)
    dynamic = next((e for kind, e in segments if kind == PT_DYNAMIC), None)
    cpu = _cpu(file, [e for kind, e in segments if kind == _PT_NOTE]) if machine == "x64" else None
    if dynamic is None:
        return ElfFile(machine, cpu=cpu)
    tags = list(read_tags(file, dynamic))
    one = {tag: value for tag, _, value in tags}
    if DT_STRTAB not in one:
        return ElfFile(machine, cpu=cpu)
    strings = _place(loads, one[DT_STRTAB])
    paths = [_text(file, strings + one[tag]) for tag in (DT_RPATH, DT_RUNPATH) if tag in one]
    return ElfFile(
        machine=machine,
        interpreter=_text(file, interpreter.offset) if interpreter else None,
        needed=tuple(_text(file, strings + v) for tag, _, v in tags if tag == DT_NEEDED),
        soname=_text(file, strings + one[DT_SONAME]) if DT_SONAME in one else None,
        runpath=tuple(part for path in paths for part in path.split(":") if part),
        versions=frozenset(_versions(file, loads, one, strings)),
        cpu=cpu,
    )


def read_tags(file: BinaryIO, dynamic: Extent) -> Iterator[tuple[int, int, int]]:
    """Give the dynamic table: tag, where its entry is in the file, value."""
    for at in range(dynamic.offset, dynamic.offset + dynamic.size, DYNAMIC.size):
        file.seek(at)
        tag, value = DYNAMIC.unpack(file.read(DYNAMIC.size))
        if tag == DT_NULL:
            return
        yield tag, at, value


def _versions(
    file: BinaryIO, loads: list[Extent], tags: dict[int, int], strings: int
) -> Iterator[tuple[str, str]]:
    if _DT_VERNEED not in tags:
        return
    at = _place(loads, tags[_DT_VERNEED])
    for _ in range(min(tags.get(_DT_VERNEEDNUM, 0), _LIMIT)):
        file.seek(at)
        _, count, _, first, following = _VERNEED.unpack(file.read(_VERNEED.size))
        inner = at + first
        for _ in range(count):
            file.seek(inner)
            _, _, _, name, step = _VERNAUX.unpack(file.read(_VERNAUX.size))
            if found := _VERSION.match(_text(file, strings + name)):
                yield found[1], found[2]
            inner += step
        at += following


def _cpu(file: BinaryIO, notes: list[Extent]) -> Cpu | None:
    bits = 0
    for extent in notes:
        file.seek(extent.offset)
        data = file.read(min(extent.size, _LIMIT))
        at = 0
        while at + _NOTE.size < len(data):
            name, size, kind = _NOTE.unpack_from(data, at)
            at += _NOTE.size
            body = at + name + -name % 4
            if (data[at : at + name], kind) == _PROPERTIES:
                bits |= _property(data[body : body + size], _X86_ISA_1_NEEDED)
            at = body + size + -size % 4
    return next((cpu for bit, cpu in _CPUS.items() if bits & bit), None)


def _property(data: bytes, wanted: int) -> int:
    """Return the bits of one program property; 0 without it."""
    at = 0
    while at + _PROPERTY.size < len(data):
        kind, size = _PROPERTY.unpack_from(data, at)
        at += _PROPERTY.size
        if kind == wanted:
            return int.from_bytes(data[at : at + size], "little")
        at += size + -size % 8
    return 0


def _table(file: BinaryIO, offset: int, row: struct.Struct, count: int) -> list[tuple[int, ...]]:
    file.seek(offset)
    return [row.unpack(file.read(row.size)) for _ in range(count)]


def _place(loads: list[Extent], address: int) -> int:
    """Return where in the file a memory address is."""
    for extent in loads:
        if extent.holds(address):
            return address - extent.address + extent.offset
    raise ValueError(f"a damaged ELF file: nothing is at {address:#x}")


def _text(file: BinaryIO, offset: int) -> str:
    file.seek(offset)
    found = bytearray()
    while b"\0" not in found:
        block = file.read(256)
        if not block or len(found) > _LIMIT:
            raise ValueError("a damaged ELF file: a text has no end")
        found += block
    return found[: found.index(0)].decode()
