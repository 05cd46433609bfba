"""The same cells with two pins files, each old cell beside its new one, and what differs."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

from sandbox.conformance.cell import run_cell
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.runner import RunCell, begin, run_plan
from sandbox.conformance.world import World
from sandbox.errors import CouldNotFindOut
from sandbox.evidence.baseline import Baseline
from sandbox.evidence.cell import CellRecord
from sandbox.evidence.difference import Difference, Side, difference
from sandbox.evidence.folder import CellFiles, cell_folder, read_cell, read_run, write_run
from sandbox.evidence.judge import judge, sources, write_verdicts
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
        run_plan(plan, before, record=record, jobs=jobs, run=pair)
    finally:
        ended = read_run(folders["old"]) or record
        write_run(folders["new"], ended.model_copy(update={"run_id": after.run_id}))
    return folders


def judged(folders: dict[Side, Path], *, baseline: Baseline, today: dt.date) -> Difference:
    """Judge both runs, write their verdicts beside the cells, and return what differs."""
    sides: tuple[Side, Side] = ("old", "new")
    verdicts = {side: judge(folders[side], baseline=baseline, today=today) for side in sides}
    files: dict[Side, dict[str, CellFiles]] = {}
    for side in sides:
        place = sources(folders[side]).place
        for cell in verdicts[side].cells:
            write_verdicts(place.folders(cell.cell_id), cell)
        ids = [cell.cell_id for cell in verdicts[side].cells]
        files[side] = {name: found for name in ids if (found := _cell(folders[side], name))}
    return difference(verdicts["old"], verdicts["new"], files)


def _cell(run: Path, cell_id: str) -> CellFiles | None:
    try:
        return read_cell(cell_folder(run, cell_id))
    except CouldNotFindOut:
        return None
