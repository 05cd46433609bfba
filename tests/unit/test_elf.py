"""ELF files: what they need, and a search path written into one."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.runtimes.elf import ElfFile, read_elf
from sandbox.runtimes.runpath import set_runpath
from tests.unit.elfs import elf


def read(data: bytes) -> ElfFile:
    return read_elf(io.BytesIO(data))


def test_a_program_says_what_it_needs() -> None:
    data = elf(
        needed=["libstdc++.so.6", "libc.so.6"], runpath="$ORIGIN/../lib:/opt/lib",
        versions=["GLIBC_2.28", "GLIBCXX_3.4.21", "GLIBC_PRIVATE", "OTHER_1"],
    )  # fmt: skip
    assert read(data) == ElfFile(
        machine="x64",
        interpreter="/lib64/ld-linux-x86-64.so.2",
        needed=("libstdc++.so.6", "libc.so.6"),
        runpath=("$ORIGIN/../lib", "/opt/lib"),
        versions=frozenset({("GLIBC", "2.28"), ("GLIBCXX", "3.4.21")}),
    )


def test_a_library_of_another_machine() -> None:
    found = read(elf(machine="arm64", interpreter=None, soname="libx.so.1", needed=[]))
    assert (found.machine, found.interpreter, found.soname) == ("arm64", None, "libx.so.1")


@pytest.mark.parametrize(
    ("isa", "cpu"),
    [(None, None), (1, None), (3, "x86-64-v2"), (7, "x86-64-v3"), (15, "x86-64-v4")],
)
@pytest.mark.parametrize("interpreter", [None, "/lib64/ld-linux-x86-64.so.2"])
def test_the_cpu_is_read_from_the_linkers_note(
    isa: int | None, cpu: str | None, interpreter: str | None
) -> None:
    assert read(elf(isa=isa, interpreter=interpreter)).cpu == cpu


def test_an_arm_file_says_nothing_of_x64_cpus() -> None:
    assert read(elf(machine="arm64", isa=7)).cpu is None


def test_the_interpreter_of_this_python_is_read_as_its_loader_shows_it() -> None:
    with Path(sys.executable).resolve().open("rb") as program:
        found = read_elf(program)
    assert found.interpreter is not None
    assert Path(found.interpreter).exists()


GOOD = elf(versions=["GLIBC_2.28"], isa=7)


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_a_damaged_file_is_read_or_refused(at: int, byte: int) -> None:
    data = bytearray(GOOD)
    data[at] = byte
    try:
        read(bytes(data))
    except ValueError:
        return


@given(st.integers(0, len(GOOD) - 1))
def test_a_cut_file_is_read_or_refused(size: int) -> None:
    try:
        read(GOOD[:size])
    except ValueError:
        return


def test_a_runpath_is_written_in_place() -> None:
    data = elf()
    program = io.BytesIO(data)
    set_runpath(program, "$ORIGIN/../lib")
    changed = program.getvalue()
    assert len(changed) == len(data)
    assert read(changed).runpath == ("$ORIGIN/../lib",)
    assert read(changed).needed == read(data).needed
    assert sum(one != two for one, two in zip(data, changed, strict=True)) <= 15 + 16 + 8


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(elf(runpath="/x"), "already", id="has-one"),
        pytest.param(elf(debug=False), "no entry to spare", id="no-entry"),
        pytest.param(elf(gap=4), "bytes to spare", id="no-room"),
        pytest.param(b"#!/bin/sh\n" + bytes(100), "no ELF file", id="script"),
    ],
)
def test_where_none_fits_none_is_written(data: bytes, said: str) -> None:
    program = io.BytesIO(data)
    with pytest.raises(ValueError, match=said):
        set_runpath(program, "$ORIGIN/../lib")
    assert program.getvalue() == data


@pytest.mark.skipif(not shutil.which("readelf"), reason="no readelf to compare with")
def test_readelf_sees_the_same(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(elf(versions=["GLIBC_2.28"]))
    with path.open("r+b") as program:
        set_runpath(program, "$ORIGIN/../lib")
    said = subprocess.run(
        ["readelf", "-lWd", path], capture_output=True, text=True, check=True
    ).stdout
    assert "[$ORIGIN/../lib]" in said
    assert "[libc.so.6]" in said
