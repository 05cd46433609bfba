"""What ``sandbox conformance`` is asked to run: plan, shard, repetitions, new or old folder."""

from __future__ import annotations

import argparse
import datetime as dt
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from sandbox.cache import remove
from sandbox.commands.folders import RESULTS, record_of
from sandbox.commands.reporting import baseline, failing
from sandbox.commands.selection import DEFAULT_PROFILE, is_selective, selected
from sandbox.conformance.estimate import Estimates
from sandbox.conformance.plan import CellSpec, cell_spec
from sandbox.conformance.scenarios import SCENARIOS
from sandbox.conformance.shard import parse_shard, sharded
from sandbox.engine.imagebuild.definition import image_definitions
from sandbox.errors import CouldNotFindOut, NothingSelected, UsageError
from sandbox.evidence.cell import RunConfiguration, RunRecord, ServerChoice
from sandbox.evidence.configuration import differences
from sandbox.evidence.costs import CellCost, earlier_costs, read_costs
from sandbox.evidence.folder import attempt_folder, cell_folder, read_record
from sandbox.harnesses.registry import registered

Isolation = Literal["auto", "namespace", "bridge", "relay"]
Install = Literal["auto", "copy", "mount"]
_WRITTEN_BEFORE = "it was written by an early version of this tool; start a new run"


