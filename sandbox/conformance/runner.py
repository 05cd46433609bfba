"""Runs a plan: cells side by side, each recorded once, interrupted cleanly."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from importlib.metadata import version
from types import FrameType

from sandbox.conformance.cell import run_cell
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.scenarios import SCENARIOS
from sandbox.conformance.world import World
from sandbox.errors import Interrupted
from sandbox.evidence.cell import CellRecord, RunRecord
from sandbox.evidence.folder import write_run

RunCell = Callable[[CellSpec, World], CellRecord]


def run_plan(
    plan: Sequence[CellSpec],
    world: World,
    *,
    profile: str,
    jobs: int,
    run: RunCell = run_cell,
) -> None:
    """Run every cell of the plan; ``jobs`` at a time.

    Ctrl-C or TERM once ends the cells that run, each with its sandbox removed and its folder
    written; a second one ends the process at once, and the next start sweeps.

    Raises:
        Interrupted: it was asked to stop; the run's folder holds what was seen.
    """
    record = RunRecord(
        run_id=world.run_id,
        profile=profile,
        cells=tuple(cell.cell_id for cell in plan),
        started_at=time.time(),
        tool_version=version("sandbox"),
    )
    write_run(world.folder, record)
    with _interruptible(world.cancel), world.progress.step(f"running {len(plan)} cell(s)") as step:
        step.total(len(plan))
        pool = ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="cell")
        try:
            for finished in _finished(pool, plan, world, run):
                step.advance(1)
                world.progress.say(_line(finished.result()))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    write_run(world.folder, record.model_copy(update={"completed_at": time.time()}))
    if world.cancel.is_set():
        raise Interrupted(
            f"the run was interrupted; what was seen is in {world.folder}",
            cure=f"see it with: sandbox judge {world.folder}",
        )


def _finished(
    pool: ThreadPoolExecutor, plan: Sequence[CellSpec], world: World, run: RunCell
) -> Iterator[Future[CellRecord]]:
    """Yield the cells as they end; none is begun after a cancel."""
    longest_first = sorted(plan, key=_least_seconds, reverse=True)
    waiting: set[Future[CellRecord]] = {pool.submit(run, cell, world) for cell in longest_first}
    while waiting:
        done, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
        yield from done
        if world.cancel.is_set():
            waiting = {future for future in waiting if not future.cancel()}


def _least_seconds(cell: CellSpec) -> float:
    """Return what a cell takes at least: its whole deadline when that must expire."""
    scenario = SCENARIOS[cell.scenario]
    return scenario.deadline_s if scenario.expectation.timed_out else 0.0


@contextmanager
def _interruptible(cancel: threading.Event) -> Iterator[None]:
    """Turn the first INT or TERM into ``cancel``; the second gets the handler from before."""
    before = {}

    def ask(number: int, _: FrameType | None) -> None:
        cancel.set()
        signal.signal(number, signal.SIG_DFL)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, ask)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _line(record: CellRecord) -> str:
    seconds = record.completed_at - record.started_at
    end = (
        "recorded" if record.refusal is None else f"{record.refusal.kind}: {record.refusal.reason}"
    )
    return f"{record.cell_id}: {end} ({seconds:.1f} s)"
