"""A cell as a value: everything that its folder depends on, to be run by any process anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sandbox.conformance.plan import CellSpec
from sandbox.conformance.ways import Way
from sandbox.engine.images import LoadedImage
from sandbox.engine.link import Wanted
from sandbox.errors import UsageError
from sandbox.evidence.cell import Refusal, RunConfiguration
from sandbox.evidence.records import Record


class CellJob(Record):
    """What decides a cell's folder; picklable, and small.

    What is big is named by its content: ``image`` as the client's engine has it, and by a digest
    that is the same on all engines; ``pin`` is the version and the SHA-256 of the bundle (None:
    the harness has no pin for the image's platform), ``scenario`` a digest of what is run and
    expected. ``earlier`` are attempts that were lost elsewhere.
    """

    spec: CellSpec
    run_id: str
    image: LoadedImage
    image_content: str
    pin: str | None
    scenario: str
    isolation: Wanted = "auto"
    way: Way = "mount"
    conditions: tuple[str, ...] = ()
    retries: int = 1
    earlier: tuple[Refusal, ...] = ()


def make_jobs(
    plan: Iterable[CellSpec],
    configuration: RunConfiguration,
    *,
    run_id: str,
    images: Mapping[str, LoadedImage],
    contents: Mapping[str, str],
    isolation: Wanted,
    way: Way,
) -> tuple[CellJob, ...]:
    """Return the jobs of a plan's cells in a run of that configuration.

    Args:
        plan: the cells.
        configuration: that of the run; it covers them.
        run_id: the run's.
        images: the loaded ones by name.
        contents: their digests by name (``image_content``).
        isolation: as the run was asked for.
        way: how runtimes get into sandboxes.
    """
    return tuple(
        CellJob(
            spec=cell,
            run_id=run_id,
            image=images[cell.image],
            image_content=contents[cell.image],
            pin=configuration.pins.get(f"{cell.adapter} {images[cell.image].platform}"),
            scenario=configuration.scenarios[cell.scenario],
            isolation=isolation,
            way=way,
            conditions=configuration.conditions,
        )
        for cell in plan
    )


def refuse_other(job: CellJob, *, pin: str | None, scenario: str) -> None:
    """Raise ``UsageError`` where a job's cell would be another one: other runtime or scenario."""
    for what, ours, theirs in (("runtime", pin, job.pin), ("scenario", scenario, job.scenario)):
        if ours != theirs:
            raise UsageError(
                f"{job.spec.cell_id}: its {what} is {ours or 'none'} here, the job's "
                f"{theirs or 'none'}",
                cure="use the same version of this package, with the same pins, everywhere",
            )
