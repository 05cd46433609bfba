"""Debian packages, and archives within archives: read whole, or refused."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zipfile
from pathlib import Path

import pytest

from sandbox.errors import IntegrityError
from sandbox.runtimes.archive import members, safe_name


def tar(names: tuple[str, ...] = ("./bin/tool", "./share/notes")) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size, info.mode = 4, 0o755
            archive.addfile(info, io.BytesIO(b"data"))
    return out.getvalue()


PACKERS = {"xz": lzma.compress, "gz": gzip.compress, "zst": lambda data: data}


def deb(data: bytes, name: str = "data.tar.xz") -> bytes:
    found = b"!<arch>\n"
    for member, body in [("debian-binary", b"2.0\n"), ("control.tar.xz", b"odd"), (name, data)]:
        found += b"%-16s%-12d%-6d%-6d%-8s%-10d`\n" % (
            member.encode(),
            0,
            0,
            0,
            b"100644",
            len(body),
        )
        found += body + b"\n" * (len(body) % 2)
    return found


def names(tmp_path: Path, data: bytes, within: str | None = None) -> list[str]:
    path = tmp_path / "archive"
    path.write_bytes(data)
    with members(path, what="a package", within=within) as found:
        return [member.name for member in found if member.data and member.data.read() == b"data"]


@pytest.mark.parametrize("packer", ["xz", "gz"])
def test_the_files_of_a_package(tmp_path: Path, packer: str) -> None:
    data = deb(PACKERS[packer](tar()), f"data.tar.{packer}")
    assert names(tmp_path, data) == ["bin/tool", "share/notes"]


def test_a_package_may_be_plain(tmp_path: Path) -> None:
    assert names(tmp_path, deb(tar(), "data.tar")) == ["bin/tool", "share/notes"]


GOOD = deb(lzma.compress(tar()))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(deb(tar(), "data.tar.zst"), "neither xz nor gzip", id="zstd"),
        pytest.param(deb(tar(), "other"), "no data.tar", id="no-data"),
        pytest.param(GOOD[:100], "cut", id="cut-header"),
        pytest.param(GOOD[:-20], "cut", id="cut"),
        pytest.param(GOOD[:8] + b"x" * 200, "cut, or no Debian", id="not-ar"),
        pytest.param(deb(lzma.compress(tar())[:-8]), "", id="cut-xz"),
        pytest.param(deb(lzma.compress(tar(("../x",)))), "unsafe name", id="climbing"),
        pytest.param(deb(lzma.compress(tar(("a", "a")))), "twice", id="twice"),
    ],
)
def test_a_bad_package_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(IntegrityError, match=f"(?s)cannot be used.*{said}"):
        names(tmp_path, data)


def wheel(inner: bytes, name: str = "pkg/env.tar.xz") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("pkg/other", "other")
        archive.writestr(name, inner)
    return out.getvalue()


@pytest.mark.parametrize("packer", ["xz", "gz"])
def test_an_archive_within_a_wheel(tmp_path: Path, packer: str) -> None:
    inner = f"pkg/env.tar.{packer}"
    data = wheel(PACKERS[packer](tar()), inner)
    assert names(tmp_path, data, inner) == ["bin/tool", "share/notes"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(wheel(lzma.compress(tar()), "elsewhere.tar.xz"), "holds no file", id="absent"),
        pytest.param(wheel(b"odd"), "", id="not-packed"),
        pytest.param(wheel(lzma.compress(tar())[:-9]), "", id="cut"),
        pytest.param(wheel(lzma.compress(tar(("/etc/x",)))), "unsafe name", id="absolute"),
    ],
)
def test_a_bad_archive_within_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(IntegrityError, match=f"(?s)cannot be used.*{said}"):
        names(tmp_path, data, "pkg/env.tar.xz")


def test_the_dot_parts_of_a_name_go() -> None:
    assert safe_name("./package/./a/b") == "package/a/b"
    with pytest.raises(ValueError, match="unsafe"):
        safe_name("././")
