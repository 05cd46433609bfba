"""Changes on top of a root file system: what stays, what is added, and as which layer."""

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from sandbox.engine.imagebuild.archive import Layer, write_archive
from sandbox.engine.imagebuild.definition import Settings
from sandbox.engine.imagebuild.layout import Folder, Layout, TextFile, on_top, whole
from sandbox.engine.imagebuild.tree import Entry, Kind, Selection, canonical
from sandbox.errors import IntegrityError


def opener(data: bytes) -> Callable[[], BinaryIO]:
    return lambda: io.BytesIO(data)


def folder(path: str, mode: int = 0o755, uid: int = 0) -> Entry:
    return Entry(path=path, kind=Kind.FOLDER, mode=mode, uid=uid)


def file(path: str, data: bytes = b"x", mode: int = 0o644) -> Entry:
    return Entry(path=path, kind=Kind.FILE, mode=mode, size=len(data), content=opener(data))


def text(item: Entry) -> str:
    assert item.content is not None
    return item.content().read().decode()


BASE = (
    folder("etc", 0o711),
    file("etc/passwd", b"root:x:0:0\n", 0o640),
    folder("lib"),
    folder("lib/x64"),
    file("lib/x64/libc.so.6"),
    file("lib/x64/libm.so.6"),
    folder("usr"),
    file("usr/doc"),
)


def test_only_what_is_kept_stays_with_the_folders_it_is_in() -> None:
    kept = whole(BASE, Layout(keep=("lib/*/libc.so.6",)), epoch=1)
    assert [item.path for item in kept] == ["lib", "lib/x64", "lib/x64/libc.so.6"]


def test_a_pattern_that_keeps_nothing_is_a_mistake() -> None:
    with pytest.raises(IntegrityError, match="nothing is there to keep for 'bin/sh'"):
        whole(BASE, Layout(keep=("usr", "bin/sh")), epoch=1)


def test_folders_files_and_links_are_added() -> None:
    layout = Layout(
        folders={"/home/me": Folder(mode="0750", owner="7:8")},
        files={"/etc/motd": TextFile(text="hi\n")},
        append={"/etc/passwd": "me:x:7:8\n"},
        links={"doc": ("/usr/manual", "/usr/book")},
    )
    made = {item.path: item for item in whole(BASE, layout, epoch=9)}
    assert (made["home/me"].mode, made["home/me"].uid, made["home/me"].gid) == (0o750, 7, 8)
    assert (made["home"].mode, made["home"].uid) == (0o755, 0)
    assert text(made["etc/motd"]) == "hi\n"
    assert text(made["etc/passwd"]) == "root:x:0:0\nme:x:7:8\n"
    assert made["etc/passwd"].mode == 0o640
    assert {made[path].target for path in ("usr/manual", "usr/book")} == {"doc"}
    assert made["etc/passwd"].mtime == 9


def test_a_file_to_append_to_must_be_there() -> None:
    with pytest.raises(IntegrityError, match="no file /etc/group to append to"):
        whole(BASE, Layout(append={"/etc/group": "x"}), epoch=1)


def test_a_layer_on_top_has_the_changes_and_their_folders_as_they_are_below() -> None:
    layout = Layout(append={"/etc/passwd": "me\n"}, folders={"/srv/one": Folder()})
    top = {item.path: item for item in on_top(BASE, layout, epoch=1)}
    assert sorted(top) == ["etc", "etc/passwd", "srv", "srv/one"]
    assert top["etc"].mode == 0o711, "a layer that leaves a folder out gives it another mode"


def test_a_layer_on_top_cannot_leave_out() -> None:
    with pytest.raises(IntegrityError, match="cannot leave out"):
        on_top(BASE, Layout(keep=("etc",)), epoch=1)


def archive(path: Path, entries: tuple[Entry, ...], below: Layer | None = None) -> Layer:
    ready = canonical(entries, selection=Selection(drop=()), epoch=1, workdir="/w")
    with path.open("wb") as target:
        written = write_archive(
            target,
            ready,
            settings=Settings(),
            arch="x64",
            labels={},
            reference="a/b:c",
            below=below,
        )
    return Layer(archive=path, diff_id=written.diff_id, size=written.layer_size)


def test_an_archive_on_top_of_another_holds_both_layers(tmp_path: Path) -> None:
    base = archive(tmp_path / "base.tar", BASE)
    top = archive(tmp_path / "top.tar", (folder("new"),), base)
    with tarfile.open(tmp_path / "top.tar") as outer:
        (manifest,) = json.load(outer.extractfile("manifest.json") or io.BytesIO())
        config = json.load(outer.extractfile(manifest["Config"]) or io.BytesIO())
        with tarfile.open(fileobj=outer.extractfile(manifest["Layers"][0])) as below:
            assert "usr/doc" in below.getnames()
        assert len(manifest["Layers"]) == 2
    assert config["rootfs"]["diff_ids"] == [base.diff_id, top.diff_id]
    assert len(config["history"]) == 2


def test_a_layer_below_that_is_not_what_it_is_said_to_be(tmp_path: Path) -> None:
    base = archive(tmp_path / "base.tar", BASE)
    with base.archive.open("r+b") as stream:
        stream.seek(1024)
        stream.write(b"damage")
    with pytest.raises(IntegrityError, match=f"not {base.diff_id}"):
        archive(tmp_path / "top.tar", (folder("new"),), base)
