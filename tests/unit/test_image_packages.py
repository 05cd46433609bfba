"""Package lists: dpkg's and apk's databases, the libc check, differences in words."""

import io
from functools import partial

import pytest

from sandbox.engine.imagebuild.definition import image_definitions
from sandbox.engine.imagebuild.packages import (
    Package,
    check_libc,
    difference,
    packages_sha256,
    read_packages,
)
from sandbox.engine.imagebuild.tree import Entry, Kind, read_small
from sandbox.errors import IntegrityError

DPKG = """\
Package: zlib1g
Status: install ok installed
Architecture: amd64
Version: 1:1.2.13.dfsg-1
Description: compression
 Version: not a field

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u13
"""
APK = "C:Q1\nP:musl\nV:1.2.5-r21\nA:x86_64\nF:lib\nR:ld.so\n\nC:Q2\nP:apk\nV:3-r0\nA:x86_64\n\n"


def entry(path: str, data: bytes, *, size: int | None = None) -> Entry:
    return Entry(
        path=path,
        kind=Kind.FILE,
        mode=0o644,
        size=len(data) if size is None else size,
        content=partial(io.BytesIO, data),
    )


def package(name: str, version: str) -> Package:
    return Package(name=name, version=version, arch="amd64")


def test_dpkg() -> None:
    found = read_packages([entry("var/lib/dpkg/status", DPKG.encode())])
    assert [str(item) for item in found] == [
        "libc6 2.36-9+deb12u13 amd64",
        "zlib1g 1:1.2.13.dfsg-1 amd64",
    ]


@pytest.mark.parametrize("path", ["lib/apk/db/installed", "usr/lib/apk/db/installed"])
def test_apk(path: str) -> None:
    found = read_packages([entry(path, APK.encode())])
    assert [str(item) for item in found] == ["apk 3-r0 x86_64", "musl 1.2.5-r21 x86_64"]


def test_no_package_manager() -> None:
    assert read_packages([entry("bin/busybox", b"x")]) == ()


def test_the_hash_is_of_the_list() -> None:
    one, other = package("a", "1"), package("a", "2")
    assert packages_sha256([one]) == packages_sha256([one])
    assert packages_sha256([one]) != packages_sha256([other])


@pytest.mark.parametrize(
    ("image", "name", "version", "fits"),
    [
        ("debian-12", "libc6", "2.36-9+deb12u13", True),
        ("debian-12", "libc6", "2.41-12", False),
        ("debian-12", "libc6", "2.360-1", False),
        ("debian-12", "musl", "2.36-1", False),
        ("alpine-3.23", "musl", "1.2.5-r21", True),
        ("alpine-3.23", "musl", "1.2.50-r0", False),
    ],
)
def test_the_libc_is_what_is_promised(image: str, name: str, version: str, fits: bool) -> None:
    definition = image_definitions()[image]
    if fits:
        check_libc(definition, [package("a", "1"), package(name, version)])
        return
    with pytest.raises(IntegrityError, match=definition.libc_version):
        check_libc(definition, [package(name, version)])


def test_without_a_list_nothing_is_compared() -> None:
    check_libc(image_definitions()["debian-12"], [])


def test_a_difference_names_the_packages() -> None:
    before = [package("a", "1"), package("b", "1"), package("c", "1")]
    now = [package("a", "1"), package("b", "2"), package("d", "1")]
    assert difference(before, now) == "b 1 -> 2, c 1 -> absent, d absent -> 1"
    assert difference(before, before) == ""
    many = [package(f"p{number}", "1") for number in range(9)]
    assert difference([], many).endswith(" and 3 more")


def test_a_small_file_must_have_the_size_it_claims() -> None:
    assert read_small([entry("a", b"12")], "a") == b"12"
    assert read_small([entry("a", b"12")], "b") is None
    for size in (1, 3):
        with pytest.raises(IntegrityError, match="size"):
            read_small([entry("a", b"12", size=size)], "a")
    with pytest.raises(IntegrityError, match="12 bytes"):
        read_small([entry("a", b"x" * 12)], "a", limit=5)
