"""ELF files of a few hundred bytes, built field by field, for tests that read or change them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

BASE = 0x400000
MACHINES = {"x64": 62, "arm64": 183}


def elf(
    *,
    machine: str = "x64",
    interpreter: str | None = "/lib64/ld-linux-x86-64.so.2",
    needed: Sequence[str] = ("libc.so.6",),
    soname: str | None = None,
    runpath: str | None = None,
    versions: Sequence[str] = (),
    isa: int | None = None,
    debug: bool = True,
    gap: int = 64,
) -> bytes:
    """Return one.

    ``isa`` is what its note says of the CPU; ``gap`` zero bytes lie between its string table and
    the section after it.
    """
    strings = bytearray(b"\0")

    def text(value: str) -> int:
        at = len(strings)
        strings.extend(value.encode() + b"\0")
        return at

    entries = [(1, text(name)) for name in needed]
    entries += [(14, text(soname))] if soname else []
    entries += [(29, text(runpath))] if runpath else []
    names = [text(version) for version in versions]
    head = 64 + 4 * 56
    strtab = head
    interp = strtab + len(strings) + gap
    program = (interpreter or "").encode() + b"\0"
    verneed = interp + len(program)
    auxes = b"".join(
        struct.pack("<IHHII", 0, 0, 0, name, 16 if at + 1 < len(names) else 0)
        for at, name in enumerate(names)
    )
    needs = struct.pack("<HHIII", 1, len(names), 0, 16, 0) + auxes if names else b""
    dynamic = verneed + len(needs)
    entries += [(21, 0)] if debug else []
    entries += [(5, BASE + strtab), (10, len(strings))]
    entries += [(0x6FFFFFFE, BASE + verneed), (0x6FFFFFFF, 1)] if names else []
    table = b"".join(struct.pack("<qQ", tag, value) for tag, value in [*entries, (0, 0)])
    note = dynamic + len(table)
    properties = b"" if isa is None else _properties(isa)
    sections = note + len(properties)
    rows = [(strtab, len(strings)), (interp, len(program)), (dynamic, len(table))]
    end = sections + 64 * (len(rows) + 1)
    segments = [(1, 0, end), (2, dynamic, len(table)), (3, interp, len(program))]
    if interpreter is None:
        segments[2] = (0, 0, 0)
    segments.append((4, note, len(properties)) if properties else (0, 0, 0))
    return b"".join(
        [
            b"\x7fELF\x02\x01\x01" + bytes(9),
            struct.pack("<HHIQQQ", 3, MACHINES[machine], 1, 0, 64, sections),
            struct.pack("<IHHHHHH", 0, 64, 56, 4, 64, len(rows) + 1, 0),
            *(struct.pack("<IIQQQQQQ", k, 4, o, BASE + o, 0, n, n, 8) for k, o, n in segments),
            bytes(strings) + bytes(gap) + program + needs + table + properties,
            bytes(64),
            *(struct.pack("<IIQQQQIIQQ", 0, 1, 2, BASE + o, o, n, 0, 0, 1, 0) for o, n in rows),
        ]
    )


def _properties(isa: int) -> bytes:
    """Another note, then .note.gnu.property: what the file uses of the CPU, then what it needs."""
    other = struct.pack("<III", 4, 20, 3) + b"GNU\0" + bytes(20)
    rows = b"".join(struct.pack("<IIII", kind, 4, value, 0) for kind, value in (
        (0xC0008001, 8), (0xC0008002, isa),
    ))  # fmt: skip
    return other + struct.pack("<III", 4, len(rows), 5) + b"GNU\0" + rows
