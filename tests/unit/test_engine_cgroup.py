"""Control groups: the kernel's files are read right, and only the container's own are used."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.engine.cgroup import (
    ContainerCgroups,
    kill_group,
    measured,
    move,
    parse_counts,
    parse_membership,
    parse_mounts,
    remove_group,
)
from sandbox.errors import EngineFailure

ID = "c0ffee" * 10
V2_MOUNT = "30 23 0:26 {root} {point} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNT = "31 30 0:27 {root} {point}/{name} rw - cgroup cgroup rw,{name}\n"
PATHS = st.text(alphabet="abc/:-.", max_size=20).map(lambda text: f"/{text}")


@given(st.dictionaries(st.text(alphabet="abc", min_size=1), PATHS, max_size=5), PATHS)
def test_membership_is_read_back(groups: dict[str, str], unified: str) -> None:
    lines = [f"{number}:{name}:{path}" for number, (name, path) in enumerate(groups.items(), 1)]
    text = "\n".join([*lines, f"0::{unified}"]) + "\n"
    assert parse_membership(text) == {**groups, "": unified}


def test_controllers_share_a_hierarchy() -> None:
    assert parse_membership("4:cpu,cpuacct:/a\n1:name=systemd:/b\n") == {
        "cpu": "/a",
        "cpuacct": "/a",
        "name=systemd": "/b",
    }


def test_mounts_of_both_versions() -> None:
    text = (
        "22 1 8:1 / / rw - ext4 /dev/sda rw\n"
        + V2_MOUNT.format(root="/", point="/sys/fs/cgroup/uni\\040fied")
        + "32 30 0:28 /docker/x /sys/fs/cgroup/cpu,cpuacct rw - cgroup none rw,cpu,cpuacct\n"
        + "broken line\n"
    )
    mounts = parse_mounts(text)
    assert mounts[""] == ("/", "/sys/fs/cgroup/uni fied")
    assert mounts["cpuacct"] == ("/docker/x", "/sys/fs/cgroup/cpu,cpuacct")
    assert "ext4" not in mounts


def test_counts() -> None:
    text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\nodd\nmax many\n"
    assert parse_counts(text) == {"oom_kill_disable": 0, "under_oom": 0, "oom_kill": 3}


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """Make a /proc with one process that is in a container's groups of both versions."""
    (tmp_path / "proc" / "7").mkdir(parents=True)
    (tmp_path / "proc" / "self").mkdir()
    point = tmp_path / "cg"
    for name in ("unified", "freezer", "memory", "cpuacct"):
        for path in (f"docker/{ID}", "docker/other"):
            (point / name / path).mkdir(parents=True)
            (point / name / path / "cgroup.procs").write_text("7\n8\n")
    v1 = "".join(
        V1_MOUNT.format(root="/", point=point, name=name)
        for name in ("freezer", "memory", "cpuacct")
    )
    mounts = V2_MOUNT.format(root="/", point=point / "unified") + v1
    (tmp_path / "proc/self/mountinfo").write_text(mounts)
    text = f"3:freezer:/docker/{ID}\n2:memory,cpuacct:/docker/{ID}\n0::/docker/{ID}\n"
    (tmp_path / "proc/7/cgroup").write_text(text)
    return tmp_path


def test_the_containers_groups_are_found(kernel: Path) -> None:
    groups = ContainerCgroups.of(7, ID, proc=kernel / "proc")
    assert groups.paths["freezer"] == kernel / "cg/freezer/docker" / ID
    assert groups.paths[""] == kernel / "cg/unified/docker" / ID
    assert groups.members() == {7, 8}


def test_a_process_that_is_moved_during_the_look_is_seen(tmp_path: Path) -> None:
    own, below = tmp_path / "cgroup.procs", tmp_path / "exec-1"
    os.mkfifo(own)

    def move_and_answer() -> None:
        with own.open("w") as answer:  # waits for the reader
            below.mkdir()
            (below / "cgroup.procs").write_text("8\n")
            answer.write("7\n")

    with ThreadPoolExecutor(1) as thread:
        thread.submit(move_and_answer)
        assert ContainerCgroups({"": tmp_path}).members() == {7, 8}


