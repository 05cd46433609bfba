"""Where a private session folder may go: seen through symlinks, mounts and odd names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.agents.contract import UnprocessableError
from sandbox.agents.look import look_at
from sandbox.agents.overlap import Folder, Mount, choose_root, overlap, parse_mounts
from sandbox.errors import CouldNotFindOut
from tests.unit.agent_fakes import FolderPlace, Ran, Text

CONTAINER = r"""
600 500 0:50 / / rw,relatime - overlay overlay rw
601 600 0:53 / /proc rw,nosuid - proc proc rw
602 600 0:60 / /tmp rw,nosuid,nodev,relatime - tmpfs tmpfs rw,size=1048576k
603 600 8:1 /data/my\040work /work rw,relatime - ext4 /dev/sda1 rw
604 600 8:1 /data /mnt/all rw,relatime - ext4 /dev/sda1 rw
605 600 0:61 / /opt/ro ro,noexec - tmpfs tmpfs ro
606 600 0:62 / /var/tmp rw,noexec,relatime - tmpfs tmpfs rw
607 600 0:60 /inner /srv/inner rw - tmpfs tmpfs rw
"""
MOUNTS = parse_mounts(CONTAINER)


def folder(
    path: str, *, resolved: str | None = None, writable: bool = True, free: int | None = 10**7
) -> Folder:
    return Folder(
        path=path,
        resolved=PurePosixPath(path if resolved is None else resolved),
        writable=writable,
        free_kib=free,
    )


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ("/tmp/s", "/work", None),
        ("/tmp/s", "/root", None),
        ("/tmp/s", "/tmp", "is inside"),
        ("/tmp", "/tmp/work", "is inside"),
        ("/tmp", "/tmp", "same folder"),
        ("/tmp/s", "/", "is inside"),
        ("/mnt/all/my work/s", "/work", "is a mount"),
        ("/work/s", "/mnt/all", "is a mount"),
        ("/mnt/all/other", "/work", None),
        ("/srv/inner/s", "/tmp/inner", "is a mount"),
        ("/srv/inner/s", "/tmp/else", None),
        ("/tmp/inner/s", "/srv", "is a mount"),
        ("/tmpx/s", "/tmp", None),
    ],
)
def test_overlaps_are_found_in_both_orders(one: str, other: str, shared: str | None) -> None:
    for pair in ((one, other), (other, one)):
        found = overlap(PurePosixPath(pair[0]), PurePosixPath(pair[1]), MOUNTS)
        assert (found is None) == (shared is None), found
        assert shared is None or (found is not None and shared in found)


def test_a_mount_hides_what_is_below_it() -> None:
    again = CONTAINER + "700 600 0:70 / /work rw - tmpfs tmpfs rw\n"
    mounts = parse_mounts(again)
    assert overlap(PurePosixPath("/mnt/all/my work"), PurePosixPath("/work"), mounts) is None


def test_the_first_fitting_root_is_chosen() -> None:
    chosen = choose_root(
        [folder("/tmp"), folder("/var/tmp")],
        workdir=folder("/work"),
        home=folder("/root"),
        mounts=MOUNTS,
    )
    assert chosen.path == "/tmp"


@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        (folder("/var/tmp"), "mounted noexec"),
        (folder("/opt/ro"), "mounted read-only"),
        (folder("/tmp", writable=False), "not writable"),
        (folder("/tmp", free=1000), "MiB needed"),
        (Folder(path="/x", resolved=None, writable=False, free_kib=None), "not there"),
        (folder("/tmp", resolved="/work/t"), "the task workdir"),
        (folder("/tmp", resolved="/home/me/t"), "the task's HOME"),
        (folder("/m", resolved="/mnt/all/my work"), "the task workdir"),
    ],
    ids=["noexec", "ro", "modes", "full", "missing", "workdir", "home", "bind"],
)
def test_a_root_that_will_not_do_is_named_with_its_reason(candidate: Folder, reason: str) -> None:
    with pytest.raises(UnprocessableError, match=reason) as caught:
        choose_root(
            [candidate],
            workdir=folder("/work"),
            home=folder("/home/me"),
            mounts=MOUNTS,
            need_kib=4096,
        )
    assert caught.value.cure


def test_space_that_nobody_could_tell_is_not_refused() -> None:
    chosen = choose_root(
        [folder("/tmp", free=None)],
        workdir=folder("/work"),
        home=None,
        mounts=MOUNTS,
        need_kib=10**9,
    )
    assert chosen.path == "/tmp"


def test_a_home_of_slash_is_nobodys() -> None:
    chosen = choose_root([folder("/tmp")], workdir=folder("/work"), home=folder("/"), mounts=MOUNTS)
    assert chosen.path == "/tmp"


@pytest.mark.parametrize("workdir", ["/", "/tmp", "/tmp/task"])
def test_a_workdir_that_holds_the_root_is_refused(workdir: str) -> None:
    expected = workdir in {"/", "/tmp"}
    roots = [folder("/tmp")]
    if expected:
        with pytest.raises(UnprocessableError):
            choose_root(roots, workdir=folder(workdir), home=None, mounts=MOUNTS)
    else:
        choose_root(roots, workdir=folder(workdir), home=None, mounts=MOUNTS)


def test_a_workdir_that_is_not_there_is_refused() -> None:
    missing = Folder(path="/nope", resolved=None, writable=False, free_kib=None)
    with pytest.raises(UnprocessableError, match="/nope is not there"):
        choose_root([folder("/tmp")], workdir=missing, home=None, mounts=MOUNTS)


PARTS = st.lists(st.sampled_from(["a", "b", "tmp", "work"]), max_size=4)


@given(PARTS, PARTS)
def test_overlap_is_symmetric_and_covers_containment(one: list[str], other: list[str]) -> None:
    first, second = PurePosixPath("/", *one), PurePosixPath("/", *other)
    found = overlap(first, second, MOUNTS) is not None
    assert found == (overlap(second, first, MOUNTS) is not None)
    if first.is_relative_to(second) or second.is_relative_to(first):
        assert found
    simple: tuple[Mount, ...] = MOUNTS[:1]
    plain = first.is_relative_to(second) or second.is_relative_to(first)
    assert (overlap(first, second, simple) is not None) == plain


def test_the_look_resolves_links_and_odd_names(tmp_path: Path) -> None:
    place = FolderPlace(tmp_path)
    odd = tmp_path / "a folder\nwith 'all' sorts\n"
    odd.mkdir()
    link = tmp_path / "link"
    link.symlink_to(odd)
    seen = look_at(place, [str(odd), str(link), str(tmp_path / "none")])
    assert [f.resolved for f in seen.folders] == [PurePosixPath(odd), PurePosixPath(odd), None]
    assert [f.writable for f in seen.folders] == [True, True, False]
    assert seen.folders[0].free_kib is not None
    assert seen.folders[0].free_kib > 0
    assert seen.folders[2].free_kib is None
    assert any(mount.point == PurePosixPath("/") for mount in seen.mounts)


def test_a_look_that_fails_is_said(tmp_path: Path) -> None:
    class Broken(FolderPlace):
        def exec(self, argv: Sequence[str], **options: object) -> Ran:
            return Ran(1, Text(""), Text("cat: not found"))

    with pytest.raises(CouldNotFindOut, match="cat: not found"):
        look_at(Broken(tmp_path), ["/tmp"])


@pytest.mark.parametrize(
    ("rows", "free"),
    [(("t 9 2 7 3% /", "t 9 10 -1 100% /a b"), [7, 0]), (("t 9 2 7 3% /",), [None, None])],
    ids=["a row a folder", "a row missing"],
)
def test_free_room_is_known_where_df_has_a_row_for_each_folder(
    tmp_path: Path, rows: Sequence[str], free: list[int | None]
) -> None:
    df = "\n".join(("Filesystem 1024-blocks Used Available Capacity Mounted on", *rows))

    class Told(FolderPlace):
        def exec(self, argv: Sequence[str], **options: object) -> Ran:
            return Ran(0, Text(f"/a\n.\0y\0/b\n.\0y\0\0n\0{df}\n\0"), Text(""))

    seen = look_at(Told(tmp_path), ["/a", "/b", "/none"])
    assert [folder.free_kib for folder in seen.folders] == [*free, None]
