"""``sandbox conformance``: run the selected cells, judge them, show the table, write reports."""

from __future__ import annotations

import argparse
import datetime as dt
import os
import secrets
from pathlib import Path

from sandbox.commands.conditions import add_conditions
from sandbox.commands.engine import add_engine, open_engine
from sandbox.commands.library import open_library
from sandbox.commands.reporting import baseline, conclude
from sandbox.commands.selection import add_selection, selected
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.prepare import prepare
from sandbox.conformance.runner import run_plan
from sandbox.conformance.world import World, choose_way
from sandbox.engine.bridge import NOTICE
from sandbox.engine.link import choose_isolation
from sandbox.errors import CacheUnusable, ExitCode, Interrupted, UsageError
from sandbox.harnesses.registry import registered
from sandbox.progress import Progress, progress


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_selection(parser)
    add_engine(parser)
    parser.add_argument(
        "--jobs",
        type=int,
        default=2 * (os.cpu_count() or 1),
        metavar="N",
        help="cells at a time (default: twice the cores, since half of them may only wait)",
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
        choices=("auto", "namespace", "bridge"),
        default="auto",
        help="how sandboxes reach the model server (default: the best that can be had)",
    )
    parser.add_argument(
        "--install",
        choices=("auto", "copy", "mount"),
        default="auto",
        help="how runtimes get into sandboxes (default: mount where the engine is local)",
    )
    add_conditions(parser)
    parser.add_argument("--json", action="store_true", help="print results.json instead of a table")
    parser.add_argument("--quiet", action="store_true", help="no progress lines")


def run(arguments: argparse.Namespace) -> ExitCode:
    """Do it all; the exit code is the judge's."""
    plan = selected(arguments)
    known = baseline(arguments.baseline)
    if arguments.jobs < 1:
        raise UsageError(f"--jobs {arguments.jobs}: at least one cell at a time")
    run_id = f"{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
    folder = _new_folder(arguments.output or Path("results") / run_id)
    interrupted: Interrupted | None = None
    try:
        with progress(quiet=arguments.quiet) as shown:
            _run(plan, arguments, run_id, folder, shown)
    except Interrupted as error:
        interrupted = error
    except BaseException:
        _remove_if_empty(folder)
        raise
    code = conclude(folder, known=known, as_json=arguments.json)
    if interrupted is not None:
        raise interrupted
    return code


def _run(
    plan: tuple[CellSpec, ...],
    arguments: argparse.Namespace,
    run_id: str,
    folder: Path,
    shown: Progress,
) -> None:
    known = registered()
    with open_engine(arguments, shown) as engine, open_library(shown, known) as library:
        if choose_isolation(engine, arguments.isolation) == "bridge":
            shown.say(NOTICE)
        way = choose_way(engine, arguments.install)
        images = prepare(engine, library, plan, shown, way)
        world = World(
            engine=engine,
            images=images,
            harnesses=known.harnesses,
            library=library,
            run_id=run_id,
            folder=folder,
            progress=shown,
            isolation=arguments.isolation,
            way=way,
            conditions=tuple(arguments.condition),
        )
        run_plan(plan, world, profile=arguments.profile, jobs=arguments.jobs)


def _new_folder(folder: Path) -> Path:
    """Make the results folder; results are never mixed with earlier ones."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        raise UsageError(
            f"the results folder {folder} exists already", cure="give a new --output"
        ) from error
    except OSError as error:
        raise CacheUnusable(
            f"the results folder {folder} cannot be made: {error.strerror}",
            cure="give an --output on a disk with space that you may write to",
        ) from error
    return folder.resolve()


def _remove_if_empty(folder: Path) -> None:
    if not any(folder.iterdir()):
        folder.rmdir()
