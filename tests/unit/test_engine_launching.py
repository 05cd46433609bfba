"""Launches in one container: whose turn it is, and that no process of a launch is missed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sandbox.engine.launching import Newcomers, Turn

OLD, PARENT, CHILD = (1, 10), (2, 20), (3, 30)


class Place:
    """A place of processes, of which one leaves a child behind just before it would be moved."""

    def __init__(self) -> None:
        self.there = {OLD}
        self.moved: list[int] = []

    def look(self) -> set[tuple[int, int | None]]:
        return set(self.there)

    def move(self, pid: int) -> bool:
        if pid == PARENT[0]:
            self.there = {OLD, CHILD}
            return False
        self.there = {one for one in self.there if one[0] != pid}
        self.moved.append(pid)
        return True


def test_the_child_of_one_that_is_gone_before_it_is_moved_is_not_missed() -> None:
    place = Place()
    newcomers = Newcomers(place.look, place.move)
    newcomers.begin()
    place.there.add(PARENT)
    newcomers.take_all()
    assert (place.there, place.moved) == ({OLD}, [CHILD[0]])


def test_only_what_is_still_there_counts_as_arrived() -> None:
    place = Place()
    newcomers = Newcomers(place.look, place.move)
    newcomers.begin()
    assert not newcomers.take()
    place.there.add(PARENT)
    assert not newcomers.take()
    assert newcomers.take()
    assert not newcomers.take()


def test_sandboxes_of_one_container_launch_one_at_a_time(tmp_path: Path) -> None:
    own, lent = Turn(tmp_path), Turn(tmp_path)
    assert own.take(time.monotonic())
    assert not own.take(time.monotonic())
    assert not lent.take(time.monotonic())
    own.give_back()
    assert lent.take(time.monotonic())
    assert not own.take(time.monotonic())
    lent.give_back()
    assert own.take(time.monotonic())
    own.give_back()


def test_a_container_that_is_gone_has_no_turns(tmp_path: Path) -> None:
    turn = Turn(tmp_path / "gone")
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            turn.take(time.monotonic())
