"""Facts of an image that runs nothing: read from its files alone."""

import io
import tarfile
from pathlib import PurePosixPath

import pytest

from sandbox.engine.still import facts_of, read_files
from sandbox.errors import CouldNotFindOut


def stream(members: dict[str, bytes | str | None], *, owner: int = 0) -> io.BytesIO:
    """Make a tar: bytes are a file, text is a link's target, None is a folder."""
    made = io.BytesIO()
    above = {str(up): None for name in members for up in reversed(PurePosixPath(name).parents)}
    members = {**{name: what for name, what in above.items() if name != "."}, **members}
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, what in members.items():
            info = tarfile.TarInfo(name)
            info.mode, info.uid = 0o755, owner
            if what is None:
                info.type = tarfile.DIRTYPE
            elif isinstance(what, str):
                info.type, info.linkname = tarfile.SYMTYPE, what
            else:
                info.size = len(what)
            archive.addfile(info, io.BytesIO(what if isinstance(what, bytes) else b""))
    made.seek(0)
    return made


GLIBC = b"\x7fELF..GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.\nmore"
DISTROLESS: dict[str, bytes | str | None] = {
    "etc/passwd": b"root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532::/home/n:/x\n",
    "etc/os-release": "../usr/lib/os-release",
    "usr/lib/os-release": b'ID=debian\nVERSION_ID="12"\n',
    "lib": "usr/lib",
    "lib64": "usr/lib64",
    "usr/lib/x86_64-linux-gnu/libc.so.6": GLIBC,
    "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2": b"loader",
    "usr/lib64/ld-linux-x86-64.so.2": "../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
    "usr/bin/env": b"program",
    "etc/ssl/certs/ca-certificates.crt": b"pem",
    "tmp": None,
}
CONFIG = {"User": "nonroot", "Env": ["PATH=/usr/bin:/bin", "LANG=C"], "WorkingDir": "/app"}


def test_a_distroless_image() -> None:
    facts = facts_of(read_files(stream(DISTROLESS)), CONFIG, "amd64")
    assert (facts.libc, facts.libc_version, facts.platform) == ("glibc", "2.36", "linux-x64-gnu")
    assert facts.loaders[0] == "/lib64/ld-linux-x86-64.so.2", "the name that programs have for it"
    assert (facts.uid, facts.gid, facts.user, facts.home) == (65532, 65532, "nonroot", "/home/n")
    assert facts.tools == {"env": "/usr/bin/env"}
    assert facts.sh == "none"
    assert facts.ca_file == "/etc/ssl/certs/ca-certificates.crt"
    assert facts.distribution == "debian 12"
    assert facts.workdir == "/app"
    assert facts.writable == ()


def test_who_may_write_is_told_by_modes_and_owners() -> None:
    files = read_files(stream({"tmp": None}, owner=7))
    assert [p.path for p in facts_of(files, {"User": "7"}, "arm64").writable] == ["/tmp"]
    assert facts_of(files, {"User": "8"}, "arm64").writable == ()
    assert "/tmp" in [place.path for place in facts_of(files, {}, "arm64").writable]


def test_an_empty_image_has_no_libc_and_no_platform() -> None:
    facts = facts_of(read_files(stream({})), {}, "amd64")
    assert (facts.libc, facts.platform, facts.loaders) == ("none", None, ())


def test_musl_says_its_version() -> None:
    members = {"lib/ld-musl-x86_64.so.1": b"\x7fELF\0\x001.2.5\0rest"}
    facts = facts_of(read_files(stream(dict(members))), {}, "amd64")
    assert (facts.libc, facts.libc_version) == ("musl", "1.2.5")


def test_links_that_go_round_end() -> None:
    files = read_files(stream({"bin": "usr", "usr": "bin"}))
    assert files.resolve("/bin/sh") is None


def test_a_cut_stream_is_no_answer() -> None:
    data = stream({"a": b"x" * 5000}).getvalue()[:3000]
    with pytest.raises(CouldNotFindOut, match="cannot be read"):
        read_files(io.BytesIO(data))
