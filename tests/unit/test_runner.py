"""The order in which a plan's cells begin."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.conformance.plan import CellSpec
from sandbox.conformance.runner import Queue
from sandbox.conformance.scenarios import SCENARIOS
from sandbox.harnesses.codex import CODEX
from sandbox.harnesses.kilocode import KILOCODE

HARNESSES = {"codex": CODEX, "kilocode": KILOCODE}


def cells(*names: str) -> list[CellSpec]:
    split = [name.split("/") for name in names]
    return [CellSpec(harness=h, image="debian-12", scenario=s) for h, s in split]


def begun(plan: Sequence[CellSpec], jobs: int) -> list[str]:
    """What begins at once, when nothing has ended yet."""
    queue, running = Queue(plan, HARNESSES, jobs=jobs), list[CellSpec]()
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
    queue, running, seen = Queue(plan, HARNESSES, jobs=jobs), list[CellSpec](), list[CellSpec]()
    while True:
        while len(running) < jobs and (cell := queue.next(running)):
            running.append(cell)
            seen.append(cell)
        if not running:
            break
        assert len(running) == jobs or len(seen) == len(plan)
        running.pop(random.randrange(len(running)))
    assert sorted(seen, key=str) == sorted(plan, key=str)
