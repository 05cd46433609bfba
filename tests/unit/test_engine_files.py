"""Tar streams, safe unpacking, and where paths lie: nothing is lost and nothing escapes."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.engine.archive import (
    Owner,
    PutFile,
    coalesce,
    file_header,
    stream_files,
    stream_folders,
    stream_tree,
)
from sandbox.engine.place import (
    HostLocator,
    Mount,
    is_archived,
    open_beneath,
    parse_mountinfo,
    resolve,
)
from sandbox.engine.unpack import IterReader, stays_inside, unpack
from sandbox.errors import ContainerGone, EngineFailure, UsageError

ROOT = Owner(uid=0, gid=0)
NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(st.sampled_from(["a", "b", "c", "..", "."]), min_size=1, max_size=5)
TARGETS = st.tuples(st.sampled_from(["", "/", "//"]), STEPS).map(lambda t: t[0] + "/".join(t[1]))
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


def members(chunks: list[bytes]) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as tar:
        return {member.name: member for member in tar}


@given(st.lists(st.binary(max_size=3000), max_size=20))
def test_coalesced_chunks_are_the_same_bytes(chunks: list[bytes]) -> None:
    joined = b"".join(coalesce(chunks))
    assert joined == b"".join(chunks) + bytes(1024)


@given(st.lists(st.binary(max_size=20), max_size=10), st.integers(1, 25))
def test_an_iterator_reads_like_a_file(chunks: list[bytes], size: int) -> None:
    reader, read = IterReader(chunks), b""
    while piece := reader.read(size):
        read += piece
    assert read == b"".join(chunks)


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=120).filter(
            lambda t: "/" not in t and "\0" not in t and t not in {".", ".."}
        ),
        st.binary(max_size=1500),
        max_size=5,
    )
)
def test_files_from_memory_are_read_back(files: dict[str, bytes]) -> None:
    names = {name: data for name, data in files.items() if name.isprintable()}
    put = [PutFile(path=f"deep/{name}", data=data, mode=0o640) for name, data in names.items()]
    tar = b"".join(coalesce(stream_files(put, "base/", Owner(uid=5, gid=6))))
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        for name, data in names.items():
            member = archive.getmember(f"base/deep/{name}")
            assert archive.extractfile(member).read() == data
            assert (member.mode, member.uid, member.gid) == (0o640, 5, 6)
        assert archive.getnames().count("base/deep") == min(1, len(names))


def test_folders_on_a_path() -> None:
    found = members(list(coalesce(stream_folders("a/b/c/", ROOT))))
    assert list(found) == ["a", "a/b", "a/b/c"]
    assert all(member.isdir() and member.mode == 0o755 for member in found.values())
    assert members(list(coalesce(stream_folders("", ROOT)))) == {}


def test_a_tree_keeps_modes_links_and_times(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir(mode=0o750)
    (tmp_path / "sub" / "run").write_bytes(b"x" * 600)
    (tmp_path / "sub" / "run").chmod(0o4755)
    os.utime(tmp_path / "sub" / "run", (99, 99))
    (tmp_path / "link").symlink_to("/absolute")
    found = members(list(coalesce(stream_tree(tmp_path, "to/", ROOT))))
    assert list(found) == ["to/link", "to/sub", "to/sub/run"]
    assert found["to/link"].linkname == "/absolute"
    assert (found["to/sub"].mode, found["to/sub/run"].mode) == (0o750, 0o4755)
    assert (found["to/sub/run"].size, found["to/sub/run"].mtime) == (600, 99)


@given(
    name=st.text(st.sampled_from("a/é\x81 "), min_size=1, max_size=120),
    mode=st.integers(0, 0o7777),
    size=st.sampled_from([0, 1, 511, 8**11 - 1, 8**11]),
    mtime=st.sampled_from([-1.5, 0.0, 1.9, 1.7e9, 8.0**11]),
    uid=st.sampled_from([0, 1000, 2**21, 2**31]),
)
def test_the_quick_header_is_the_librarys(
    name: str, mode: int, size: int, mtime: float, uid: int
) -> None:
    info = tarfile.TarInfo(name)
    info.mode, info.size, info.mtime, info.uid, info.gid = mode, size, mtime, uid, 5
    assert file_header(info) == info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def test_host_files_that_cannot_be_sent(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for source in (tmp_path, tmp_path / "absent", tmp_path / "pipe"):
        with pytest.raises(UsageError):
            list(stream_tree(source, "", ROOT))
    with pytest.raises(UsageError, match="no file at"):
        list(stream_files([PutFile(path="x", source=tmp_path)], "", ROOT))


@pytest.mark.parametrize(
    "given", [{}, {"data": b"", "link_to": "x"}, {"data": b"", "source": Path("x")}]
)
def test_a_put_file_has_one_origin(given: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="exactly one"):
        PutFile(path="x", **given)


MEMBERS = st.lists(
    st.tuples(PATHS, st.sampled_from(["file", "folder", "symlink", "hardlink", "pipe"]), TARGETS),
    max_size=8,
)


@settings(max_examples=60)
@given(MEMBERS)
def test_hostile_archives_stay_inside(entries: list[tuple[str, str, str]]) -> None:
    with TemporaryDirectory() as folder:
        outside, into = Path(folder) / "outside", Path(folder) / "x" / "y" / "into"
        outside.write_text("untouched")
        into.mkdir(parents=True)
        unpack(io.BytesIO(hostile(entries)), into)
        assert outside.read_text() == "untouched"
        assert {path.name for path in Path(folder).iterdir()} == {"outside", "x"}
        assert {path.name for path in into.parent.iterdir()} == {"into"}
        for path in into.rglob("*"):
            end = os.path.realpath(path)  # unlike resolve(), it bears links in a circle
            assert Path(end).is_relative_to(os.path.realpath(into))


def hostile(entries: list[tuple[str, str, str]]) -> bytes:
    buffer = io.BytesIO()
    kinds = {
        "file": tarfile.REGTYPE,
        "folder": tarfile.DIRTYPE,
        "symlink": tarfile.SYMTYPE,
        "hardlink": tarfile.LNKTYPE,
        "pipe": tarfile.FIFOTYPE,
    }
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, kind, target in entries:
            info = tarfile.TarInfo(name)
            info.type, info.mode = kinds[kind], 0o755
            if kind in {"symlink", "hardlink"}:
                info.linkname = target
            tar.addfile(info, io.BytesIO())
    return buffer.getvalue()


@given(PATHS, TARGETS)
def test_links_that_stay_inside_resolve_inside(name: str, target: str) -> None:
    inside = os.path.normpath(f"/base/{PurePosixPath(name).parent}/{target}")
    if stays_inside(name, target):
        assert inside == "/base" or inside.startswith("/base/")
    if target.startswith("/"):
        assert not stays_inside(name, target)


@settings(max_examples=60)
@given(st.lists(st.tuples(PATHS, TARGETS), max_size=6), TARGETS)
def test_paths_resolve_as_in_a_changed_root(links: list[tuple[str, str]], path: str) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder)
        for name, target in links:
            place = root / name
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(target)
            except (FileExistsError, NotADirectoryError, OSError):
                continue
        try:
            resolved = resolve(root, "/" + path)
        except EngineFailure:
            return  # links in a circle
        assert resolved.startswith("/")
        assert ".." not in resolved.split("/")
        place = root
        for part in Path(resolved).parts[1:]:
            place /= part
            assert not place.is_symlink()


def test_a_file_is_opened_without_following_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_bytes(b"content")
    (tmp_path / "way").symlink_to("real")
    (tmp_path / "real" / "last").symlink_to("file")
    with open_beneath(tmp_path, "/real/file") as file:
        assert file.read() == b"content"
    os.mkfifo(tmp_path / "pipe")
    for path in ("/way/file", "/real/last", "/real", "/pipe", "/absent"):
        with pytest.raises(OSError), open_beneath(tmp_path, path):  # noqa: PT011 - several kinds
            pass


def test_the_innermost_and_latest_mount_decides() -> None:
    text = (
        "1 0 0:1 / / rw - overlay overlay rw\n"
        "2 1 0:2 / /tmp rw - tmpfs tmpfs rw\n"
        "3 2 8:1 / /tmp/bound\\040here ro - ext4 /dev/sda rw\n"
        "4 1 0:3 / /srv rw - ext4 /dev/sda rw\n"
        "5 4 0:4 / /srv rw - tmpfs tmpfs rw\n"
        "odd\n"
    )
    mounts = parse_mountinfo(text)
    assert len(mounts) == 5
    seen = {
        path: is_archived(path, mounts)
        for path in ("/", "/opt/x", "/tmpx", "/tmp", "/tmp/a", "/tmp/bound here/x", "/srv/x")
    }
    assert seen == {
        "/": True,
        "/opt/x": True,
        "/tmpx": True,
        "/tmp": False,
        "/tmp/a": False,
        "/tmp/bound here/x": True,
        "/srv/x": False,
    }
    assert not is_archived("/proc/1", [Mount("/", "overlay"), Mount("/proc", "proc")])


def test_locating_without_an_engine(tmp_path: Path) -> None:
    root = tmp_path / "7" / "root"
    (root / "opt" / "real").mkdir(parents=True)
    (root / "opt" / "file").touch()
    (root / "way").symlink_to("/opt/real")
    os.mkfifo(root / "pipe")
    (tmp_path / "7" / "mountinfo").write_text("1 0 0:1 / / rw - overlay overlay rw\n")
    stat = "7 (init) S 0 " + " ".join(str(number) for number in range(5, 53))
    (tmp_path / "7" / "stat").write_text(stat)
    (root / "opt" / "file").write_text("content")
    locator = HostLocator(7, proc=tmp_path)
    kinds = {path: locator.locate(path).kind for path in ("/", "/way", "/opt/file", "/pipe", "/no")}
    assert kinds == {
        "/": "folder",
        "/way": "folder",
        "/opt/file": "file",
        "/pipe": "other",
        "/no": "missing",
    }
    missing = locator.locate("/way/new/deep")
    assert (missing.path, missing.existing) == ("/opt/real/new/deep", "/opt/real")
    assert locator.read("/opt/file", 4) == b"cont"
    with pytest.raises(ContainerGone):
        HostLocator(8, proc=tmp_path).locate("/")
    (tmp_path / "7" / "stat").write_text(stat.replace(" 22 ", " 99 "))  # the pid was reused
    with pytest.raises(ContainerGone):
        locator.locate("/opt/file")
    with pytest.raises(ContainerGone):
        locator.read("/opt/file", 4)
