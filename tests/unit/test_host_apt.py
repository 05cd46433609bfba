"""What apt is asked for, when, and what its failures become."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from sandbox.engine.apt import Apt
from sandbox.engine.hostcommands import Completed, LocalCommands
from sandbox.errors import PrerequisiteMissing

OK = Completed(exit_code=0, output="")
LOCKED = Completed(exit_code=100, output="E: Could not get lock /var/lib/apt/lists/lock.\n")
BROKEN = Completed(exit_code=100, output="E: Unable to locate package thing\n")


class Scripted(LocalCommands):
    """A host whose programs end as the script says, in order."""

    def __init__(self, *ends: Completed | Exception, root: bool = True) -> None:
        self.ends = list(ends)
        self.root = root
        self.ran: list[str] = []
        self.environments: list[Mapping[str, str]] = []

    def is_root(self) -> bool:
        return self.root

    def which(self, name: str) -> str | None:
        return f"/usr/bin/{name}"

    def run(
        self, argv: Sequence[str], *, deadline_s: float, env: Mapping[str, str] | None = None
    ) -> Completed:
        words = [word for word in argv if not word.startswith("-o")]
        self.ran.append(" ".join(words))
        self.environments.append(env or {})
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    folder = tmp_path / "lists"
    folder.mkdir()
    (folder / "deb.example.test_main_Packages.lz4").touch()
    return folder


def apt(host: Scripted, lists: Path, *, journal: Path | None = None) -> Apt:
    slept: list[float] = []
    return Apt(host, lists=lists, journal=journal or lists / "none", sleep=slept.append)


INSTALL = "apt-get -y --no-install-recommends install thing"


def test_fresh_lists_are_used(lists: Path) -> None:
    host = Scripted(OK)
    apt(host, lists).install(["thing"])
    assert host.ran == [INSTALL]
    assert host.environments[0]["DEBIAN_FRONTEND"] == "noninteractive"


@pytest.mark.parametrize("state", ["missing", "old", "no folder"])
def test_missing_or_old_lists_are_refreshed_first(lists: Path, state: str) -> None:
    if state == "old":
        old = time.time() - 2 * 86_400
        os.utime(lists, (old, old))
    else:
        next(lists.iterdir()).unlink()
    if state == "no folder":
        lists.rmdir()
    host = Scripted(OK, OK)
    apt(host, lists).install(["thing"])
    assert host.ran == ["apt-get update", INSTALL]


def test_lists_that_turn_out_old_are_refreshed_once(lists: Path) -> None:
    host = Scripted(BROKEN, OK, OK)
    apt(host, lists).install(["thing"])
    assert host.ran == [INSTALL, "apt-get update", INSTALL]


def test_a_failure_has_the_last_words_and_the_command(lists: Path) -> None:
    with pytest.raises(PrerequisiteMissing, match="Unable to locate") as caught:
        apt(Scripted(BROKEN, OK, BROKEN), lists).install(["thing"])
    assert "install thing" in (caught.value.cure or "")


def test_it_waits_for_another_apt(lists: Path) -> None:
    next(lists.iterdir()).unlink()
    host = Scripted(LOCKED, LOCKED, OK, OK)
    apt(host, lists).install(["thing"])
    assert host.ran == [*["apt-get update"] * 3, INSTALL]


def test_it_does_not_wait_for_ever(lists: Path) -> None:
    next(lists.iterdir()).unlink()
    with pytest.raises(PrerequisiteMissing, match="Could not get lock"):
        apt(Scripted(*[LOCKED] * 1000), lists).install(["thing"])


def test_an_interrupted_installation_is_finished_first(lists: Path, tmp_path: Path) -> None:
    journal = tmp_path / "updates"
    journal.mkdir()
    (journal / "0003").touch()
    host = Scripted(OK, OK)
    apt(host, lists, journal=journal).install(["thing"])
    assert host.ran == ["dpkg --configure -a", INSTALL]


def test_a_time_out_is_a_missing_prerequisite(lists: Path) -> None:
    with pytest.raises(PrerequisiteMissing, match="did not end"):
        apt(Scripted(TimeoutError("apt-get did not end within 1 s")), lists).install(["thing"])


@pytest.mark.parametrize("root", [True, False])
def test_only_root_can_use_it(lists: Path, root: bool) -> None:
    assert apt(Scripted(root=root), lists).usable() is root
