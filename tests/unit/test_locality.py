"""Whether an engine is on this machine, told by what can be seen of it and never by its address."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sandbox.engine.locality import INITIAL_PID_NAMESPACE, is_here
from sandbox.engine.owner import pid_namespace

HERE = os.uname().release
CONTAINER = "c" * 64


class Said:
    """An engine with these containers, whose volumes are folders below ``volumes``."""

    def __init__(self, *, pid: int | None = None, volumes: Path | None = None) -> None:
        self.pid = pid
        self.volumes = volumes
        self.made: list[str] = []

    def containers(self) -> list[dict[str, Any]]:
        return [] if self.pid is None else [{"Id": CONTAINER}]

    def inspect_container(self, _: str) -> dict[str, Any]:
        return {"State": {"Pid": self.pid}}

    def create_volume(self, name: str, *, labels: dict[str, str]) -> dict[str, str]:
        assert labels["sandbox.project"] == "sandbox"
        self.made.append(name)
        if self.volumes is not None:
            (self.volumes / name / "_data").mkdir(parents=True)
        return {"Mountpoint": f"{self.volumes or '/nowhere'}/{name}/_data"}

    def remove_volume(self, name: str, *, force: bool) -> None:
        assert force
        self.made.remove(name)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """This machine's processes: an engine, a tunnel, and one of a container."""
    for pid, comm, group in ((7, "dockerd", ""), (8, "ssh", ""), (9, "sh", CONTAINER)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text(f"{comm}\n")
        (tmp_path / str(pid) / "cgroup").write_text(f"0::/docker/{group}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("kernel", "peer", "pid", "here"),
    [
        pytest.param(HERE, 7, None, True, id="the engine at its socket"),
        pytest.param("6.0-desktop", 7, None, False, id="a virtual machine's"),
        pytest.param(HERE, 0, 9, False, id="a socket from outside of this container"),
        pytest.param(HERE, 5, 9, False, id="a peer that is not seen"),
        pytest.param(HERE, 8, None, False, id="a tunnel to a machine of the same kernel"),
        pytest.param(HERE, 8, 9, True, id="a tunnel back to this machine"),
        pytest.param(HERE, None, 9, True, id="TCP, and its container is here"),
        pytest.param(HERE, None, 7, False, id="TCP, and the pid is another process's"),
        pytest.param(HERE, None, 4, False, id="TCP, and there is no such process"),
        pytest.param("6.0-desktop", None, 9, False, id="TCP, and another kernel"),
    ],
)
def test_evidence(proc: Path, kernel: str, peer: int | None, pid: int | None, here: bool) -> None:
    said = Said(pid=pid)
    assert is_here(said, kernel=kernel, peer=peer, proc=proc) is here
    assert said.made == []


@pytest.mark.skipif(
    os.geteuid() != 0 or pid_namespace() != INITIAL_PID_NAMESPACE,
    reason="a folder of the engine proves it to root in the first pid namespace only",
)
def test_a_folder_made_just_now_is_proof_and_is_removed(proc: Path, tmp_path: Path) -> None:
    said = Said(volumes=tmp_path / "volumes")
    assert is_here(said, kernel=HERE, peer=None, proc=proc)
    assert said.made == []
