"""The same cells with two pins files, each old cell beside its new one, and what differs."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

from sandbox.conformance.cell import run_cell
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.runner import RunCell, begin, run_plan
from sandbox.conformance.spare import no_spare
from sandbox.conformance.world import World
from sandbox.evidence.baseline import Baseline
from sandbox.evidence.cell import CellRecord
from sandbox.evidence.difference import Difference, Differing, Judged, Side
from sandbox.evidence.folder import CellFiles, read_run, write_run
from sandbox.evidence.judge import Judge, Sources, sources, write_verdicts
from sandbox.evidence.results import CellResult
from sandbox.runtimes.library import RuntimeLibrary


def run_both(
    plan: tuple[CellSpec, ...],
    world: World,
    new: RuntimeLibrary,
    *,
    profile: str,
    jobs: int,
    run: RunCell = run_cell,
) -> dict[Side, Path]:
    """Run every cell of the plan with both libraries and return the two run folders.

    A cell's old and new one run right after each other, so that both meet the same machine. Each
    cell's record says which bundle it ran.

    Args:
        plan: the cells.
        world: with the old library; its folder gets the run folders ``old`` and ``new``.
        new: the other library.
        profile: the name of the plan's profile.
        jobs: pairs at a time.
        run: runs one cell.

    Raises:
        Interrupted: it was asked to stop; both folders hold what was seen.
    """
    folders: dict[Side, Path] = {"old": world.folder / "old", "new": world.folder / "new"}
    for folder in folders.values():
        folder.mkdir()
    before = replace(world, folder=folders["old"], run_id=f"{world.run_id}-old")
    after = replace(world, folder=folders["new"], run_id=f"{world.run_id}-new", library=new)

    def pair(cell: CellSpec, _: World) -> CellRecord:
        record = run(cell, before)
        return record if world.cancel.is_set() else run(cell, after)

    record = begin(before, plan, profile=profile)
    try:
        run_plan(plan, before, record=record, spare=no_spare(jobs), run=pair)
    finally:
        ended = read_run(folders["old"]) or record
        write_run(folders["new"], ended.model_copy(update={"run_id": after.run_id}))
    return folders


def judged(folders: dict[Side, Path], *, baseline: Baseline, today: dt.date) -> Difference:
    """Judge both runs, write their verdicts beside the cells, and return what differs.

    The old cell and the new one are judged together, and no other is in memory then.
    """
    judge = Judge(baseline=baseline, today=today)
    old, new = (_Run(sources(folders[side]), judge) for side in ("old", "new"))
    found = Differing()
    for name in sorted(old.places.keys() | new.places.keys()):
        found.add(name, old.judged(name), new.judged(name))
    return found.end()


class _Run:
    """One side: where its cells are and who judges them."""

    def __init__(self, found: Sources, judge: Judge) -> None:
        self.places = {name: place for place, name in enumerate(found.names)}
        self._found = found
        self._judge = judge

    def judged(self, name: str) -> Judged | None:
        """Judge a cell and write its verdicts; None: this side does not have it."""
        place = self.places.get(name)
        if place is None:
            return None
        read: list[CellFiles] = []

        def told(_folder: Path, _result: CellResult, files: CellFiles) -> None:
            read.append(files)

        folders = self._found.place.folders(name)
        planned = place < self._found.planned
        result = self._judge.cell(name, folders, planned=planned, told=told)
        write_verdicts(folders, result)
        return Judged(place, result, read[0] if read else None)
