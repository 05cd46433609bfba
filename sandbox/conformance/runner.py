"""Runs a plan: cells side by side, each recorded once, interrupted cleanly."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace

from sandbox.conformance.cell import run_cell
from sandbox.conformance.interrupt import interruptible
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.scenarios import SCENARIOS
from sandbox.conformance.ways import run_volumes
from sandbox.conformance.world import World
from sandbox.errors import Interrupted
from sandbox.evidence.cell import CellRecord, RunRecord
from sandbox.evidence.folder import write_run
from sandbox.harnesses.base import Harness

RunCell = Callable[[CellSpec, World], CellRecord]


def begin(world: World, plan: Sequence[CellSpec], *, profile: str) -> RunRecord:
    """Return the record of a run of this plan that begins now."""
    return RunRecord(
        run_id=world.run_id,
        profile=profile,
        cells=tuple(cell.cell_id for cell in plan),
        started_at=time.time(),
    )


def run_plan(
    plan: Sequence[CellSpec],
    world: World,
    *,
    record: RunRecord,
    jobs: int,
    run: RunCell = run_cell,
) -> None:
    """Run the cells; ``jobs`` at a time, about half of them cells that wait (``Queue``).

    ``record`` is the run's; it may plan more cells than are run here.

    Ctrl-C or TERM once ends the cells that run, each with its sandbox removed and its folder
    written; a second one ends the process at once, and the next start sweeps.

    Raises:
        Interrupted: it was asked to stop; the run's folder holds what was seen.
    """
    write_run(world.folder, record)
    with run_volumes(world.engine, world.way, world.run_id) as volumes:
        _run_all(plan, replace(world, volumes=volumes), run, jobs)
    write_run(world.folder, record.model_copy(update={"completed_at": time.time()}))
    if world.cancel.is_set():
        raise Interrupted(
            f"the run was interrupted; what was seen is in {world.folder}",
            cure=f"see it with: sandbox judge {world.folder}",
        )


def _run_all(plan: Sequence[CellSpec], world: World, run: RunCell, jobs: int) -> None:
    steps = world.progress.step(f"running {len(plan)} cell(s)")
    with interruptible(world.cancel.set), steps as step:
        step.total(len(plan))
        pool = ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="cell")
        try:
            for finished in _finished(pool, plan, world, run, jobs=jobs):
                step.advance(1)
                world.progress.say(_line(finished.result()))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _finished(
    pool: ThreadPoolExecutor,
    plan: Sequence[CellSpec],
    world: World,
    run: RunCell,
    *,
    jobs: int,
) -> Iterator[Future[CellRecord]]:
    """Yield the cells as they end; none is begun after a cancel."""
    queue = Queue(plan, world.harnesses, jobs=jobs)
    running: dict[Future[CellRecord], CellSpec] = {}
    while True:
        while not world.cancel.is_set() and len(running) < jobs:
            cell = queue.next(running.values())
            if cell is None:
                break
            running[pool.submit(run, cell, world)] = cell
        if not running:
            return
        done, _ = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
        for future in done:
            del running[future]
            yield future


class Queue:
    """The order of a plan's cells: the longest first, and those that wait beside those that work.

    A cell whose deadline must expire takes that long on any machine and leaves the processors idle
    meanwhile. Half of the jobs, rounded up, are such cells while there are others, so that the rest
    of the plan is done beside them.
    """

    def __init__(
        self, plan: Sequence[CellSpec], harnesses: Mapping[str, Harness], *, jobs: int
    ) -> None:
        self._most_waiting = (jobs + 1) // 2
        ordered = sorted(plan, key=lambda cell: _weight(cell, harnesses), reverse=True)
        self._waiting = deque(cell for cell in ordered if _waits(cell))
        self._working = deque(cell for cell in ordered if not _waits(cell))

    def next(self, running: Iterable[CellSpec]) -> CellSpec | None:
        """Take the cell to begin beside those that run; None when none is left."""
        full = sum(_waits(cell) for cell in running) >= self._most_waiting
        if self._waiting and not (full and self._working):
            return self._waiting.popleft()
        return self._working.popleft() if self._working else None


def _waits(cell: CellSpec) -> bool:
    return SCENARIOS[cell.scenario].expectation.timed_out


def _weight(cell: CellSpec, harnesses: Mapping[str, Harness]) -> float:
    """Return what a cell may take beyond the others, in seconds: its harness's start."""
    harness = harnesses.get(cell.adapter)
    return 0.0 if harness is None else harness.capabilities.slow_start_s


def _line(record: CellRecord) -> str:
    seconds = record.completed_at - record.started_at
    end = (
        "recorded" if record.refusal is None else f"{record.refusal.kind}: {record.refusal.reason}"
    )
    tries = len(record.earlier_attempts)
    flaky = (
        f", flaky: {tries} attempt(s) before: {record.earlier_attempts[-1].reason}" if tries else ""
    )
    return f"{record.cell_id}: {end} ({seconds:.1f} s){flaky}"
