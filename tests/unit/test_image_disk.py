"""Reading a disk: modes, owners, links, attributes, sizes; what cannot be read is refused."""

import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from sandbox.engine.imagebuild.disk import disk_entries
from sandbox.engine.imagebuild.tree import Entry, Kind
from sandbox.errors import IntegrityError

CLUSTER = 1 << 16


def ext4(folder: Path, target: Path, *commands: str, size: str = "4m") -> None:
    """Write an ext4 file system with the content of ``folder``, then run debugfs ``commands``."""
    mke2fs, debugfs = _tool("mke2fs"), _tool("debugfs")
    argv = [
        mke2fs,
        "-q",
        "-t",
        "ext4",
        "-E",
        "root_owner=0:0",
        "-d",
        str(folder),
        str(target),
        size,
    ]
    subprocess.run(argv, check=True, capture_output=True)
    for command in commands:
        argv = [debugfs, "-w", "-R", command, str(target)]
        subprocess.run(argv, check=True, capture_output=True)


def _tool(name: str) -> str:
    found = shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")
    if found is None:
        pytest.skip(f"{name} (package e2fsprogs) is not installed")
    return found


def qcow2(raw: Path, target: Path) -> None:
    """Wrap a raw disk as qcow2 version 2 (QEMU, docs/interop/qcow2.txt), all clusters present."""
    data = raw.read_bytes()
    clusters = -(-len(data) // CLUSTER)
    entries_a_table = CLUSTER // 8
    tables = -(-clusters // entries_a_table)
    first = 2 + tables  # header, level 1, the level 2 tables, then the data
    header = struct.pack(
        ">4sIQIIQIIQQIIQ", b"QFI\xfb", 2, 0, 0, 16, len(data), 0, tables, CLUSTER, 0, 0, 0, 0
    )
    present = 1 << 63
    level1 = [present | (2 + number) * CLUSTER for number in range(tables)]
    level2 = [present | (first + number) * CLUSTER for number in range(clusters)]
    level2 += [0] * (tables * entries_a_table - clusters)
    with target.open("wb") as out:
        out.write(header.ljust(CLUSTER, b"\0"))
        out.write(struct.pack(f">{tables}Q", *level1).ljust(CLUSTER, b"\0"))
        out.write(struct.pack(f">{len(level2)}Q", *level2))
        out.write(data.ljust(clusters * CLUSTER, b"\0"))


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "su").write_bytes(b"x" * 5000)
    (root / "big").write_bytes(os.urandom(300_000))
    (root / "empty").write_bytes(b"")
    (root / "short").symlink_to("bin/su")
    (root / "long").symlink_to("y" * 200)
    (root / "\u00fcml\u00e4ut").write_bytes(b"1")
    (root / "tmp").mkdir()
    for path in root.rglob("*"):
        os.utime(path, (1_600_000_000, 1_600_000_000), follow_symlinks=False)
    ext4(
        root,
        tmp_path / "raw",
        "set_inode_field /bin/su mode 0104755",
        "set_inode_field /tmp mode 041777",
        "set_inode_field /big uid 70000",
        "set_inode_field /big gid 42",
        "ln /big /second",
        "ea_set /big user.note hello",
        "mknod null c 1 3",
        "mknod pipe p",
    )
    qcow2(tmp_path / "raw", tmp_path / "disk.qcow2")
    return tmp_path / "disk.qcow2"


def test_everything_of_a_file_system_is_read(disk: Path, tmp_path: Path) -> None:
    with disk_entries(disk) as entries:
        held = {item.path: item for item in entries}
        big = content(held["big"])
        su = content(held["bin/su"])
    assert big == (tmp_path / "root" / "big").read_bytes()
    assert su == b"x" * 5000
    assert set(held) == {
        *("bin", "bin/su", "big", "empty", "short", "long", "second", "tmp", "lost+found"),
        "\u00fcml\u00e4ut",
    }
    assert (held["bin/su"].mode, held["tmp"].mode) == (0o4755, 0o1777)
    assert (held["big"].uid, held["big"].gid) == (70000, 42)
    assert (held["short"].target, held["long"].target) == ("bin/su", "y" * 200)
    assert (held["second"].kind, held["second"].target) == (Kind.HARDLINK, "big")
    assert dict(held["big"].xattrs) == {"user.note": b"hello"}
    assert held["empty"].size == 0
    assert held["bin/su"].mtime == 1_600_000_000


def content(entry: Entry) -> bytes:
    assert entry.content is not None
    with entry.content() as stream:
        return stream.read()


@pytest.mark.parametrize("damage", ["no disk", "no file system", "cut"])
def test_a_disk_that_cannot_be_read_is_an_integrity_error(
    disk: Path, tmp_path: Path, damage: str
) -> None:
    broken = tmp_path / "broken.qcow2"
    if damage == "no disk":
        broken.write_bytes(b"not a disk" * 1000)
    elif damage == "cut":
        broken.write_bytes(disk.read_bytes()[: 3 << 16])
    else:
        (tmp_path / "zeros").write_bytes(bytes(1 << 20))
        qcow2(tmp_path / "zeros", broken)
    with pytest.raises(IntegrityError, match=r"broken\.qcow2"), disk_entries(broken):
        pass
