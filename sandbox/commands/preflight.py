"""``sandbox preflight``: what images are, and which harnesses will work in them, before a run."""

from __future__ import annotations

import argparse
import secrets
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from pathlib import Path

from rich.console import Console

from sandbox.commands.conditions import add_conditions
from sandbox.commands.engine import add_engine, open_engine
from sandbox.commands.library import open_library
from sandbox.conformance.imagenames import image_lines, read_image_words
from sandbox.conformance.plan import Axes, Selection, make_plan
from sandbox.conformance.preflight import preflight
from sandbox.conformance.prepare import prepare
from sandbox.conformance.prove import plan_of, with_proofs
from sandbox.conformance.runner import begin, run_plan
from sandbox.conformance.spare import no_spare
from sandbox.conformance.ways import choose_way
from sandbox.conformance.world import World
from sandbox.engine.client import Engine
from sandbox.engine.imagebuild.definition import image_definitions
from sandbox.errors import ExitCode, UsageError
from sandbox.evidence.foretold import PROVING
from sandbox.evidence.preflight import PreflightReport
from sandbox.harnesses.base import Harness
from sandbox.harnesses.registry import Registered, registered
from sandbox.progress import Progress, progress
from sandbox.report.preflight import preflight_report
from sandbox.runtimes.collection import RuntimeCollection


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "images",
        nargs="*",
        metavar="IMAGE",
        help="a glob of defined names, 'all', or an image reference (default: the default images)",
    )
    parser.add_argument(
        "--file", action="append", default=[], type=Path, help="a file with one image a line"
    )
    parser.add_argument(
        "--harness", action="append", default=[], metavar="GLOB", help="only such harnesses"
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="images at a time")
    parser.add_argument(
        "--prove",
        action="store_true",
        help=f"run a cell of {PROVING} for each prediction and count the disagreements",
    )
    add_conditions(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress lines")
    add_engine(parser)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Look, foretell, prove if asked to; a refused harness is an answer, not a failure.

    Returns:
        ERROR when an image could not be looked at or a cell broke, FAILED when a proof was not what
        was predicted.
    """
    if arguments.jobs is not None and arguments.jobs < 1:
        raise UsageError(f"--jobs {arguments.jobs}: at least one image at a time")
    names = _names(arguments)
    known = registered()
    harnesses = _harnesses(arguments.harness, known)
    with (
        progress(quiet=arguments.quiet) as shown,
        open_engine(arguments, shown) as engine,
        open_library(shown, known) as library,
    ):
        report = preflight(
            engine,
            names,
            harnesses,
            library,
            shown,
            jobs=arguments.jobs,
            conditions=arguments.condition,
        )
        if arguments.prove:
            report = _proven(report, engine, harnesses, library, shown)
    if arguments.json:
        print(report.model_dump_json(indent=2))
    else:
        Console().print(preflight_report(report))
    return _code(report)


def _names(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the images' names in the order in which they were named."""
    listed = [word for path in arguments.file for word in image_lines(path)]
    words = read_image_words([*arguments.images, *listed], image_definitions())
    axes = Axes(harnesses=("any",), images=words.known, scenarios=("any",))
    chosen = {cell.image for cell in make_plan(axes, Selection(images=words.globs))}
    found = (name for glob in words.globs for name in words.known if fnmatchcase(name, glob))
    return tuple(name for name in dict.fromkeys(found) if name in chosen)


def _harnesses(globs: Sequence[str], known: Registered) -> dict[str, Harness]:
    axes = Axes(harnesses=known.names, images=("any",), scenarios=("any",))
    plan = make_plan(axes, Selection(harnesses=tuple(globs)))
    return {cell.harness: known.find(cell.harness) for cell in plan}


def _proven(
    report: PreflightReport,
    engine: Engine,
    harnesses: dict[str, Harness],
    library: RuntimeCollection,
    shown: Progress,
) -> PreflightReport:
    plan, way = plan_of(report), choose_way("auto")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="preflight-")))
        world = World(
            engine=engine,
            images=prepare(engine, library, plan, shown, way),
            harnesses=harnesses,
            library=library,
            run_id=f"preflight-{secrets.token_hex(4)}",
            folder=folder,
            way=way,
            conditions=report.conditions,
            progress=shown,
        )
        record = begin(world, plan, profile="preflight")
        run_plan(plan, world, record=record, spare=no_spare(report.jobs))
        return with_proofs(report, folder)


def _code(report: PreflightReport) -> ExitCode:
    if report.disagreements:
        return ExitCode.FAILED
    unknown = any(
        image.error is not None or any(one.outcome == "unknown" for one in image.forecasts)
        for image in report.images
    )
    return ExitCode.ERROR if unknown or report.undecided else ExitCode.OK
