"""The order in which a plan's cells begin, and how many at a time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Barrier, Event
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.conformance.estimate import Estimates
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.queue import Queue
from sandbox.conformance.room import Room
from sandbox.conformance.runner import ended_cells
from sandbox.conformance.scenarios import SCENARIOS
from sandbox.conformance.spare import Spare, no_spare
from sandbox.conformance.world import World
from sandbox.evidence.cell import CellRecord
from sandbox.evidence.costs import CellCost
from sandbox.harnesses.codex import CODEX
from sandbox.harnesses.kilocode import KILOCODE

HARNESSES = {"codex": CODEX, "kilocode": KILOCODE}


def cells(*names: str) -> list[CellSpec]:
    split = [name.split("/") for name in names]
    return [CellSpec(harness=h, image="debian-12", scenario=s) for h, s in split]


def queue_of(plan: Sequence[CellSpec], jobs: int, mib: float | None = None) -> Queue:
    return Queue(plan, Estimates({}, HARNESSES), jobs=jobs, room=Room(mib, lambda: None))


def begun(plan: Sequence[CellSpec], jobs: int) -> list[str]:
    """What begins at once, when nothing has ended yet."""
    queue, running = queue_of(plan, jobs), list[CellSpec]()
    while len(running) < jobs and (cell := queue.next(running)):
        running.append(cell)
    return [f"{cell.harness}/{cell.scenario}" for cell in running]


PLAN = cells(
    "codex/tool_success", "codex/tool_failure", "codex/run_timeout",
    "kilocode/tool_success", "kilocode/tool_failure", "kilocode/run_timeout",
)  # fmt: skip


@pytest.mark.parametrize(
    ("jobs", "order"),
    [
        (1, ["kilocode/run_timeout"]),
        (2, ["kilocode/run_timeout", "kilocode/tool_success"]),
        (4, ["kilocode/run_timeout", "codex/run_timeout", "kilocode/tool_success",
             "kilocode/tool_failure"]),
    ],
)  # fmt: skip
def test_half_of_the_jobs_wait_and_the_slowest_start_first(jobs: int, order: list[str]) -> None:
    assert begun(PLAN, jobs) == order


def test_cells_that_wait_take_every_job_when_nothing_else_is_left() -> None:
    waiting = cells("codex/run_timeout", "kilocode/run_timeout", "codex/run_timeout")
    assert len(begun(waiting, 3)) == 3


@given(
    st.lists(st.tuples(st.sampled_from(sorted(HARNESSES)), st.sampled_from(sorted(SCENARIOS)))),
    st.integers(1, 6), st.randoms(use_true_random=False),
)  # fmt: skip
def test_every_cell_begins_once_and_no_job_is_idle(
    names: list[tuple[str, str]], jobs: int, random: Random
) -> None:
    plan = cells(*("/".join(pair) for pair in names))
    queue, running, seen = queue_of(plan, jobs), list[CellSpec](), list[CellSpec]()
    while True:
        while len(running) < jobs and (cell := queue.next(running)):
            running.append(cell)
            seen.append(cell)
        if not running:
            break
        assert len(running) == jobs or len(seen) == len(plan)
        running.pop(random.randrange(len(running)))
    assert sorted(seen, key=str) == sorted(plan, key=str)


def memory_of(cells: Sequence[CellSpec]) -> float:
    return sum(Estimates({}, HARNESSES).peak_mib(cell) for cell in cells)


def test_a_cell_begins_when_its_memory_fits_and_one_always_may() -> None:
    queue = queue_of(PLAN, jobs=4, mib=900.0)
    first = queue.next([])
    assert first is not None
    assert memory_of([first]) == 700
    second = queue.next([first])
    assert second is not None
    assert second.harness == "codex"  # another of the heavy ones has no room beside the first
    assert queue.next([first, second]) is None
    assert queue_of(PLAN, jobs=4, mib=1.0).next([]) is not None


def test_what_is_free_at_the_moment_counts_too() -> None:
    room = Room(10_000.0, lambda: 50.0)
    assert room.fits(60, [])
    assert not room.fits(60, [10])
    assert room.fits(40, [10])
    assert Room(None, lambda: 0.0).fits(60, [10])


def test_a_heavy_cell_does_not_wait_for_all_light_ones() -> None:
    quick = [one.name for one in SCENARIOS.values() if not one.expectation.timed_out]
    light = [f"codex/{name}" for name in sorted(quick) if not SCENARIOS[name].companion]
    plan = cells("kilocode/tool_success", *light)
    queue, running = queue_of(plan, jobs=2, mib=750.0), cells("codex/tool_failure")
    before = 0
    while (cell := queue.next(running)) is not None:
        before += 1
        running = [*running[1:], cell] if len(running) > 1 else [*running, cell]
    assert before == 4
    heavy = queue.next([])
    assert heavy is not None
    assert heavy.harness == "kilocode"
    assert queue.next([]) is not None


@given(
    st.lists(st.tuples(st.sampled_from(sorted(HARNESSES)), st.sampled_from(sorted(SCENARIOS)))),
    st.integers(1, 5), st.integers(50, 3_000), st.randoms(use_true_random=False),
)  # fmt: skip
def test_every_cell_begins_once_within_memory_or_alone(
    names: list[tuple[str, str]], jobs: int, mib: int, random: Random
) -> None:
    plan = cells(*("/".join(pair) for pair in names))
    queue, running, seen = queue_of(plan, jobs, mib), list[CellSpec](), list[CellSpec]()
    while True:
        while len(running) < jobs and (cell := queue.next(running)):
            running.append(cell)
            seen.append(cell)
            assert len(running) == 1 or memory_of(running) <= mib
        if not running:
            break
        running.pop(random.randrange(len(running)))
    assert sorted(seen, key=str) == sorted(plan, key=str)


def test_earlier_seconds_decide_the_order() -> None:
    plan = cells("codex/tool_success", "codex/tool_failure", "kilocode/tool_success")
    costs = {"codex/debian-12/tool_failure": CellCost(seconds=900)}
    known = Estimates(costs, HARNESSES)
    queue = Queue(plan, known, jobs=3, room=Room(None, lambda: None))
    assert [str(queue.next([])) for _ in plan] == [str(plan[n]) for n in (1, 2, 0)]


def together(spare: Spare, parties: int) -> int:
    """Run as many cells as must meet, all of whom wait for each other; return how many ended."""
    meeting = Barrier(parties)

    def run(cell: CellSpec, world: World) -> CellRecord:
        meeting.wait(20)
        return cast("CellRecord", cell)

    world = cast("World", SimpleNamespace(cancel=Event()))
    queue = queue_of(cells(*["codex/tool_success"] * parties), jobs=spare.jobs)
    with ThreadPoolExecutor(spare.most) as pool:
        return sum(one.exception() is None for one in ended_cells(pool, queue, world, run, spare))


def idle_machine(jobs: int, most: int) -> Spare:
    seconds = iter(range(0, 10_000, 3))
    times: list[float] = []

    def clock() -> float:
        times.append(float(next(seconds)))
        return times[-1]

    return Spare(jobs=jobs, most=most, processors=2, idle_s=lambda: 2 * times[-1], clock=clock)


def test_more_cells_than_the_usual_ones_run_on_an_idle_machine() -> None:
    assert together(no_spare(2), 2) == 2
    assert together(idle_machine(jobs=1, most=3), 3) == 3


def test_the_processors_are_looked_at_anew_after_each_cell_that_began() -> None:
    spare = no_spare(2)
    looks: list[None] = []
    spare.begun = lambda: looks.append(None)  # type: ignore[method-assign]
    assert together(spare, 2) == len(looks) == 2
