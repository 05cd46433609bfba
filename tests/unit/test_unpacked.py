"""Bundles unpacked once: what is published, what is noticed, what is shared."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sandbox.errors import IntegrityError
from sandbox.progress import PlainProgress
from sandbox.runtimes import ustar
from sandbox.runtimes.reports import Bundle
from sandbox.runtimes.unpacked import check_unpacked, ensure_unpacked

QUIET = PlainProgress(quiet=True)


class Told(PlainProgress):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    path = tmp_path / "bundle.tar"
    with path.open("wb") as out:
        ustar.write_file(out, "MANIFEST.json", io.BytesIO(b"{}"), 2, executable=False)
        ustar.write_folder(out, "bin")
        ustar.write_link(out, "bin/tool", "../libexec/tool")
        ustar.write_folder(out, "libexec")
        data = b"#!/bin/sh\necho tool 1.2.3\n"
        ustar.write_file(out, "libexec/tool", io.BytesIO(data), len(data), executable=True)
        long = "libexec/" + "n" * 120
        ustar.write_file(out, long, io.BytesIO(b"long"), 4, executable=False)
        ustar.write_end(out)
    return Bundle(
        harness="tool",
        version="1.2.3",
        platform="linux-x64-gnu",
        path=path,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        size=path.stat().st_size,
        version_argv=("--version",),
        version_output="tool 1.2.3",
    )


@pytest.fixture
def folder(tmp_path: Path, bundle: Bundle) -> Path:
    return tmp_path / "trees" / bundle.sha256


def inodes(root: Path) -> dict[str, int]:
    return {str(path.relative_to(root)): path.lstat().st_ino for path in root.rglob("*")}


def test_the_tree_is_what_tar_unpacks(bundle: Bundle, folder: Path, tmp_path: Path) -> None:
    root = ensure_unpacked(bundle, folder, QUIET)
    (tmp_path / "tar").mkdir()
    subprocess.run(["tar", "-xof", bundle.path, "-C", tmp_path / "tar"], check=True)
    said = [
        {
            str(path.relative_to(top)): (path.lstat().st_mode, path.lstat().st_mtime)
            for path in top.rglob("*")
            if path.name != ".bundle-sha256" and not path.is_symlink()
        }
        for top in (root, tmp_path / "tar")
    ]
    assert said[0] == said[1]
    assert len(said[0]) == 5
    assert (root / "bin/tool").readlink() == Path("../libexec/tool")
    assert (root / ".bundle-sha256").read_text() == f"{bundle.sha256}\n"
    assert subprocess.run([root / "bin/tool"], capture_output=True, check=True).stdout


def test_a_tree_that_is_there_is_kept(bundle: Bundle, folder: Path) -> None:
    root = ensure_unpacked(bundle, folder, QUIET)
    before = inodes(root)
    assert ensure_unpacked(bundle, folder, QUIET) == root
    assert inodes(root) == before


def test_nothing_is_read_again_while_the_figures_hold(bundle: Bundle, folder: Path) -> None:
    root = ensure_unpacked(bundle, folder, QUIET)
    bundle.path.unlink()  # whoever compares needs it
    assert ensure_unpacked(bundle, folder, QUIET) == root
    assert check_unpacked(bundle.path, bundle.sha256, folder, rehash=True)


def same_size(root: Path) -> None:
    path = root / "libexec/tool"
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"1.2.3", b"6.6.6"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced(root: Path) -> None:
    shutil.copy2(root / "MANIFEST.json", root / "other")
    (root / "other").write_text("[]")
    (root / "other").replace(root / "MANIFEST.json")


def other_link(root: Path) -> None:
    (root / "bin/tool").unlink()
    (root / "bin/tool").symlink_to("/bin/true")


def file_for_link(root: Path) -> None:
    (root / "bin/tool").unlink()
    shutil.copy2(root / "libexec/tool", root / "bin/tool")


CHANGES: dict[str, Callable[[Path], object]] = {
    "same size and time": same_size,
    "replaced": replaced,
    "longer": lambda root: (root / "MANIFEST.json").write_text("{} "),
    "added": lambda root: (root / "libexec/more").touch(),
    "removed": lambda root: (root / "MANIFEST.json").unlink(),
    "folder added": lambda root: (root / "bin/empty").mkdir(),
    "not executable": lambda root: (root / "libexec/tool").chmod(0o644),
    "writable for all": lambda root: (root / "libexec/tool").chmod(0o777),
    "open folder": lambda root: (root / "bin").chmod(0o777),
    "another link": other_link,
    "a file for a link": file_for_link,
    "another mark": lambda root: (root / ".bundle-sha256").write_text("0" * 64 + "\n"),
    "no tree": shutil.rmtree,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("rehash", [False, True], ids=["figures", "bytes"])
def test_a_changed_tree_is_noticed_and_made_anew(
    bundle: Bundle, folder: Path, *, change: Callable[[Path], object], rehash: bool
) -> None:
    root = ensure_unpacked(bundle, folder, QUIET)
    change(root)
    assert check_unpacked(bundle.path, bundle.sha256, folder, rehash=rehash)
    told = Told()
    ensure_unpacked(bundle, folder, told)
    assert sum("was changed" in line for line in told.lines) == 1
    assert check_unpacked(bundle.path, bundle.sha256, folder, rehash=True) is None
    assert [path.name for path in folder.parent.iterdir() if path.is_dir()] == [folder.name]


def test_what_only_looks_changed_is_compared_and_kept(bundle: Bundle, folder: Path) -> None:
    root = ensure_unpacked(bundle, folder, QUIET)
    (root / "libexec/tool").touch()
    before = inodes(root)
    ensure_unpacked(bundle, folder, QUIET)
    (folder / "figures.json").write_text("not JSON")
    ensure_unpacked(bundle, folder, QUIET)
    assert inodes(root) == before
    bundle.path.unlink()
    assert ensure_unpacked(bundle, folder, QUIET) == root  # the new figures were kept


@pytest.mark.parametrize(
    ("at", "said"),
    [(600, "pinned is"), (0, "cannot be unpacked"), (1024, "pinned is")],
    ids=["content", "name", "folder"],
)
def test_other_bytes_are_never_published(bundle: Bundle, folder: Path, at: int, said: str) -> None:
    with bundle.path.open("r+b") as stream:
        stream.seek(at)
        stream.write(b"x")
    with pytest.raises(IntegrityError, match=said):
        ensure_unpacked(bundle, folder, QUIET)
    assert [path.name for path in folder.parent.iterdir()] == [f"{folder.name}.lock"]


def test_concurrent_callers_share_one_unpacking(bundle: Bundle, folder: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        roots = list(pool.map(lambda _: ensure_unpacked(bundle, folder, QUIET), range(4)))
    assert set(roots) == {folder / "root"}
    before = inodes(folder / "root")
    ensure_unpacked(bundle, folder, QUIET)
    assert inodes(folder / "root") == before
