"""``sandbox bench``: start, exec, put, get, install and a whole cell beside the docker client."""

from __future__ import annotations

import argparse
import json
import secrets
import tempfile
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sandbox.commands.engine import add_engine, open_engine
from sandbox.commands.library import open_library
from sandbox.conformance.bench import PARTS, bench
from sandbox.conformance.prepare import prepare_bundles, prepare_images
from sandbox.conformance.timing import Measure
from sandbox.conformance.world import World, choose_way
from sandbox.engine.imagebuild.definition import default_images, image_definitions
from sandbox.errors import ExitCode, NothingSelected, UsageError
from sandbox.harnesses.registry import registered
from sandbox.progress import Progress, progress


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_engine(parser)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="times each (5)")
    parser.add_argument(
        "--harness",
        action="append",
        metavar="GLOB",
        help="which runtimes to install (default: all; the cell measured is the first one's)",
    )
    parser.add_argument(
        "--image", action="append", metavar="GLOB", help="which images (default: the default ones)"
    )
    parser.add_argument(
        "--part", action="append", choices=PARTS, help="which operations (default: all)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> ExitCode:
    """Measure and print."""
    if arguments.rounds < 1:
        raise UsageError(f"--rounds {arguments.rounds}: at least one")
    with progress() as shown, tempfile.TemporaryDirectory() as folder:
        measures = _measures(arguments, Path(folder), shown)
    if arguments.json:
        rows = [{**measure.model_dump(), "ratio": measure.ratio} for measure in measures]
        print(json.dumps(rows, indent=2))
    else:
        Console().print(_table(measures))
    return ExitCode.OK


def _measures(arguments: argparse.Namespace, folder: Path, shown: Progress) -> list[Measure]:
    known = registered()
    harnesses = _matching("harness", known.harnesses, arguments.harness)
    names = _matching("image", image_definitions(), arguments.image or default_images())
    with open_engine(arguments, shown) as engine, open_library(shown, known) as library:
        images = prepare_images(engine, names, shown)
        pairs = [(one, image.platform) for image in images.values() for one in harnesses]
        way = choose_way(engine, "auto")
        prepare_bundles(library, pairs, shown, way)
        world = World(
            engine=engine,
            images=images,
            harnesses=known.harnesses,
            library=library,
            run_id=f"bench-{secrets.token_hex(4)}",
            folder=folder,
            progress=shown,
            way=way,
        )
        measures = []
        for measure in bench(
            world, harnesses=harnesses, rounds=arguments.rounds, parts=arguments.part or PARTS
        ):
            shown.say(f"{measure.image}: {measure.operation}: {measure.ratio:.2f}")
            measures.append(measure)
        return measures


def _matching(kind: str, names: Iterable[str], globs: Sequence[str] | None) -> list[str]:
    """Return the names that one of the globs matches, in the order of the globs."""
    found = [name for glob in globs or ("*",) for name in sorted(names) if fnmatchcase(name, glob)]
    if not found:
        raise NothingSelected(f"no {kind} matches", cure=f"there are: {', '.join(sorted(names))}")
    return list(dict.fromkeys(found))


def _table(measures: list[Measure]) -> Table:
    rounds = max((measure.rounds for measure in measures), default=0)
    table = Table(
        caption=f"medians of {rounds} (cold: once), interleaved in this run; ratio = ours / docker;"
        " of an install: ours / a bare docker cp of the same tree"
    )
    table.add_column("image")
    table.add_column("operation")
    for name in ("ours ms", "docker ms", "ratio"):
        table.add_column(name, justify="right")
    for measure in measures:
        table.add_row(
            measure.image,
            measure.operation,
            f"{measure.ours_s * 1000:.0f}",
            f"{measure.docker_s * 1000:.0f}",
            f"{measure.ratio:.2f}",
        )
    return table
