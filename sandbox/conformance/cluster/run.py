"""A plan on a cluster, from its jobs to its written cell folders."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sandbox.conformance.cellpack import place
from sandbox.conformance.cluster.dask import Terms, connected
from sandbox.conformance.cluster.dispatch import Attempt, GivenUp
from sandbox.conformance.cluster.driver import Driver, Patience
from sandbox.conformance.cluster.facts import facts_of
from sandbox.conformance.cluster.sending import Sending, wanted
from sandbox.conformance.estimate import Estimates
from sandbox.conformance.interrupt import interruptible
from sandbox.conformance.job import CellJob, make_jobs
from sandbox.conformance.pace import Pace
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.runner import show_ended
from sandbox.conformance.scenarios import SCENARIOS
from sandbox.conformance.world import World
from sandbox.engine.shipping import image_content
from sandbox.errors import ClusterLost, Interrupted
from sandbox.evidence.cell import CellRecord, Refusal, RunRecord
from sandbox.evidence.folder import CellFiles, cell_folder, write_cell, write_run
from sandbox.harnesses.registry import Registered


@dataclass(frozen=True, kw_only=True)
class Scheduler:
    """Where a plan is run: the scheduler's address, and how long things may take there."""

    address: str
    patience: Patience = field(default_factory=Patience)


def run_on_cluster(
    plan: Sequence[CellSpec],
    world: World,
    *,
    record: RunRecord,
    harnesses: Registered,
    scheduler: Scheduler,
    estimates: Estimates | None = None,
) -> None:
    """Run the cells on the workers of a Dask scheduler; each answer is written once.

    Ctrl-C or TERM once ends the cells that run, with their sandboxes removed and their folders
    written here; a second one ends the process at once, and the workers finish what they run.

    Args:
        plan: the cells to run; ``record`` may plan more.
        world: the client's; its engine has the images, its library the runtimes.
        record: the run's, with its configuration.
        harnesses: the adapters, which workers must have too.
        scheduler: where.
        estimates: what the cells take (default: what their harnesses declare); the longest
            begin first.

    Raises:
        PrerequisiteMissing: the scheduler cannot be reached, or no worker can be used.
        ClusterLost: it is gone, or all workers are; what came is in the run's folder.
        Interrupted: it was asked to stop; the run's folder holds what was seen.
    """
    known = estimates or Estimates({}, world.harnesses)
    jobs = _jobs(sorted(plan, key=known.seconds, reverse=True), world, record)
    with interruptible(world.cancel.set):
        asyncio.run(
            _run(
                jobs,
                world,
                record=record,
                harnesses=harnesses,
                scheduler=scheduler,
                pace=Pace(plan, known),
            )
        )
    write_run(world.folder, record.model_copy(update={"completed_at": time.time()}))
    if world.cancel.is_set():
        raise Interrupted(
            f"the run was interrupted; what was seen is in {world.folder}",
            cure=f"see it with: sandbox judge {world.folder}",
        )


def _jobs(plan: Sequence[CellSpec], world: World, record: RunRecord) -> tuple[CellJob, ...]:
    assert record.configuration is not None
    names = {cell.image for cell in plan}
    return make_jobs(
        plan,
        record.configuration,
        run_id=world.run_id,
        images=world.images,
        contents={name: image_content(world.engine, world.images[name]) for name in names},
        isolation=world.isolation,
        way=world.way,
    )


async def _run(
    jobs: tuple[CellJob, ...],
    world: World,
    *,
    record: RunRecord,
    harnesses: Registered,
    scheduler: Scheduler,
    pace: Pace,
) -> None:
    assert record.configuration is not None
    say = world.progress.say
    with Sending(world.engine, world.library) as sending:
        terms = Terms(
            run_id=world.run_id,
            configuration=record.configuration,
            way=world.way,
            ours=facts_of(world.engine, world.library, harnesses),
            wants=wanted(jobs, world.library),
            sending=sending,
        )
        steps = world.progress.step(f"running {len(jobs)} cell(s) on {scheduler.address}")
        async with connected(scheduler.address, terms, say) as cluster:
            write_run(world.folder, record)
            with steps as step:
                step.total(len(jobs))

                def write(attempt: Attempt, tar: bytes) -> None:
                    cell_id = attempt.cell.cell_id
                    written = place(world.folder, cell_id, tar, run_id=world.run_id)
                    show_ended(written, world, step, pace)

                driver = Driver(
                    cluster=cluster,
                    jobs=jobs,
                    write=write,
                    say=say,
                    cancel=world.cancel,
                    patience=scheduler.patience,
                )
                try:
                    await driver.run()
                finally:
                    for lost in _write_given_up(world, driver.dispatch.given_up):
                        show_ended(lost, world, step, pace)
                    try:
                        await cluster.finish()
                    except ClusterLost as error:
                        say(f"the workers end by themselves: {error.message}")


def _write_given_up(world: World, cells: Iterable[GivenUp]) -> Iterator[CellRecord]:
    """Record the cells that were lost with every worker they were given to."""
    for lost in cells:
        scenario, now = SCENARIOS[lost.cell.scenario], time.time()
        record = CellRecord(
            cell_id=lost.cell.cell_id,
            harness=lost.cell.harness,
            image=lost.cell.image,
            scenario=lost.cell.scenario,
            run_id=world.run_id,
            rollout_id="none",
            task_id=scenario.name,
            expectation=scenario.expectation,
            started_at=now,
            completed_at=now,
            conditions=world.conditions,
            earlier_attempts=lost.earlier,
            refusal=Refusal(
                kind="error",
                reason=f"lost {len(lost.earlier)} times; last: {lost.earlier[-1].reason}",
                cure="look at the workers' logs, then go on with --resume",
            ),
        )
        write_cell(cell_folder(world.folder, lost.cell.cell_id), CellFiles(cell=record))
        yield record
