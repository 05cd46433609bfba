"""``sandbox egress``: what each harness phones home to, with our settings and with its defaults."""

from __future__ import annotations

import argparse
import json
import secrets
import tempfile
from pathlib import Path

from sandbox.commands.engine import add_engine, open_engine
from sandbox.commands.library import open_library
from sandbox.conformance.plan import Axes, CellSpec, Selection, make_plan
from sandbox.conformance.prepare import prepare
from sandbox.conformance.runner import begin, run_plan
from sandbox.conformance.ways import choose_way
from sandbox.conformance.world import World
from sandbox.engine.imagebuild.definition import image_definitions
from sandbox.errors import ExitCode, UsageError
from sandbox.evidence.egress import CellEgress, Settings, cell_egress, markdown
from sandbox.evidence.folder import cell_folder, read_cell
from sandbox.harnesses.base import Harness
from sandbox.harnesses.loud import Loud
from sandbox.harnesses.registry import registered
from sandbox.progress import Progress, progress

SCENARIO = "tool_success"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--harness", action="append", default=[], metavar="GLOB", help="which (default: all)"
    )
    parser.add_argument(
        "--image", default="debian-12", metavar="NAME", help="in which image (debian-12)"
    )
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="cells at a time (2)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--quiet", action="store_true", help="no progress lines")
    add_engine(parser)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Run a cell twice for each harness; print a table in Markdown. Nothing leaves a sandbox.

    Returns:
        FAILED when a harness asked for a name although it has our settings.
    """
    if arguments.jobs < 1:
        raise UsageError(f"--jobs {arguments.jobs}: at least one cell at a time")
    known = registered()
    axes = Axes(harnesses=known.names, images=tuple(image_definitions()), scenarios=(SCENARIO,))
    wanted = Selection(harnesses=tuple(arguments.harness), images=(arguments.image,))
    plan = make_plan(axes, wanted)
    quiet = {cell.harness: known.find(cell.harness) for cell in plan}
    loud: dict[str, Harness] = {name: Loud(harness) for name, harness in quiet.items()}
    sides: dict[Settings, dict[str, Harness]] = {"ours": quiet, "defaults": loud}
    with progress(quiet=arguments.quiet) as shown:
        cells = [
            one
            for settings, harnesses in sides.items()
            for one in _cells(plan, harnesses, settings, arguments, shown)
        ]
    if arguments.json:
        print(json.dumps([one.model_dump(mode="json") for one in cells], indent=2))
    else:
        print(markdown(cells), end="")
    heard = any(one.names for one in cells if one.settings == "ours")
    return ExitCode.FAILED if heard else ExitCode.OK


def _cells(
    plan: tuple[CellSpec, ...],
    harnesses: dict[str, Harness],
    settings: Settings,
    arguments: argparse.Namespace,
    shown: Progress,
) -> list[CellEgress]:
    with (
        open_engine(arguments, shown) as engine,
        open_library(shown) as library,
        tempfile.TemporaryDirectory(prefix="egress-") as folder,
    ):
        way = choose_way("auto")
        world = World(
            engine=engine,
            images=prepare(engine, library, plan, shown, way),
            harnesses=harnesses,
            library=library,
            run_id=f"egress-{secrets.token_hex(4)}",
            folder=Path(folder),
            progress=shown,
            way=way,
        )
        shown.say(f"with {'our settings' if settings == 'ours' else 'the defaults'}:")
        record = begin(world, plan, profile="egress")
        run_plan(plan, world, record=record, jobs=arguments.jobs)
        return [
            cell_egress(read_cell(cell_folder(world.folder, cell.cell_id)), settings)
            for cell in plan
        ]
