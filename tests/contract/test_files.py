"""put, get and read: content, modes, links and times survive; nothing escapes."""

from __future__ import annotations

import hashlib
import os
import resource
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.engine.archive import Owner, PutFile
from sandbox.engine.limits import ReadOnlyMount
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import CouldNotFindOut, EngineFailure, NotFound, Unsupported, UsageError
from tests.contract.kit import run, said, sh

pytestmark = pytest.mark.docker

DISK_AND_MEMORY = pytest.mark.parametrize("base", ["/opt/kit", "/tmp/kit"], ids=["disk", "memory"])


@pytest.fixture(params=["host", "within"])
def any_box(request: pytest.FixtureRequest, box: Sandbox, scan_box: Sandbox) -> Sandbox:
    """Give sandboxes that are looked into from the host, and from within."""
    return box if request.param == "host" else scan_box


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Make a host folder with modes, links, times, and names that need care."""
    root = tmp_path / "tree"
    (root / "sub" / "empty").mkdir(parents=True)
    (root / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (root / "run.sh").chmod(0o755)
    (root / "secret").write_bytes(b"\0\xff")
    (root / "secret").chmod(0o600)
    (root / "sub" / ("long" * 40)).write_text("long")
    (root / "sub" / "blank and\nnewline é").write_text("odd")
    (root / "link").symlink_to("sub/empty")
    (root / "sub" / "up").symlink_to("../run.sh")
    os.utime(root / "run.sh", (1_000_000_000, 1_000_000_000))
    return root


@DISK_AND_MEMORY
def test_round_trip_of_a_tree(any_box: Sandbox, base: str, tree: Path, tmp_path: Path) -> None:
    any_box.put(tree, f"{base}/in/deep")
    assert said(run(any_box, f"{base}/in/deep/run.sh")) == "ran\n"
    assert any_box.get(f"{base}/in/deep", tmp_path / "back") == ()
    back = tmp_path / "back"
    names = {path.relative_to(tree) for path in tree.rglob("*")}
    assert {path.relative_to(back) for path in back.rglob("*")} == names
    for name in names:
        assert kind(back / name) == kind(tree / name)
    assert (back / "run.sh").stat().st_mtime == 1_000_000_000
    assert list(tmp_path.glob(".get-*")) == []


def kind(path: Path) -> object:
    status = path.lstat()
    if path.is_symlink():
        return path.readlink()
    return stat.S_IMODE(status.st_mode), path.read_bytes() if path.is_file() else "folder"


@DISK_AND_MEMORY
def test_files_from_memory(any_box: Sandbox, base: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"from the host")
    files = [
        PutFile(path="a/b/plain", data=b"plain"),
        PutFile(path="tool", data=b"#!/bin/sh\nexit 9\n", mode=0o755),
        PutFile(path="empty", data=b""),
        PutFile(path="linked", link_to="a/b/plain"),
        PutFile(path="copied", source=source, mode=0o640),
    ]
    any_box.put(files, f"{base}/files")
    assert said(sh(any_box, f"cd {base}/files; cat a/b/plain linked empty copied")) == (
        "plainplainfrom the host"
    )
    assert run(any_box, f"{base}/files/tool").exit_code == 9
    modes = said(sh(any_box, f"cd {base}/files; stat -c '%a %u %g' a a/b/plain tool copied"))
    assert modes.splitlines() == ["755 0 0", "644 0 0", "755 0 0", "640 0 0"]


@DISK_AND_MEMORY
def test_put_overwrites_files_and_keeps_the_rest(any_box: Sandbox, base: str) -> None:
    place = f"{base}/again"
    said(sh(any_box, f"mkdir -p {place}/sub; chmod 700 {place}/sub; ln -s two {place}/one"))
    files = [PutFile(path=name, data=b"1") for name in ("one", "two", "sub/three")]
    any_box.put(files, place)
    any_box.put([PutFile(path="one", data=b"changed", mode=0o4750)], place)
    assert (any_box.read(f"{place}/one"), any_box.read(f"{place}/two")) == (b"changed", b"1")
    listed = said(sh(any_box, f"cd {place}; stat -c '%A %u %g' one two sub sub/three"))
    assert listed.splitlines() == [
        "-rwsr-x--- 0 0",
        "-rw-r--r-- 0 0",
        "drwxr-xr-x 0 0",
        "-rw-r--r-- 0 0",
    ]
    assert said(sh(any_box, f"stat -c %Y {place}/one {place}/two; rm -r {place}")) == "0\n0\n"


@DISK_AND_MEMORY
def test_files_belong_to_the_sandboxs_user(user_box: Sandbox, base: str) -> None:
    place = base.replace("/opt", "/workspace")
    user_box.put([PutFile(path="mine/file", data=b"x")], place)
    listed = said(sh(user_box, f"stat -c '%u:%g' {place} {place}/mine {place}/mine/file"))
    assert listed.split() == ["1000:1000"] * 3
    assert sh(user_box, f"echo more >>{place}/mine/file; rm -r {place}/mine").ok


def test_a_plain_user_puts_nothing_into_folders_of_others(user_box: Sandbox) -> None:
    said(sh(user_box, "mkdir -p /tmp/theirs; chmod 755 /tmp/theirs", user="0"))
    with pytest.raises(EngineFailure):
        user_box.put([PutFile(path="file", data=b"x")], "/tmp/theirs")
    assert said(sh(user_box, "ls /tmp/theirs; rm -r /tmp/theirs", user="0")) == ""


def test_small_files_need_no_tar_where_the_sandbox_is_seen(make: Callable[..., Sandbox]) -> None:
    with make() as own:
        said(sh(own, 'rm "$(command -v tar)"'))
        own.put([PutFile(path="a/file", data=b"x")], "/tmp/new")
        assert own.read("/tmp/new/a/file") == b"x"
        with pytest.raises(Unsupported):
            own.put([PutFile(path="link", link_to="file")], "/tmp/new")


def test_files_may_be_given_to_others(box: Sandbox) -> None:
    for place in ("/opt/given", "/tmp/given"):
        box.put([PutFile(path="file", data=b"")], place, owner=Owner(uid=12, gid=34))
        assert said(run(box, "stat", "-c", "%u:%g", f"{place}/file")) == "12:34\n"


def test_a_single_host_file(box: Sandbox, tree: Path, tmp_path: Path) -> None:
    box.put(tree / "run.sh", "/opt/single")
    assert said(run(box, "/opt/single/run.sh")) == "ran\n"
    box.get("/opt/single/run.sh", tmp_path / "new" / "folder" / "named")
    assert (tmp_path / "new/folder/named").read_text() == "#!/bin/sh\necho ran\n"


@pytest.mark.parametrize("target", ["/tmp/kit-target", "/opt/kit-target"])
def test_links_in_the_sandbox_lead_to_the_right_mount(
    any_box: Sandbox, target: str, tmp_path: Path
) -> None:
    sh(any_box, f"rm -rf {target} /srv/way; mkdir {target}; ln -s ../{target} /srv/way")
    any_box.put([PutFile(path="f", data=b"found")], "/srv/way/in")
    assert said(run(any_box, "cat", f"{target}/in/f")) == "found"
    assert any_box.read("/srv/way/in/f") == b"found"
    any_box.get("/srv/way", tmp_path / "copy")
    assert (tmp_path / "copy/in/f").read_bytes() == b"found"


@pytest.mark.parametrize(("place", "size_mib"), [("/opt/large", 200), ("/tmp/large", 64)])
def test_large_files_cost_no_memory(
    box: Sandbox, place: str, size_mib: int, tmp_path: Path
) -> None:
    source, piece = tmp_path / "large", os.urandom(1 << 20)
    with source.open("wb") as file:
        for _ in range(size_mib):
            file.write(piece)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    box.put(source, place)
    box.get(f"{place}/large", tmp_path / "back")
    growth_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert growth_kib < 40 * 1024
    with source.open("rb") as one, (tmp_path / "back").open("rb") as other:
        assert hashlib.file_digest(one, "sha256").digest() == (
            hashlib.file_digest(other, "sha256").digest()
        )
    run(box, "rm", "-r", place)


def test_many_files(box: Sandbox, tmp_path: Path) -> None:
    box.put([PutFile(path=f"{n % 10}/{n}", data=b"%d" % n) for n in range(600)], "/opt/many")
    assert said(sh(box, "find /opt/many -type f | wc -l")).strip() == "600"
    box.get("/opt/many", tmp_path / "many")
    assert sum(path.is_file() for path in (tmp_path / "many").rglob("*")) == 600


@DISK_AND_MEMORY
def test_nothing_leaves_the_copy(box: Sandbox, base: str, tmp_path: Path) -> None:
    script = """rm -rf "$1"; mkdir -p "$1/in"; cd "$1"; echo ok >in/kept; ln -s /etc/passwd absolute
        ln -s ../../../../etc/passwd outside; ln -s in inside; mkfifo pipe; ln -s in/../../.. sly"""
    assert sh(box, script, f"{base}/escape").ok
    left_out = box.get(f"{base}/escape", tmp_path / "copy")
    assert {name.rpartition("/")[2] for name in left_out} == {"absolute", "outside", "pipe", "sly"}
    names = {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*")}
    assert names == {"in", "in/kept", "inside"}


def test_set_id_bits_do_not_reach_the_host(box: Sandbox, tmp_path: Path) -> None:
    sh(box, "cp /bin/cat /opt/setid; chmod 6777 /opt/setid")
    box.get("/opt/setid", tmp_path / "setid")
    assert stat.S_IMODE((tmp_path / "setid").stat().st_mode) == 0o755


def test_what_is_not_there(any_box: Sandbox, tmp_path: Path) -> None:
    for path in ("/no/such", "/tmp/no-such", "/etc/passwd/below"):
        with pytest.raises(NotFound, match="there is no"):
            any_box.get(path, tmp_path / "x")
        with pytest.raises(NotFound, match="there is no"):
            any_box.read(path)
    assert list(tmp_path.iterdir()) == []


def test_read(any_box: Sandbox) -> None:
    sh(any_box, "printf 'a\\000b' >/opt/zero; printf 12345 >/tmp/five; ln -sf /tmp/five /opt/five")
    assert any_box.read("/opt/zero") == b"a\0b"
    assert any_box.read("/opt/five", limit=5) == b"12345"
    assert b"Name:" in any_box.read("/proc/1/status")
    assert any_box.read("/etc/hosts").startswith(b"127.0.0.1")
    with pytest.raises(CouldNotFindOut, match="larger than 4 bytes"):
        any_box.read("/opt/five", limit=4)
    with pytest.raises(NotFound, match="is a folder"):
        any_box.read("/etc")


def test_wrong_uses_are_refused(box: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="overwrites nothing"):
        box.get("/etc/passwd", tmp_path / "there")
    with pytest.raises(UsageError, match="must be absolute"):
        box.read("etc/passwd")
    with pytest.raises(UsageError, match="is no folder"):
        box.put([PutFile(path="x", data=b"")], "/etc/passwd")
    with pytest.raises(UsageError, match="neither file, folder"):
        box.put(tmp_path, "/opt/odd")
    with pytest.raises(UsageError, match="nothing at"):
        box.put(tmp_path / "absent", "/opt/odd")
    with pytest.raises(UsageError, match="whole file system"):
        box.get("/", tmp_path / "all")
    for path in ("/absolute", "../up", ""):
        with pytest.raises(UsageError, match="relative path"):
            PutFile(path=path, data=b"")


def test_read_only_mount(make: Callable[..., Sandbox], tree: Path) -> None:
    with make(mounts=[ReadOnlyMount(source=tree, target="/mnt/tree")]) as own:
        assert said(run(own, "/mnt/tree/run.sh")) == "ran\n"
        assert sh(own, "echo x >/mnt/tree/new").exit_code != 0
        assert own.read("/mnt/tree/secret") == b"\0\xff"
        with pytest.raises(EngineFailure):
            own.put([PutFile(path="new", data=b"")], "/mnt/tree")
    assert not (tree / "new").exists()
