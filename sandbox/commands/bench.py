"""``sandbox bench``: start, exec, put, get, install and a whole cell beside the docker client."""

from __future__ import annotations

import argparse
import json
import secrets
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sandbox.commands.engine import add_engine, open_engine
from sandbox.commands.library import open_library
from sandbox.conformance.bench import Measure, bench
from sandbox.conformance.prepare import prepare_bundles, prepare_images
from sandbox.conformance.world import World, choose_way
from sandbox.engine.imagebuild.definition import image_definitions
from sandbox.errors import ExitCode, UsageError
from sandbox.harnesses.registry import registered
from sandbox.progress import Progress, progress


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_engine(parser)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="times each (5)")
    parser.add_argument("--harness", default="codex", help="which runtime to install (codex)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> ExitCode:
    """Measure and print."""
    registered().find(arguments.harness)
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
    with open_engine(arguments, shown) as engine, open_library(shown, known) as library:
        images = prepare_images(engine, image_definitions(), shown)
        pairs = [(arguments.harness, image.platform) for image in images.values()]
        prepare_bundles(library, pairs, shown, choose_way(engine, "auto"))
        world = World(
            engine=engine,
            images=images,
            harnesses=known.harnesses,
            library=library,
            run_id=f"bench-{secrets.token_hex(4)}",
            folder=folder,
            progress=shown,
        )
        measures = []
        for measure in bench(world, harness=arguments.harness, rounds=arguments.rounds):
            shown.say(f"{measure.image}: {measure.operation}: {measure.ratio:.2f}")
            measures.append(measure)
        return measures


def _table(measures: list[Measure]) -> Table:
    rounds = measures[0].rounds if measures else 0
    table = Table(caption=f"medians of {rounds}, interleaved in this run; ratio = ours / docker")
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
