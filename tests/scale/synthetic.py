"""Runs of any size made of two recorded cells: folders with names of their own and shared files.

A cell's folder holds hard links to the recorded files and a ``cell.json`` of its own, so that what
is judged is what a harness really left, and 100,000 folders take little disk. A part of the cells
is changed to fail, to be refused, to break, to be flaky, or is planned and not there.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.conformance.plan import Axes, CellSpec, Selection, make_plan
from sandbox.conformance.scenarios import SCENARIOS
from sandbox.evidence.cell import RunConfiguration, RunRecord
from sandbox.evidence.folder import attempt_folder, cell_folder, write_run

RECORDED = Path(__file__).parents[1] / "fixtures" / "cells"
_LINKS = 30_000
"""Names of one file: file systems have a limit (ext4: 65,000)."""
_HARNESSES = 10
_EVERY = 50
"""Of so many cells one is of each odd kind, and the rest passes."""
_ODD = {7: "fails", 11: "broke", 13: "unsupported", 17: "flaky", 19: "lost"}


def synthetic_plan(cells: int) -> tuple[CellSpec, ...]:
    """Plan that many cells of ten harnesses and all scenarios, in as many images as it takes."""
    scenarios = tuple(SCENARIOS)
    images = -(-cells // (len(scenarios) * _HARNESSES))
    axes = Axes(
        harnesses=tuple(f"harness-{n}" for n in range(_HARNESSES)),
        images=tuple(f"image-{n}" for n in range(images)),
        scenarios=scenarios,
    )
    return make_plan(axes, Selection())[:cells]


def kind_of(number: int) -> str:
    """Return what becomes of the cell of that place in the plan."""
    return _ODD.get(number % _EVERY, "unreachable" if number % 10 == 3 else "stopped")


@dataclass
class Links:
    """Files with many names below a folder on the same file system."""

    folder: Path
    _texts: dict[str, bytes] = field(default_factory=dict)
    _files: dict[str, tuple[Path, int]] = field(default_factory=dict)

    def link(self, name: str, data: bytes, to: Path) -> None:
        """Give the file of that name and content another name."""
        path, used = self._files.get(name, (self.folder / "none", _LINKS))
        if used >= _LINKS:
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / str(len(list(self.folder.iterdir())))
            path.write_bytes(data)
            used = 0
        os.link(path, to)
        self._files[name] = (path, used + 1)


@dataclass(frozen=True)
class Template:
    """A recorded cell: its ``cell.json``, and its other files by their names."""

    name: str
    cell: dict[str, object]
    files: dict[str, bytes]


def templates() -> dict[str, Template]:
    """Return the recorded cells, and what is made of them, by kind."""
    stopped, unreachable = _recorded("stopped"), _recorded("unreachable")
    witness = json.loads(stopped.files["witness.json"])
    leaves = json.dumps({**witness, "session_dir_gone": False}).encode()
    broke = {"kind": "error", "reason": "the engine does not answer", "cure": "start it"}
    unsupported = {"kind": "unsupported", "reason": "there is no sh", "cure": "add one"}
    return {
        "stopped": stopped,
        "unreachable": unreachable,
        "fails": Template("fails", stopped.cell, {**stopped.files, "witness.json": leaves}),
        "flaky": Template("flaky", {**stopped.cell, "earlier_attempts": [broke]}, stopped.files),
        "broke": Template("broke", {**stopped.cell, "refusal": broke}, {}),
        "unsupported": Template("unsupported", {**stopped.cell, "refusal": unsupported}, {}),
    }


def _recorded(name: str) -> Template:
    folder = RECORDED / name
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    return Template(name, json.loads(files.pop("cell.json")), files)


def make_run(
    run: Path,
    plan: tuple[CellSpec, ...],
    cells: tuple[CellSpec, ...],
    *,
    links: Path,
    attempts: int = 1,
    kind: Callable[[int], str] = kind_of,
) -> None:
    """Write the folder of a run: ``cells`` of ``plan``, each ``attempts`` times.

    ``kind`` says what becomes of the cell of a place in the plan.
    """
    names = tuple(cell.cell_id for cell in cells)
    record = RunRecord(
        run_id=run.name,
        profile="full",
        cells=names,
        started_at=1.0,
        completed_at=2.0,
        configuration=RunConfiguration(
            profile="full", plan=tuple(cell.cell_id for cell in plan), repeat=attempts
        ),
    )
    places = {cell.cell_id: number for number, cell in enumerate(plan)}
    kinds, shared = templates(), Links(links)
    for number in range(1, attempts + 1):
        folder = attempt_folder(run, number)
        write_run(folder, record)
        for cell in cells:
            # of a repeated cell every other execution is what its place says
            became = kind(places[cell.cell_id]) if number % 2 else "stopped"
            if became != "lost":
                _make_cell(cell_folder(folder, cell.cell_id), cell, kinds[became], shared)


def _make_cell(folder: Path, cell: CellSpec, template: Template, shared: Links) -> None:
    (folder / "native").mkdir(parents=True)
    for name, data in template.files.items():
        shared.link(f"{template.name} {name}", data, folder / name)
    own = {
        **template.cell,
        "cell_id": cell.cell_id,
        "harness": cell.harness,
        "image": cell.image,
        "scenario": cell.scenario,
    }
    (folder / "cell.json").write_text(json.dumps(own))


def parts_of(cells: tuple[CellSpec, ...], count: int) -> Iterator[tuple[CellSpec, ...]]:
    """Cut a plan in turn, without a thought: for runs that are only to be merged."""
    for number in range(count):
        yield tuple(itertools.islice(cells, number, None, count))
