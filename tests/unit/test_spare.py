"""How many cells run at a time, and when one more begins."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.conformance.spare import Spare, idle_seconds, no_spare, spare_here

STAT = """\
cpu  900 0 300 5000 700 0 0 0 0 0
cpu0 500 0 100 2000 300 0 0 0 0 0
cpu1 400 0 200 3000 400 0 0 0 0 0
cpu10 1 0 1 90000 1 0 0 0 0 0
intr 12 0
"""


class Machine:
    """Processors whose idle time a test tells."""

    def __init__(self, jobs: int = 2, most: int = 4) -> None:
        self.now = 100.0
        self.idle: float | None = 50.0
        self.spare = Spare(
            jobs=jobs, most=most, processors=2, idle_s=lambda: self.idle, clock=lambda: self.now
        )

    def pass_by(self, seconds: float, *, idle: float) -> None:
        """Let time pass in which so many processors were idle."""
        self.now += seconds
        self.idle = (self.idle or 0.0) + seconds * idle


def test_usual_jobs_begin_on_a_busy_machine_too() -> None:
    machine = Machine()
    assert machine.spare.has_place(0)
    machine.spare.begun()
    assert machine.spare.has_place(1)
    machine.pass_by(10, idle=0)
    assert machine.spare.has_place(1)
    assert not machine.spare.has_place(2)


def test_one_more_begins_while_half_of_the_processors_idle_and_never_two_at_once() -> None:
    machine = Machine()
    machine.pass_by(1, idle=2)
    assert not machine.spare.has_place(2)  # not yet seen for long enough
    machine.pass_by(1.5, idle=2)
    assert machine.spare.has_place(2)
    machine.spare.begun()
    assert not machine.spare.has_place(3)
    machine.pass_by(2.5, idle=1)
    assert machine.spare.has_place(3)
    machine.spare.begun()
    machine.pass_by(60, idle=2)
    assert not machine.spare.has_place(4)  # as many as may run


def test_idleness_of_long_ago_does_not_count() -> None:
    machine = Machine()
    machine.pass_by(60, idle=0.4)
    assert not machine.spare.has_place(2)
    machine.pass_by(2.5, idle=0.9)
    assert not machine.spare.has_place(2)
    machine.pass_by(2.5, idle=1.1)
    assert machine.spare.has_place(2)


def test_a_cell_that_begins_in_a_usual_place_is_looked_at_first_too() -> None:
    machine = Machine()
    machine.pass_by(10, idle=2)
    machine.spare.begun()
    assert not machine.spare.has_place(2)


def test_nothing_more_begins_when_nobody_knows_how_idle_it_is() -> None:
    machine = Machine()
    machine.idle = None
    machine.spare.begun()
    machine.now += 10
    assert not machine.spare.has_place(2)


def test_a_number_that_was_asked_for_stays_the_most() -> None:
    spare = no_spare(3)
    assert (spare.jobs, spare.most) == (3, 3)
    assert spare.has_place(2)
    assert not spare.has_place(3)


@pytest.mark.parametrize(
    ("processors", "seconds"), [({0}, 23.0), ({0, 1}, 57.0), ({7}, None), ({10}, 900.01)]
)
def test_idle_time_is_that_of_the_processors_that_may_be_used(
    tmp_path: Path, processors: set[int], seconds: float | None
) -> None:
    (tmp_path / "stat").write_text(STAT)
    found = idle_seconds(processors, tmp_path / "stat")
    ticks = os.sysconf("SC_CLK_TCK")
    assert found == (None if seconds is None else seconds * 100 / ticks)


@pytest.mark.parametrize("text", ["", "cpu0 1 2\n", "cpu0 a b c d e\n"])
def test_a_kernel_that_does_not_say_is_nobody_who_knows(tmp_path: Path, text: str) -> None:
    (tmp_path / "stat").write_text(text)
    assert idle_seconds({0}, tmp_path / "stat") is None
    assert idle_seconds({0}, tmp_path / "none") is None


def test_this_machine_has_two_more_places_a_processor() -> None:
    spare = spare_here(5)
    assert spare.most > spare.jobs == 5
    assert (spare.most - spare.jobs) % 2 == 0
