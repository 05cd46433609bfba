"""Trees, layers and archives: one order, one form, the same bytes for the same input."""

import hashlib
import io
import json
import tarfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.engine.imagebuild.archive import write_archive, write_layer
from sandbox.engine.imagebuild.definition import Settings
from sandbox.engine.imagebuild.tartree import tar_entries
from sandbox.engine.imagebuild.tree import Entry, Kind, Selection, canonical, order
from sandbox.errors import IntegrityError

ALL = Selection(drop=())
EPOCH = 1_767_225_600


def file(path: str, data: bytes = b"", mode: int = 0o644, **more: object) -> Entry:
    return Entry(
        path=path,
        kind=Kind.FILE,
        mode=mode,
        size=len(data),
        content=partial(io.BytesIO, data),
        **more,  # type: ignore[arg-type]
    )


def folder(path: str, mode: int = 0o755) -> Entry:
    return Entry(path=path, kind=Kind.FOLDER, mode=mode)


def link(path: str, target: str, kind: Kind = Kind.HARDLINK) -> Entry:
    return Entry(path=path, kind=kind, mode=0o777, target=target)


def made(*entries: Entry, selection: Selection = ALL, workdir: str = "/w") -> tuple[Entry, ...]:
    return canonical(entries, selection=selection, epoch=EPOCH, workdir=workdir)


def layer(entries: tuple[Entry, ...]) -> bytes:
    target = io.BytesIO()
    write_layer(target, entries)
    return target.getvalue()


names = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1)
names = names.filter(lambda name: name not in {".", ".."} and not name.startswith(".wh."))


@st.composite
def trees(draw: st.DrawFn) -> list[Entry]:
    """Draw a root file system: folders, files, symlinks and hard links with any attributes."""
    folders = [""]
    held: dict[str, Entry] = {}
    for _ in range(draw(st.integers(0, 12))):
        parent = draw(st.sampled_from(folders))
        path = f"{parent}/{draw(names)}".lstrip("/")
        if path in held:
            continue
        common: dict[str, Any] = {
            "path": path,
            "mode": draw(st.integers(0, 0o7777)),
            "uid": draw(st.integers(0, 2**31)),
            "gid": draw(st.integers(0, 2**31)),
            "mtime": draw(st.integers(0, EPOCH)),
        }
        xattrs = draw(
            st.dictionaries(
                st.sampled_from(["user.a", "security.capability"]), st.binary(min_size=1)
            )
        )
        kind = draw(st.sampled_from(list(Kind)))
        files = [item.path for item in held.values() if item.kind is Kind.FILE]
        if kind is Kind.FOLDER:
            folders.append(path)
            held[path] = Entry(kind=kind, xattrs=xattrs, **common)
        elif kind is Kind.SYMLINK:
            held[path] = Entry(kind=kind, target=draw(names), **common)
        elif kind is Kind.HARDLINK and files:
            held[path] = Entry(kind=kind, target=draw(st.sampled_from(files)), **common)
        else:
            data = draw(st.binary(max_size=2000))
            held[path] = Entry(
                kind=Kind.FILE,
                xattrs=xattrs,
                size=len(data),
                content=partial(io.BytesIO, data),
                **common,
            )
    return list(held.values())


def described(entries: tuple[Entry, ...]) -> list[tuple[object, ...]]:
    """Give the entries as plain values, with their bytes; a hard link has its file's attributes."""
    return [
        (
            item.path,
            item.kind,
            item.target,
            item.content().read() if item.content else b"",
            *(
                (item.mode, item.uid, item.gid, item.mtime, dict(item.xattrs))
                if item.kind is not Kind.HARDLINK
                else ()
            ),
        )
        for item in entries
    ]


@given(trees(), st.randoms())
def test_the_order_of_the_input_changes_nothing(tree: list[Entry], random: object) -> None:
    first = layer(made(*tree))
    random.shuffle(tree)  # type: ignore[attr-defined]
    assert layer(made(*tree)) == first


@given(trees())
def test_a_layer_holds_what_went_in(
    tmp_path_factory: pytest.TempPathFactory, tree: list[Entry]
) -> None:
    entries = made(*tree)
    path = tmp_path_factory.getbasetemp() / "layer.tar"
    path.write_bytes(layer(entries))
    with path.open("rb") as stream, tar_entries(stream) as read:
        assert described(read) == described(entries)
        assert layer(made(*read)) == layer(entries)


