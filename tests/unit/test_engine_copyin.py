"""Putting small files into a folder that somebody else may change: nothing is written elsewhere."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sandbox.engine.archive import Owner, PutFile
from sandbox.engine.copyin import MOST_BYTES, MOST_FILES, copy_in, is_small

ME = Owner(uid=os.getuid(), gid=os.getgid())
FILE = PutFile(path="a/b/file", data=b"new", mode=0o640)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root/var/tree").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    return tmp_path / "root"


def put(root: Path, *files: PutFile, below: str = "new/in", trusted: bool = True) -> None:
    copy_in(root, "/var/tree", below, files, ME, trusted=trusted)


def test_files_come_with_their_folders_modes_and_time(root: Path) -> None:
    os.umask(os.umask(0o077))
    put(root, FILE, PutFile(path="tool", data=b"x" * 100_000, mode=0o4755), below=".")
    made = root / "var/tree"
    assert (made / "a/b/file").read_bytes() == b"new"
    assert (made / "tool").stat().st_size == 100_000
    modes = [stat.S_IMODE((made / name).stat().st_mode) for name in ("a", "a/b/file", "tool")]
    assert modes == [0o755, 0o640, 0o4755]
    assert (made / "a/b/file").stat().st_mtime == 0


def test_a_file_takes_the_place_of_another_and_of_a_link_but_of_no_folder(root: Path) -> None:
    made, outside = root / "var/tree/new/in", root.parent / "elsewhere/file"
    made.mkdir(parents=True)
    outside.write_text("kept")
    (made / "link").symlink_to(outside)
    (made / "hard").hardlink_to(outside)
    put(root, PutFile(path="link", data=b"1"), PutFile(path="hard", data=b"2"))
    assert [(made / name).read_bytes() for name in ("link", "hard")] == [b"1", b"2"]
    assert outside.read_text() == "kept"
    (made / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        put(root, PutFile(path="folder", data=b"3"))


@pytest.mark.parametrize("swapped", ["var", "var/tree", "var/tree/new", "var/tree/new/in/a"])
def test_a_folder_that_was_swapped_for_a_link_is_not_followed(root: Path, swapped: str) -> None:
    (root / "var/tree/new/in/a").mkdir(parents=True)
    (root / swapped).rename(root / "was")
    (root / swapped).symlink_to(root.parent / "elsewhere")
    with pytest.raises(OSError, match=r"directory|symbolic"):
        put(root, FILE)
    assert list((root.parent / "elsewhere").iterdir()) == []


@pytest.mark.skipif(os.getuid() != 0, reason="gives folders to others")
@pytest.mark.parametrize("theirs", ["var/tree", "var/tree/new/in/a"])
def test_a_plain_user_gets_nothing_into_folders_of_others(root: Path, theirs: str) -> None:
    (root / "var/tree/new/in/a").mkdir(parents=True)
    for folder in ("var/tree", "var/tree/new", "var/tree/new/in", "var/tree/new/in/a"):
        os.chown(root / folder, 1000, 1000)
    os.chown(root / theirs, 0, 0)
    user = Owner(uid=1000, gid=1000)
    with pytest.raises(PermissionError):
        copy_in(root, "/var/tree", "new/in", [FILE], user, trusted=False)
    assert (root / theirs).stat().st_uid == 0
    os.chown(root / theirs, 1000, 1000)
    copy_in(root, "/var/tree", "new/in", [FILE], user, trusted=False)
    assert (root / "var/tree/new/in/a/b/file").stat().st_uid == 1000


@pytest.mark.parametrize(
    ("files", "small"),
    [
        ([FILE], True),
        ([PutFile(path="f", data=bytes(MOST_BYTES + 1))], False),
        ([FILE] * (MOST_FILES + 1), False),
        ([PutFile(path="f", link_to="x")], False),
        ([PutFile(path="f", source=Path("/etc/passwd"))], False),
    ],
    ids=["small", "large", "many", "link", "host file"],
)
def test_only_small_files_from_memory_are_put_so(files: list[PutFile], small: bool) -> None:
    assert is_small(files) is small