@pytest.mark.parametrize("where", ["/", "/docker", "/docker/other", "/user.slice"])
def test_a_group_that_is_not_the_containers_is_never_used(kernel: Path, where: str) -> None:
    (kernel / "proc/7/cgroup").write_text(f"3:freezer:{where}\n0::{where}\n")
    with pytest.raises(EngineFailure, match="not in a cgroup of container"):
        ContainerCgroups.of(7, ID, proc=kernel / "proc")


def test_a_process_that_is_gone(kernel: Path) -> None:
    with pytest.raises(EngineFailure, match="cannot find the cgroup"):
        ContainerCgroups.of(99, ID, proc=kernel / "proc")


def test_the_surest_hierarchy_is_chosen(kernel: Path) -> None:
    groups = ContainerCgroups.of(7, ID, proc=kernel / "proc")
    assert groups.tracking_root() == ("freezer", groups.paths["freezer"])  # no cgroup.kill
    assert groups.tracking_root("unified") is None
    (groups.paths[""] / "cgroup.kill").touch()
    assert groups.tracking_root() == ("unified", groups.paths[""])
    assert groups.tracking_root("freezer") == ("freezer", groups.paths["freezer"])
    assert ContainerCgroups({}).tracking_root() is None


def test_a_paused_container_is_told_by_either_version(kernel: Path) -> None:
    groups = ContainerCgroups.of(7, ID, proc=kernel / "proc")
    assert not groups.are_frozen()
    for state, frozen in (("THAWED", False), ("FREEZING", True), ("FROZEN", True)):
        (groups.paths["freezer"] / "freezer.state").write_text(f"{state}\n")
        assert groups.are_frozen() is frozen
    unified = ContainerCgroups({"": groups.paths[""]})
    for count in (0, 1):
        (groups.paths[""] / "cgroup.events").write_text(f"populated 1\nfrozen {count}\n")
        assert unified.are_frozen() is bool(count)


def test_use_by_version_1(kernel: Path) -> None:
    groups = ContainerCgroups.of(7, ID, proc=kernel / "proc")
    (groups.paths["memory"] / "memory.max_usage_in_bytes").write_text("4096\n")
    (groups.paths["memory"] / "memory.oom_control").write_text("oom_kill 2\n")
    (groups.paths["cpuacct"] / "cpuacct.usage").write_text("1500000000\n")
    assert groups.use() == measured(
        cpu_s=1.5, memory_peak_bytes=4096, oom_kills=2, source="cgroup-v1"
    )


def test_use_by_version_2(kernel: Path) -> None:
    unified = ContainerCgroups.of(7, ID, proc=kernel / "proc").paths[""]
    (unified / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    (unified / "memory.peak").write_text("8192\n")
    (unified / "memory.events").write_text("oom 9\noom_kill 1\n")
    use = ContainerCgroups({"": unified}).use()
    assert use == measured(cpu_s=2.5, memory_peak_bytes=8192, oom_kills=1, source="cgroup-v2")


def test_what_is_not_counted_is_unknown(kernel: Path) -> None:
    groups = ContainerCgroups.of(7, ID, proc=kernel / "proc")
    for use, source in (
        (groups.use(), "cgroup-v1"),
        (ContainerCgroups({"": kernel / "gone"}).use(), "cgroup-v2"),
    ):
        assert use == measured(cpu_s=None, memory_peak_bytes=None, oom_kills=None, source=source)


def test_groups_that_are_gone(tmp_path: Path) -> None:
    assert remove_group(tmp_path / "gone")
    assert not remove_group(tmp_path / "..")
    assert kill_group("freezer", tmp_path / "gone")
    assert kill_group("unified", tmp_path / "gone")
    (tmp_path / "empty").mkdir()
    assert remove_group(tmp_path / "empty")


def test_move_writes_the_pid(tmp_path: Path) -> None:
    assert move(7, tmp_path)
    assert (tmp_path / "cgroup.procs").read_text() == "7"