@given(trees())
def test_every_folder_comes_before_its_content(tree: list[Entry]) -> None:
    seen = {""}
    for item in made(*tree):
        assert item.path.rpartition("/")[0] in seen
        seen.add(item.path)


def test_the_order_is_by_bytes_and_depth_first() -> None:
    paths = ["a", "a/b", "a/b/c", "a-b", "a.b", "b", "B", "\N{LATIN SMALL LETTER E WITH ACUTE}"]
    assert sorted(paths, key=order) == ["B", "a", "a/b", "a/b/c", "a-b", "a.b", "b", "\xe9"]


def test_the_first_name_of_a_file_is_the_file() -> None:
    entries = made(link("a", "c"), link("b", "a"), file("c", b"data", mode=0o4755))
    assert [(item.path, item.kind, item.target) for item in entries[:3]] == [
        ("a", Kind.FILE, ""),
        ("b", Kind.HARDLINK, "a"),
        ("c", Kind.HARDLINK, "a"),
    ]
    assert entries[0].content is not None
    assert (entries[0].content().read(), entries[0].mode) == (b"data", 0o4755)


def test_a_link_to_a_left_out_file_becomes_the_file() -> None:
    entries = made(file("boot/a", b"x"), folder("boot"), link("z", "boot/a"),
                   selection=Selection(drop=["boot"]))  # fmt: skip
    assert [(item.path, item.kind, item.size) for item in entries] == [
        ("w", Kind.FOLDER, 0),
        ("z", Kind.FILE, 1),
    ]


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([file("a"), file("a")], "twice"),
        ([file("../a")], "plain relative path"),
        ([file("/a")], "plain relative path"),
        ([file("a//b")], "plain relative path"),
        ([file("./a")], "plain relative path"),
        ([file("a\0")], "plain relative path"),
        ([file(".wh.a")], "cannot hold the name"),
        ([folder(".wh..wh..opq"), file(".wh..wh..opq/a")], "cannot hold the name"),
        ([file("a/b")], "no folder"),
        ([file("a"), file("a/b")], "no folder"),
        ([link("a", "usr", Kind.SYMLINK), file("a/b")], "no folder"),
        ([link("a", "b")], "links to no file"),
        ([link("a", "b"), folder("b")], "links to no file"),
        ([link("a", "b"), link("b", "a")], "links to no file"),
        ([link("a", "a")], "links to no file"),
    ],
)
def test_a_tree_that_no_layer_can_hold_is_refused(entries: list[Entry], said: str) -> None:
    with pytest.raises(IntegrityError, match=said):
        made(*entries)


def test_times_are_bounded_and_host_attributes_are_gone() -> None:
    xattrs = {
        "security.selinux": b"x",
        "user.b": b"2",
        "security.capability": b"\1",
        "user.a": b"1",
    }
    late, early = made(file("a", mtime=EPOCH + 5, xattrs=xattrs), file("b", mtime=-3))[:2]
    assert (late.mtime, early.mtime) == (EPOCH, 0)
    assert list(late.xattrs) == ["security.capability", "user.a", "user.b"]


def test_the_workdir_is_made_with_its_parents_and_owner() -> None:
    entries = canonical([], selection=ALL, epoch=EPOCH, workdir="/a/b", owner="1000:1001")
    assert [(item.path, item.uid, item.gid) for item in entries] == [
        ("a", 0, 0),
        ("a/b", 1000, 1001),
    ]
    kept = canonical([folder("a", 0o700)], selection=ALL, epoch=EPOCH, workdir="/a")
    assert [(item.path, item.mode) for item in kept] == [("a", 0o700)]


@pytest.mark.parametrize(
    ("path", "stays"),
    [
        ("dev", True),
        ("dev/null", False),
        ("dev/shm/x", False),
        ("run/lock", True),
        ("run/lock/x", False),
        ("boot", False),
        ("boot/x", False),
        ("bootstrap", True),
        ("var/log/a.log", False),
        ("var/log/apt/a.log", True),
        ("var/log/axlog", True),
        ("usr/dev/null", True),
        ("dev/a\nb", False),
    ],
)
def test_selection(path: str, stays: bool) -> None:
    selection = Selection(drop=["dev/*", "run/*", "boot", "var/log/*.log"], keep=["run/lock"])
    assert selection.has(path) is stays


