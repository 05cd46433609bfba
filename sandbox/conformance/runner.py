"""Runs a plan: cells side by side, each recorded once, interrupted cleanly."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace

from sandbox.conformance.cell import run_cell
from sandbox.conformance.estimate import Estimates
from sandbox.conformance.interrupt import interruptible
from sandbox.conformance.pace import Pace
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.queue import Queue
from sandbox.conformance.room import room_for
from sandbox.conformance.secrets import host_canary
from sandbox.conformance.spare import Spare
from sandbox.conformance.ways import run_volumes
from sandbox.conformance.world import World
from sandbox.errors import Interrupted
from sandbox.evidence.cell import CellRecord, RunRecord
from sandbox.evidence.folder import write_run
from sandbox.progress import Step

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
    spare: Spare,
    run: RunCell = run_cell,
    estimates: Estimates | None = None,
) -> None:
    """Run the cells, as many at a time as have room (``Queue``) and as ``spare`` has places for.

    ``record`` is the run's; it may plan more cells than are run here. ``estimates`` say what the
    cells take (default: what their harnesses declare).

    Ctrl-C or TERM once ends the cells that run, each with its sandbox removed and its folder
    written; a second one ends the process at once, and the next start sweeps.

    Raises:
        Interrupted: it was asked to stop; the run's folder holds what was seen.
    """
    write_run(world.folder, record)
    with run_volumes(world.engine, world.way, world.run_id) as volumes:
        known = estimates or Estimates({}, world.harnesses)
        _run_all(plan, replace(world, volumes=volumes), run, spare, known)
    write_run(world.folder, record.model_copy(update={"completed_at": time.time()}))
    if world.cancel.is_set():
        raise Interrupted(
            f"the run was interrupted; what was seen is in {world.folder}",
            cure=f"see it with: sandbox judge {world.folder}",
        )


def _run_all(
    plan: Sequence[CellSpec], world: World, run: RunCell, spare: Spare, estimates: Estimates
) -> None:
    room = room_for(world.engine.info, jobs=spare.most)
    queue = Queue(plan, estimates, jobs=spare.jobs, room=room)
    pace = Pace(plan, estimates)
    steps = world.progress.step(f"running {len(plan)} cell(s)")
    with host_canary(), interruptible(world.cancel.set), steps as step:
        step.total(len(plan))
        pool = ThreadPoolExecutor(max_workers=spare.most, thread_name_prefix="cell")
        try:
            for ended in ended_cells(pool, queue, world, run, spare):
                show_ended(ended.result(), world, step, pace)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def show_ended(record: CellRecord, world: World, step: Step, pace: Pace) -> None:
    """Tell people of a cell that ended, and how far the run is."""
    pace.ended(record)
    step.advance(1)
    step.note(str(pace))
    world.progress.say(_line(record))


def ended_cells(
    pool: ThreadPoolExecutor, queue: Queue, world: World, run: RunCell, spare: Spare
) -> Iterator[Future[CellRecord]]:
    """Begin cells, and yield them as they end; none is begun after a cancel."""
    running: dict[Future[CellRecord], CellSpec] = {}
    told = False
    while True:
        while not world.cancel.is_set() and spare.has_place(len(running)):
            cell = queue.next(running.values())
            if cell is None:
                break
            running[pool.submit(run, cell, world)] = cell
            spare.begun()
        if not running:
            return
        if world.cancel.is_set() and not told:
            told = True
            world.progress.say(
                f"ending {len(running)} cell(s), {len(queue)} were not begun; "
                "ask once more to end at once, and the next start removes what is left"
            )
        done, _ = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
        for future in done:
            del running[future]
            yield future


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
