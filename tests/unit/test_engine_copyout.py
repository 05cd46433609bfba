"""Copying out of a folder that somebody else may change: what is kept, and that nothing escapes."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from sandbox.engine.copyout import MOST_LEVELS, copy_out
from sandbox.engine.unpack import unpack
from sandbox.errors import CouldNotFindOut


@pytest.fixture
def root(tmp_path: Path) -> Path:
    tree = tmp_path / "root/var/tree"
    (tree / "sub/empty").mkdir(parents=True)
    (tree / "plain").write_bytes(b"x" * 100_000)
    (tree / "sub/tool").write_text("#!/bin/sh\n")
    (tree / "sub/tool").chmod(0o4777)
    (tree / "secret").write_text("s")
    (tree / "secret").chmod(0o011)
    os.utime(tree / "plain", (1e9, 1e9))
    (tree / "again").hardlink_to(tree / "plain")
    links = {"in": "../sub/tool", "out": "../../../x", "root": "/etc", "gone": "none"}
    for name, target in links.items():
        (tree / "sub" / name).symlink_to(target)
    os.mkfifo(tree / "pipe")
    return tmp_path / "root"


def seen(folder: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        status, name = path.lstat(), str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = (str(path.readlink()),)
        elif path.is_file():
            found[name] = (path.read_bytes(), oct(status.st_mode), int(status.st_mtime))
        else:
            found[name] = (oct(status.st_mode),)
    return found


def test_a_copy_is_what_a_tar_would_have_brought(root: Path, tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(root / "var/tree", "tree")
    packed.seek(0)
    (tmp_path / "unpacked").mkdir()
    left = unpack(packed, tmp_path / "unpacked")
    left_too = copy_out(root, "/var/tree", tmp_path / "copied")
    assert sorted(left_too) == sorted(left) == ["tree/pipe", "tree/sub/out", "tree/sub/root"]
    assert seen(tmp_path / "copied") == seen(tmp_path / "unpacked/tree")
    again = (tmp_path / "copied/again").stat()
    assert again.st_ino == (tmp_path / "copied/plain").stat().st_ino


def test_a_file_is_copied_by_its_name(root: Path, tmp_path: Path) -> None:
    assert copy_out(root, "/var/tree/plain", tmp_path / "file") == ()
    assert (tmp_path / "file").read_bytes() == b"x" * 100_000


def test_a_link_on_the_way_is_not_followed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "away").mkdir()
    (tmp_path / "away/file").touch()
    (root / "link").symlink_to(tmp_path / "away")
    with pytest.raises(OSError, match="Not a directory"):
        copy_out(root, "/link/file", tmp_path / "copied")
    assert copy_out(root, "/link", tmp_path / "copied") == ("link",)
    assert not (tmp_path / "copied").exists()


def test_endless_folders_end(tmp_path: Path) -> None:
    number = os.open(tmp_path, os.O_RDONLY)
    for name in ["root", "deep", *["d"] * (MOST_LEVELS + 1)]:
        os.mkdir(name, dir_fd=number)
        below = os.open(name, os.O_RDONLY, dir_fd=number)
        os.close(number)
        number = below
    os.close(number)
    with pytest.raises(CouldNotFindOut, match="the folders in deep are too deep"):
        copy_out(tmp_path / "root", "/deep", tmp_path / "copied")
