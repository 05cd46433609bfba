"""``sandbox bench``: what we take beside the docker client and others, as ratios."""

from __future__ import annotations

import argparse
import secrets
import tempfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from pydantic import ValidationError
from rich.console import Console

from sandbox.commands.engine import add_engine, open_engine
from sandbox.commands.library import open_library
from sandbox.conformance.bench import NEED_A_RUNTIME, PARTS, Found, Wanted, begun, bench, with_found
from sandbox.conformance.interrupt import interruptible
from sandbox.conformance.plan import chosen
from sandbox.conformance.prepare import prepare_bundles, prepare_images
from sandbox.conformance.ways import choose_way
from sandbox.conformance.world import World
from sandbox.engine.imagebuild.definition import default_images, image_definitions
from sandbox.engine.peers.contender import PEERS, find_peers
from sandbox.engine.sweep import sweep
from sandbox.errors import ExitCode, NothingSelected, UsageError
from sandbox.evidence.benches import BenchRecord, Measure, Unmeasured, ratio_changes
from sandbox.evidence.folder import brief
from sandbox.harnesses.registry import registered
from sandbox.progress import Progress, progress
from sandbox.report.benches import bench_tables, changes_table

DEFAULT_HARNESS = "codex"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_engine(parser)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="times each (5)")
    parser.add_argument(
        "--harness",
        action="append",
        metavar="GLOB",
        help="which runtimes to install (default: codex); cells are those of the first",
    )
    parser.add_argument(
        "--image", action="append", metavar="GLOB", help="which images (default: the default ones)"
    )
    parser.add_argument("--part", action="append", choices=PARTS, help="which parts (default: all)")
    parser.add_argument(
        "--peer-image",
        action="append",
        default=[],
        metavar="NAME=REF",
        help="an image for a peer that needs its own, as swe-rex=REF",
    )
    parser.add_argument("--json", action="store_true", help="print the record as JSON")
    parser.add_argument(
        "--no-times",
        action="store_true",
        help="leave absolute times out of the JSON: what is left is comparable between machines",
    )
    parser.add_argument(
        "--compare", type=Path, metavar="FILE", help="show how the ratios differ from a record"
    )


def run(arguments: argparse.Namespace) -> ExitCode:
    """Measure and print; what was measured before an end by INT or TERM is printed too.

    Returns:
        ERROR when an operation of ours broke, or was not done at its deadline.
    """
    if arguments.rounds < 1:
        raise UsageError(f"--rounds {arguments.rounds}: at least one")
    before = None if arguments.compare is None else _record(arguments.compare)
    images = dict(_pair(text) for text in arguments.peer_image)
    seen = _Seen()
    try:
        with (
            interruptible(_end),
            progress() as shown,
            tempfile.TemporaryDirectory() as folder,
            closing(_measures(arguments, images, Path(folder), shown, seen)) as measures,
        ):
            for one in measures:
                seen.found.append(one)
    except BaseException:
        if seen.found:
            _print(seen, arguments, before)
        raise
    _print(seen, arguments, before)
    return ExitCode.ERROR if seen.broken else ExitCode.OK


@dataclass
class _Seen:
    """What was found so far; ``record`` None: nothing was begun."""

    record: BenchRecord | None = None
    found: list[Found] = field(default_factory=list)

    @property
    def broken(self) -> bool:
        """Whether something broke that is not only a peer's."""
        return any(isinstance(one, Unmeasured) and one.by not in PEERS for one in self.found)


def _end() -> NoReturn:
    raise KeyboardInterrupt


def _record(path: Path) -> BenchRecord:
    try:
        return BenchRecord.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except ValidationError as error:
        raise UsageError(
            f"{path} is no record of a bench of this version: {brief(error)}",
            cure="compare with what `sandbox bench --json` printed",
        ) from error


def _pair(text: str) -> tuple[str, str]:
    name, equals, ref = text.partition("=")
    if name not in PEERS or not equals or not ref:
        known = ", ".join(PEERS)
        raise UsageError(f"--peer-image {text}: not NAME=REF", cure=f"names are: {known}")
    return name, ref


def _measures(
    arguments: argparse.Namespace,
    peer_images: Mapping[str, str],
    folder: Path,
    shown: Progress,
    seen: _Seen,
) -> Generator[Found]:
    known = registered()
    harnesses = _matching("harness", known.harnesses, arguments.harness or [DEFAULT_HARNESS])
    names = _matching("image", image_definitions(), arguments.image or default_images())
    parts = arguments.part or PARTS
    peers = find_peers() if "peers" in parts else ()
    with open_engine(arguments, shown) as engine, open_library(shown, known) as library:
        images = prepare_images(engine, names, shown)
        way = choose_way("auto")
        if NEED_A_RUNTIME & set(parts):
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
        seen.record = begun(engine, peers)
        wanted = Wanted(
            harnesses=harnesses,
            rounds=arguments.rounds,
            parts=parts,
            peers=peers,
            peer_images=peer_images,
        )
        try:
            for one in bench(world, wanted):
                _say(one, shown)
                yield one
        finally:  # a client that was killed may have asked for a container that came later
            sweep(engine, include_run=world.run_id)


def _say(one: Found, shown: Progress) -> None:
    if isinstance(one, Unmeasured):
        shown.say(f"{one.image}: {one.operation}: failed: {one.failed}")
    elif isinstance(one, Measure):
        ratios = ", ".join(f"{ratio:.2f} of {name}" for name, ratio in one.ratios.items())
        shown.say(f"{one.image}: {one.operation}: {ratios}")


def _matching(kind: str, names: Iterable[str], globs: Sequence[str]) -> list[str]:
    """Return the names that one of the globs matches, in the order of the globs."""
    known = sorted(names)
    found = [name for glob in globs for name in chosen(kind, known, [glob])]
    if not found:
        raise NothingSelected(f"no {kind} matches", cure=f"there are: {', '.join(known)}")
    return list(dict.fromkeys(found))


def _print(seen: _Seen, arguments: argparse.Namespace, before: BenchRecord | None) -> None:
    if seen.record is None:
        return
    record = with_found(seen.record, seen.found)
    if arguments.json:
        told = record.without_times() if arguments.no_times else record
        print(told.model_dump_json(indent=2))
        return
    console = Console()
    console.print(bench_tables(record))
    if before is not None:
        console.print(changes_table(ratio_changes(before, record)))