def archive(path: Path, *entries: Entry, reference: str = "a:1") -> tuple[str, bytes]:
    with path.open("wb") as target:
        written = write_archive(
            target,
            made(*entries),
            settings=Settings(env={"B": "2", "A": "1"}, user="5"),
            arch="arm64",
            labels={"k": "v"},
            reference=reference,
        )
    return written.image_id, path.read_bytes()


def test_an_archive_is_what_an_engine_loads(tmp_path: Path) -> None:
    image_id, data = archive(tmp_path / "image.tar", file("a", b"x" * 1000), folder("d"))
    with tarfile.open(fileobj=io.BytesIO(data)) as opened:
        parts = {item.name: opened.extractfile(item) for item in opened.getmembers()}
        read = {name: stream.read() for name, stream in parts.items() if stream is not None}
    (manifest,) = json.loads(read["manifest.json"])
    config = read[manifest["Config"]]
    assert manifest["RepoTags"] == ["a:1"]
    assert image_id == f"sha256:{hashlib.sha256(config).hexdigest()}"
    assert manifest["Config"] == f"{image_id.removeprefix('sha256:')}.json"
    (layer_name,) = manifest["Layers"]
    held = json.loads(config)
    assert held["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(read[layer_name]).hexdigest()}"]
    assert (held["architecture"], held["variant"], held["os"]) == ("arm64", "v8", "linux")
    assert held["created"] == "2026-01-01T00:00:00Z"
    assert held["config"] == {
        "Cmd": ["/bin/sh"],
        "Env": ["A=1", "B=2"],
        "Labels": {"k": "v"},
        "User": "5",
        "WorkingDir": "/workspace",
    }


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    tree = [
        file("a", b"1", xattrs={"user.x": b"\xff\x00"}),
        folder("d"),
        link("l", "d", Kind.SYMLINK),
    ]
    first = archive(tmp_path / "1", *tree)
    assert archive(tmp_path / "2", *reversed(tree)) == first
    renamed = archive(tmp_path / "3", *tree, reference="b:2")
    assert renamed[0] == first[0], "a name is no part of an image"
    assert archive(tmp_path / "4", file("a", b"2"))[0] != first[0]


@pytest.mark.parametrize("size", [1, 511, 512, 513, 1 << 20])
def test_the_known_bytes_of_one_layer(tmp_path: Path, size: int) -> None:
    """The layer's header is written after it: its size must be right whatever it is."""
    _, data = archive(tmp_path / "image.tar", file("a", b"x" * size))
    with tarfile.open(fileobj=io.BytesIO(data)) as opened:
        assert opened.getnames()[0] == "layer.tar"
        assert len(opened.getmembers()) == 3


def test_the_layer_format_does_not_drift() -> None:
    """Image IDs pinned in image.toml rest on these bytes: a new Python must not change them."""
    tree = made(
        file("bin/su", b"x", mode=0o4755, mtime=7, xattrs={"user.a": b"\xff"}),
        folder("bin"),
        link("bin/s", "su", Kind.SYMLINK),
        link("bin/h", "bin/su"),
        file("n" * 120, b"", uid=3_000_000),
    )
    digest = hashlib.sha256(layer(tree)).hexdigest()
    assert digest == "13cae75a96a1b911694c33f96e160115e528629b3aa8299f9c9b27909ce179f8"


def test_a_file_shorter_than_its_size_is_refused(tmp_path: Path) -> None:
    short = Entry(path="a", kind=Kind.FILE, mode=0, size=9, content=partial(io.BytesIO, b"x"))
    with pytest.raises(IntegrityError, match="shorter"):
        archive(tmp_path / "image.tar", short)


def test_devices_and_the_root_itself_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "root.tar"
    with tarfile.open(path, "w") as target:
        for name, kind in (("./", tarfile.DIRTYPE), ("./n", tarfile.CHRTYPE),
                           ("./p", tarfile.FIFOTYPE), ("./f", tarfile.REGTYPE)):  # fmt: skip
            info = tarfile.TarInfo(name)
            info.type = kind
            target.addfile(info)
    with path.open("rb") as stream, tar_entries(stream) as read:
        assert [item.path for item in read] == ["f"]


def test_a_broken_tar_is_an_integrity_error(tmp_path: Path) -> None:
    path = tmp_path / "root.tar"
    path.write_bytes(b"no tar" * 200)
    with (
        path.open("rb") as stream,
        pytest.raises(IntegrityError, match=r"root\.tar"),
        tar_entries(stream),
    ):
        pass
