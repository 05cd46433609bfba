"""``sandbox bench``: start, exec, put, get, install and a whole cell beside the docker client."""

from __future__ import annotations

import argparse
import json
import secrets
import tempfile
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sandbox.commands.engine import add_engine, open_engine
from sandbox.commands.library import open_library
from sandbox.conformance.bench import PARTS, bench
from sandbox.conformance.interrupt import interruptible
from sandbox.conformance.plan import chosen
from sandbox.conformance.prepare import prepare_bundles, prepare_images
from sandbox.conformance.timing import Measure, Unmeasured
from sandbox.conformance.ways import choose_way
from sandbox.conformance.world import World
from sandbox.engine.imagebuild.definition import default_images, image_definitions
from sandbox.engine.sweep import sweep
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
    """Measure and print; what was measured before an end by INT or TERM is printed too.

    Returns:
        ERROR when an operation broke, or was not done at its deadline.
    """
    if arguments.rounds < 1:
        raise UsageError(f"--rounds {arguments.rounds}: at least one")
    found: list[Measure | Unmeasured] = []
    try:
        with (
            interruptible(_end),
            progress() as shown,
            tempfile.TemporaryDirectory() as folder,
            closing(_measures(arguments, Path(folder), shown)) as measures,
        ):
            for one in measures:
                found.append(one)  # noqa: PERF402 - those before an error are kept
    except BaseException:
        if found:
            _print(found, as_json=arguments.json)
        raise
    _print(found, as_json=arguments.json)
    return ExitCode.ERROR if any(isinstance(one, Unmeasured) for one in found) else ExitCode.OK


def _end() -> NoReturn:
    raise KeyboardInterrupt


def _measures(
    arguments: argparse.Namespace, folder: Path, shown: Progress
) -> Generator[Measure | Unmeasured]:
    known = registered()
    harnesses = _matching("harness", known.harnesses, arguments.harness)
    names = _matching("image", image_definitions(), arguments.image or default_images())
    parts = arguments.part or PARTS
    with open_engine(arguments, shown) as engine, open_library(shown, known) as library:
        images = prepare_images(engine, names, shown)
        way = choose_way("auto")
        if "engine" in parts:
            pairs = [(harnesses[0], image.platform) for image in images.values()]
            prepare_bundles(library, pairs, shown, unpack=engine.info.is_local)
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
        try:
            for one in bench(world, harnesses=harnesses, rounds=arguments.rounds, parts=parts):
                shown.say(f"{one.image}: {one.operation}: {_result(one)}")
                yield one
        finally:  # a client that was killed may have asked for a container that came later
            sweep(engine, include_run=world.run_id)


def _result(one: Measure | Unmeasured) -> str:
    return f"{one.ratio:.2f}" if isinstance(one, Measure) else f"failed: {one.failed}"


def _matching(kind: str, names: Iterable[str], globs: Sequence[str] | None) -> list[str]:
    """Return the names that one of the globs matches, in the order of the globs."""
    known = sorted(names)
    found = [name for glob in globs or ("*",) for name in chosen(kind, known, [glob])]
    if not found:
        raise NothingSelected(f"no {kind} matches", cure=f"there are: {', '.join(known)}")
    return list(dict.fromkeys(found))


def _print(found: Sequence[Measure | Unmeasured], *, as_json: bool) -> None:
    if as_json:
        rows = [
            {**one.model_dump(), **({"ratio": one.ratio} if isinstance(one, Measure) else {})}
            for one in found
        ]
        print(json.dumps(rows, indent=2))
    elif found:
        Console().print(_table(found))


def _table(found: Sequence[Measure | Unmeasured]) -> Table:
    rounds = max((one.rounds for one in found if isinstance(one, Measure)), default=0)
    table = Table(
        caption=f"medians of {rounds} (cold: once), interleaved in this run; ratio = ours / docker;"
        " of an install: ours / a bare docker cp of the same tree"
    )
    table.add_column("image")
    table.add_column("operation")
    for name in ("ours ms", "docker ms", "ratio"):
        table.add_column(name, justify="right")
    for one in found:
        if isinstance(one, Unmeasured):
            reason = escape(f"{one.operation}\n  failed: {one.failed}")
            table.add_row(one.image, reason, "-", "-", "-")
            continue
        figures = (f"{seconds * 1000:.0f}" for seconds in (one.ours_s, one.docker_s))
        table.add_row(one.image, one.operation, *figures, f"{one.ratio:.2f}")
    return table
