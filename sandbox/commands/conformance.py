"""``sandbox conformance``: run the selected cells, judge them, show the table, write reports."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sandbox.cache import remove
from sandbox.commands.agent import add_agent, remote_agent
from sandbox.commands.cluster import expect_cluster, run_remotely
from sandbox.commands.conditions import add_conditions
from sandbox.commands.engine import add_engine, leaving_nothing, open_engine
from sandbox.commands.folders import RESULTS, new_folder
from sandbox.commands.library import open_library
from sandbox.commands.reporting import add_gate, baseline, conclude
from sandbox.commands.request import (
    Request,
    add_request,
    estimates,
    make_room,
    missing,
    requested,
)
from sandbox.commands.selection import add_selection
from sandbox.conformance.configuration import configuration
from sandbox.conformance.heap import give_big_blocks_back
from sandbox.conformance.preflight import preflight
from sandbox.conformance.prepare import prepare
from sandbox.conformance.room import default_jobs
from sandbox.conformance.runner import run_plan
from sandbox.conformance.spare import Spare, no_spare, spare_here
from sandbox.conformance.ways import Way, choose_way
from sandbox.conformance.world import RemoteAgent, World
from sandbox.engine.client import EngineInfo
from sandbox.engine.link import NOTICES, choose_isolation
from sandbox.errors import ClusterLost, ExitCode, Interrupted, UsageError
from sandbox.evidence.folder import attempt_folder, write_run
from sandbox.evidence.foretold import FILE as PREFLIGHT
from sandbox.evidence.foretold import write_preflight
from sandbox.evidence.preflight import PreflightReport
from sandbox.harnesses.registry import registered
from sandbox.progress import Progress, progress


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_selection(parser)
    add_request(parser)
    add_engine(parser)
    parser.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="cells at a time, at most: each begins when its memory fits beside the others' "
        "(default: twice the cores and one, and up to two more for each core while half of them "
        "are idle; fewer where memory is short)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="new folder for the results (default: results/<run id>)",
    )
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="another baseline.toml")
    parser.add_argument(
        "--isolation",
        choices=("auto", "namespace", "bridge", "relay"),
        help="how sandboxes reach the model server (default: the best that can be had)",
    )
    parser.add_argument(
        "--install",
        choices=("auto", "copy", "mount"),
        help="how runtimes get into sandboxes (default: mount)",
    )
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="run the cells on the workers of this Dask scheduler, as tcp://host:8786 "
        "(docs/scale.md; needs the extra sandbox[dask])",
    )
    add_conditions(parser)
    add_gate(parser)
    add_agent(parser)
    parser.add_argument("--json", action="store_true", help="print results.json instead of a table")
    parser.add_argument("--quiet", action="store_true", help="no progress lines")


def run(arguments: argparse.Namespace) -> ExitCode:
    """Do it all; the exit code is the judge's."""
    remote = remote_agent(arguments)
    request = requested(arguments, None if remote is None else remote.tested)
    known = baseline(arguments.baseline)
    if arguments.scheduler is not None:
        expect_cluster(arguments.scheduler, agent=arguments.agent_url)
    if arguments.jobs is not None and arguments.jobs < 1:
        raise UsageError(f"--jobs {arguments.jobs}: at least one cell at a time")
    give_big_blocks_back()
    folder = _folder(request, arguments)
    ended: Interrupted | ClusterLost | None = None
    try:
        with progress(quiet=arguments.quiet) as shown:
            _run(request, arguments, folder, shown, remote)
    except (Interrupted, ClusterLost) as error:
        ended = error
    except BaseException:
        if request.resumed is None:
            _remove_unbegun(folder)
        raise
    code = conclude(folder, known=known, as_json=arguments.json, gate=arguments.gate)
    if ended is not None:
        raise ended
    return code


def _run(
    request: Request,
    arguments: argparse.Namespace,
    folder: Path,
    shown: Progress,
    remote: RemoteAgent | None,
) -> None:
    known = registered()
    with open_engine(arguments, shown) as engine, open_library(shown, known) as library:
        isolation = choose_isolation(engine, request.isolation)
        if isolation in NOTICES:
            shown.say(NOTICES[isolation])
        way = choose_way(request.install)
        # a client of a cluster runs nothing: it needs the bundles, not what they unpack to
        unpacked: Way = way if arguments.scheduler is None else "copy"
        images = prepare(engine, None if remote else library, request.cells, shown, unpacked)
        record = request.record(
            configuration(
                request.plan,
                profile=request.profile,
                repeat=request.repeat,
                isolation=request.isolation,
                install=request.install,
                conditions=request.conditions,
                images=images,
                runtimes=library.entries(),
                agent=None if remote is None else remote.tested,
            )
        )
        world = World(
            engine=engine,
            images=images,
            harnesses=known.harnesses,
            library=library,
            run_id=record.run_id,
            folder=folder,
            progress=shown,
            remote=remote,
            isolation=request.isolation,
            way=way,
            conditions=request.conditions,
        )
        write_run(folder, record)
        if remote is None:
            write_preflight(folder, _foretold(request, world, shown))
        known_costs = estimates(arguments)
        peaks = [known_costs.peak_mib(cell) for cell in request.cells]
        spare = _spare(arguments.jobs, engine.info, peaks)
        with leaving_nothing(engine, record.run_id, shown):
            for number in range(1, request.repeat + 1):
                attempt = replace(world, folder=attempt_folder(folder, number))
                attempt.folder.mkdir(parents=True, exist_ok=True)
                cells = missing(attempt.folder, request.cells)
                make_room(attempt.folder, cells)
                if arguments.scheduler is None:
                    run_plan(cells, attempt, record=record, spare=spare, estimates=known_costs)
                    continue
                run_remotely(
                    cells, attempt, record, known, address=arguments.scheduler, costs=known_costs
                )


def _spare(jobs: int | None, info: EngineInfo, peaks_mib: Sequence[float]) -> Spare:
    """Return how many cells run at a time: what was asked for, else what the machine can do."""
    if jobs is not None:
        return no_spare(jobs)
    usual = default_jobs(info, peaks_mib)
    return spare_here(usual) if info.is_local else no_spare(usual)


def _foretold(request: Request, world: World, shown: Progress) -> PreflightReport:
    """Foretell what every harness of the run will do in its images, before the first cell."""
    wanted = dict.fromkeys(cell.adapter for cell in request.cells)
    return preflight(
        world.engine,
        tuple(dict.fromkeys(cell.image for cell in request.cells)),
        {name: world.harnesses[name] for name in wanted},
        world.library,
        shown,
        conditions=request.conditions,
        way=world.way,
    )


def _folder(request: Request, arguments: argparse.Namespace) -> Path:
    if request.resumed is not None:
        folder: Path = arguments.resume
        return folder.resolve()
    return new_folder(arguments.output or RESULTS / request.run_id)


def _remove_unbegun(folder: Path) -> None:
    """Remove the new folder of a run that failed before its first cell, so that it can be named."""
    if {path.name for path in folder.iterdir()} <= {"run.json", PREFLIGHT}:
        remove(folder)
