"""What a whole cell costs beside its harness's own time, and what it asks the engine."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.conformance.cell import run_cell
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.timing import DOCKER, OURS, Clock, DockerCli, Subject, in_turn
from sandbox.conformance.world import World
from sandbox.engine.calls import counted_calls
from sandbox.engine.owner import Ownership
from sandbox.errors import EngineFailure
from sandbox.evidence.benches import CellProfile, Measure, Unmeasured
from sandbox.evidence.folder import cell_folder, read_cell

SCENARIO = "tool_success"
MOST = 1.15
MOST_CALLS = {
    "GET /images/{name}/json": 1,
    "POST /containers/create": 1,
    "POST /containers/{id}/start": 1,
    "GET /containers/{id}/json": 3,
    "POST /containers/{id}/exec": 2,
    "POST /exec/{id}/start": 2,
    "DELETE /containers/{id}": 1,
}
"""What one cell asks of a local engine, at most."""
POLLED = "GET /exec/{id}/json"
"""Asked for the pid and the exit code of a command; how often depends on the machine."""


def bench_cell(
    world: World, image: str, harness: str, docker: DockerCli, *, rounds: int
) -> Iterator[Measure | Unmeasured | CellProfile]:
    """Measure whole cells beside a container that is made, used once and removed by hand.

    The first cell is not counted: it proves that the program runs in the image.
    """
    cells = Cells(world, CellSpec(harness=harness, image=image, scenario=SCENARIO))
    cells.run()
    seen: list[OneCell] = []

    operation = f"cell of {harness} without its own time"

    def ours() -> dict[str, float]:
        seen.append(cells.run())
        return {operation: seen[-1].overhead_s}

    def theirs() -> dict[str, float]:
        owner = Ownership.current(run_id=world.run_id, cell_id="bench")
        name, ref = docker.name(), world.images[image].ref
        with Clock() as clock:
            docker.call("create", *docker.options(name, ref, owner))
            docker.call("start", name)
            docker.call("exec", name, "true")
            docker.remove(name)
        return {operation: clock.seconds}

    yield from in_turn(
        Subject(part="cell", image=image, most={DOCKER: MOST}),
        operation,
        {OURS: ours, DOCKER: theirs},
        rounds=rounds,
    )
    if seen:
        told = profile(harness, image, seen)
        asked = sum(times for kind, times in told.calls.items() if kind != POLLED)
        yield Subject(part="cell", image=image).measure(
            f"requests of a cell of {harness}",
            [asked],
            {},
            limit=sum(MOST_CALLS.values()),
            unit="calls",
        )
        yield told


@dataclass(frozen=True)
class OneCell:
    """One cell that was measured; its folder is kept until the next."""

    folder: Path
    total_s: float
    harness_s: float
    phases: dict[str, float]
    calls: dict[str, int]

    @property
    def overhead_s(self) -> float:
        """Everything but the harness's own process time."""
        return self.total_s - self.harness_s


class Cells:
    """Runs the same cell again and again."""

    def __init__(self, world: World, spec: CellSpec) -> None:
        self._world = world
        self._spec = spec

    def run(self) -> OneCell:
        """Run it once, from the beginning to its written folder.

        Raises:
            EngineFailure: it left no receipt to take the harness's time from.
        """
        folder = cell_folder(self._world.folder, self._spec.cell_id)
        shutil.rmtree(folder, ignore_errors=True)
        with counted_calls(self._world.engine) as calls, Clock() as clock:
            record = run_cell(self._spec, self._world)
        receipt = read_cell(folder).receipt
        if receipt is None or receipt.duration_s is None:
            why = "" if record.refusal is None else f": {record.refusal.reason}"
            raise EngineFailure(f"the bench's cell {self._spec.cell_id} has no receipt{why}")
        return OneCell(
            folder=folder,
            total_s=clock.seconds,
            harness_s=receipt.duration_s,
            phases=dict(record.phases),
            calls=dict(calls.counts),
        )


def too_many(calls: Mapping[str, int]) -> dict[str, int]:
    """Return the kinds of requests that there were more of than a cell needs, and how many."""
    return {
        kind: times
        for kind, times in calls.items()
        if kind != POLLED and times > MOST_CALLS.get(kind, 0)
    }


def profile(harness: str, image: str, seen: list[OneCell]) -> CellProfile:
    """Return the medians of cells, and the most that one of them asked."""
    phases = seen[0].phases
    return CellProfile(
        harness=harness,
        image=image,
        rounds=len(seen),
        total_s=statistics.median(one.total_s for one in seen),
        harness_s=statistics.median(one.harness_s for one in seen),
        phases={
            name: statistics.median(one.phases.get(name, 0.0) for one in seen) for name in phases
        },
        calls={
            kind: max(one.calls.get(kind, 0) for one in seen)
            for kind in sorted({kind for one in seen for kind in one.calls})
        },
    )