def add_request(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which part of which run to do."""
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="DIR",
        help="go on with that run: only its missing cells, in the same configuration",
    )
    parser.add_argument(
        "--failed", type=Path, metavar="DIR", help="only cells that did not pass in that run"
    )
    parser.add_argument("--shard", metavar="K/N", help="only the k-th of n parts of the plan")
    parser.add_argument(
        "--timings",
        type=Path,
        metavar="DIR",
        help="an earlier run or its timings.json, for the order of cells and the balance of shards "
        "(default: for the order, what the newest runs below results/ took; for shards, nothing)",
    )
    parser.add_argument(
        "--repeat",
        type=int,
        metavar="N",
        help="run each cell N times; what disagrees is flaky (default: 1)",
    )


@dataclass(frozen=True, kw_only=True)
class Request:
    """One run to do.

    ``plan`` is the whole plan, ``cells`` the part of it that is run here. ``resumed`` is the
    record of the run that goes on, None for a new one.
    """

    run_id: str
    profile: str
    plan: tuple[CellSpec, ...]
    cells: tuple[CellSpec, ...]
    shard: str | None
    repeat: int
    isolation: Isolation
    install: Install
    conditions: tuple[str, ...] = ()
    resumed: RunRecord | None = None

    def record(self, configuration: RunConfiguration) -> RunRecord:
        """Return the run's record.

        Raises:
            UsageError: the run that is to go on had another configuration.
        """
        before = self.resumed
        if before is None:
            return RunRecord(
                run_id=self.run_id,
                profile=self.profile,
                cells=tuple(cell.cell_id for cell in self.cells),
                started_at=time.time(),
                tool_version=version("sandbox"),
                shard=self.shard,
                configuration=configuration,
            )
        assert before.configuration is not None
        _refuse(differences(before.configuration, configuration))
        return before.model_copy(update={"completed_at": None})


def requested(arguments: argparse.Namespace, agent: ServerChoice | None = None) -> Request:
    """Return what the options ask for; ``agent``: the server that is tested, the one harness then.

    Raises:
        UsageError: options that contradict each other, or a run that cannot go on.
        NothingSelected: there is nothing to run.
    """
    if arguments.repeat is not None and arguments.repeat < 1:
        raise UsageError(f"--repeat {arguments.repeat}: at least once")
    if arguments.resume is not None:
        return _resumed(arguments, agent)
    only = None if agent is None else agent.name
    if arguments.failed is not None and not is_selective(arguments):
        profile, plan = _failed(arguments.failed, arguments, only)
    else:
        profile, plan = arguments.profile or DEFAULT_PROFILE, selected(arguments, only=only)
        if arguments.failed is not None:
            failed = _failed(arguments.failed, arguments, only)[1]
            plan = _only(plan, {cell.cell_id for cell in failed})
    return Request(
        run_id=f"{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}",
        profile=profile,
        plan=plan,
        cells=_sharded(plan, arguments),
        shard=arguments.shard,
        repeat=arguments.repeat or 1,
        isolation=arguments.isolation or "auto",
        install=arguments.install or "auto",
        conditions=tuple(arguments.condition),
    )


def missing(run: Path, cells: Sequence[CellSpec]) -> tuple[CellSpec, ...]:
    """Return the cells that have no readable record, or whose run was broken off by an error."""
    return tuple(cell for cell in cells if not _is_recorded(cell_folder(run, cell.cell_id)))


def make_room(run: Path, cells: Sequence[CellSpec]) -> None:
    """Remove what is left of cells that are to be run again, and what a killed run left unready.

    A run's folder has one process that writes in it.
    """
    for pattern in (".cell-*", ".*.tmp-*", "cells/*/*/.*.tmp-*"):
        for left in run.glob(pattern):
            remove(left)
    for cell in cells:
        folder = cell_folder(run, cell.cell_id)
        if folder.exists():
            remove(folder)


def _resumed(arguments: argparse.Namespace, agent: ServerChoice | None) -> Request:
    folder: Path = arguments.resume
    if arguments.output is not None or arguments.failed is not None:
        raise UsageError("a resumed run keeps its own folder and cells", cure="leave out the rest")
    record = record_of(folder)
    before = record.configuration
    if before is None:
        raise UsageError(f"{folder} says nothing of its configuration", cure=_WRITTEN_BEFORE)
    _refuse(differences(before, before.model_copy(update={"agent": agent})))
    only = None if agent is None else agent.name
    plan = tuple(cell_spec(name) for name in before.plan)
    cells = tuple(cell_spec(name) for name in record.cells)
    _refuse_gone((*plan, *cells), only)
    if is_selective(arguments):
        plan = selected(arguments, only=only)
    wanted: dict[str, object] = {
        "plan": tuple(cell.cell_id for cell in plan),
        "profile": arguments.profile or before.profile,
        "repeat": arguments.repeat or before.repeat,
        "isolation": arguments.isolation or before.isolation,
        "install": arguments.install or before.install,
        "conditions": tuple(arguments.condition) or before.conditions,
    }
    _refuse(differences(before, before.model_copy(update=wanted)))
    if arguments.shard not in (None, record.shard):
        _refuse((f"shard: {record.shard or 'all'}, now {arguments.shard}",))
    folders = [attempt_folder(folder, number) for number in range(1, before.repeat + 1)]
    if not any(missing(one, cells) for one in folders):
        raise NothingSelected(
            f"nothing is missing in {folder}: {len(cells)} cell(s) are recorded",
            cure=f"see them with: sandbox judge {folder}",
        )
    return Request(
        run_id=record.run_id,
        profile=record.profile,
        plan=plan,
        cells=cells,
        shard=record.shard,
        repeat=before.repeat,
        isolation=_isolation(before.isolation),
        install=_install(before.install),
        conditions=before.conditions,
        resumed=record,
    )


def _isolation(name: str) -> Isolation:
    names: tuple[Isolation, ...] = ("namespace", "bridge", "relay")
    return next((one for one in names if one == name), "auto")


def _install(name: str) -> Install:
    names: Mapping[str, Install] = {"copy": "copy", "mount": "mount"}
    return names.get(name, "auto")


def _refuse(lines: Sequence[str]) -> None:
    if lines:
        raise UsageError(
            "the run cannot go on in another configuration:\n  " + "\n  ".join(lines),
            cure="undo the difference, or start a new run",
        )


def _is_recorded(folder: Path) -> bool:
    try:
        refusal = read_record(folder).refusal
    except CouldNotFindOut:
        return False
    return refusal is None or refusal.kind != "error"


def _failed(
    folder: Path, arguments: argparse.Namespace, only: str | None
) -> tuple[str, tuple[CellSpec, ...]]:
    """Return profile and cells of a run that neither passed nor are known, in its order."""
    record = record_of(folder)
    names = failing(folder, known=baseline(arguments.baseline))
    cells = tuple(cell_spec(name) for name in names)
    if not cells:
        raise NothingSelected(f"every cell of {folder} passes or is known")
    _refuse_gone(cells, only)
    return record.profile, cells


def _refuse_gone(cells: Sequence[CellSpec], only: str | None) -> None:
    """Refuse cells of an earlier run whose harness, image or scenario there is no longer."""
    known = registered()
    harnesses = known.harnesses if only is None else (only,)
    axes: tuple[Collection[str], ...] = (harnesses, image_definitions(), SCENARIOS)
    for cell in cells:
        names = (cell.adapter, cell.image, cell.scenario)
        for name, axis in zip(names, axes, strict=True):
            if name in known.broken:
                raise known.broken[name]
            if name not in axis:
                raise UsageError(
                    f"{cell.cell_id}: there is no {name!r} any more",
                    cure="start a new run with the cells that there are",
                )


def _only(plan: Sequence[CellSpec], names: set[str]) -> tuple[CellSpec, ...]:
    left = tuple(cell for cell in plan if cell.cell_id in names)
    if not left:
        raise NothingSelected("none of the selected cells failed in that run")
    return left


def estimates(arguments: argparse.Namespace) -> Estimates:
    """Return what cells will take, by ``--timings`` or the newest runs on this machine."""
    return Estimates(_costs(arguments) or earlier_costs(RESULTS), registered().harnesses)


def _costs(arguments: argparse.Namespace) -> dict[str, CellCost]:
    return {} if arguments.timings is None else read_costs(arguments.timings)


def _sharded(plan: tuple[CellSpec, ...], arguments: argparse.Namespace) -> tuple[CellSpec, ...]:
    """Return the part of the plan; what this machine ran before has no say in how it is cut."""
    if arguments.shard is None:
        return plan
    known = Estimates(_costs(arguments), registered().harnesses)
    return sharded(plan, parse_shard(arguments.shard), seconds=known.seconds)
