"""``sandbox egress``: what each harness phones home to, with our settings and with its defaults."""

from __future__ import annotations

import argparse
import secrets
import tempfile
from contextlib import ExitStack
from pathlib import Path

from sandbox.commands.engine import add_engine, open_engine
from sandbox.commands.folders import cells_in, new_folder
from sandbox.commands.library import open_library
from sandbox.commands.report import show_egress
from sandbox.conformance.plan import Axes, CellSpec, Selection, make_plan
from sandbox.conformance.prepare import prepare
from sandbox.conformance.runner import begin, run_plan
from sandbox.conformance.spare import no_spare
from sandbox.conformance.ways import choose_way
from sandbox.conformance.world import World
from sandbox.engine.imagebuild.definition import image_definitions
from sandbox.errors import ExitCode, UsageError
from sandbox.evidence.egress import cell_egress
from sandbox.evidence.records import Settings
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
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="keep both runs there, for `sandbox report --egress DIR` (default: keep nothing)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of Markdown")
    parser.add_argument("--quiet", action="store_true", help="no progress lines")
    add_engine(parser)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Run a cell twice for each harness; print a page in Markdown. Nothing leaves a sandbox.

    Returns:
        FAILED when a harness tried to reach something although it has our settings; ERROR when a
        cell could not be watched, or did not come to its end.
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
    with ExitStack() as stack:
        shown = stack.enter_context(progress(quiet=arguments.quiet))
        if arguments.output is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="egress-")))
        else:
            folder = new_folder(arguments.output)
        for settings, harnesses in sides.items():
            _run(plan, harnesses, settings, arguments, folder=folder / settings, shown=shown)
        cells = [cell_egress(files) for files in cells_in([folder])]
    show_egress(cells, as_json=arguments.json)
    if any(one.tried for one in cells if one.settings == "ours"):
        return ExitCode.FAILED
    whole = all(one.tried is not None and one.failed is None for one in cells)
    return ExitCode.OK if whole else ExitCode.ERROR


def _run(
    plan: tuple[CellSpec, ...],
    harnesses: dict[str, Harness],
    settings: Settings,
    arguments: argparse.Namespace,
    *,
    folder: Path,
    shown: Progress,
) -> None:
    with open_engine(arguments, shown) as engine, open_library(shown) as library:
        way = choose_way("auto")
        world = World(
            engine=engine,
            images=prepare(engine, library, plan, shown, way),
            harnesses=harnesses,
            library=library,
            run_id=f"egress-{secrets.token_hex(4)}",
            folder=new_folder(folder),
            progress=shown,
            egress="connections",
            settings=settings,
            way=way,
        )
        shown.say(f"with {'our settings' if settings == 'ours' else 'the defaults'}:")
        record = begin(world, plan, profile="egress")
        run_plan(plan, world, record=record, spare=no_spare(arguments.jobs))
