"""``sandbox cache list|prune``: what lies in the cache folder, and removing what nobody needs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from sandbox.commands.sizes import megabytes
from sandbox.conformance.baked import baked_entries
from sandbox.engine.bake import remove_image
from sandbox.engine.client import Engine
from sandbox.engine.imagecache import image_folder, needed_images, needed_wheels
from sandbox.errors import ExitCode
from sandbox.harnesses.registry import registered
from sandbox.runtimes.library import RuntimeLibrary
from sandbox.runtimes.pruning import Shelf, entries_of, prune, runtime_shelves
from sandbox.runtimes.reports import CacheEntry
from sandbox.runtimes.store import Store

_ACTIONS = {
    "list": "what lies there: needed, used by a living process, or neither",
    "prune": "remove what no lock or recipe of today names and no living process uses",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in _ACTIONS.items():
        action = actions.add_parser(name, help=text, description=text)
        action.add_argument(
            "--pins",
            type=Path,
            action="append",
            default=[],
            metavar="FILE",
            help="another pins.toml whose lock counts too; may be given again",
        )
        action.add_argument(
            "--engine",
            action="store_true",
            help="also the images that `sandbox images bake` and legacy cells made on the engine",
        )
        action.add_argument("--json", action="store_true", help="print JSON")
        if name == "prune":
            action.add_argument("--dry-run", action="store_true", help="only say what would go")


def run(arguments: argparse.Namespace) -> ExitCode:
    """Do the action."""
    others = {*arguments.pins, *registered().pins_files.values()}
    with ExitStack() as stack:  # a lock that cannot be read ends it: it may name anything
        libraries = [stack.enter_context(RuntimeLibrary(pins)) for pins in (None, *sorted(others))]
        found = [entry for shelf in _shelves(libraries) for entry in entries_of(shelf)]
        bundles = {entry.sha256 for library in libraries for entry in library.entries()}
        engine = stack.enter_context(Engine.connect()) if arguments.engine else None
        if engine is not None:
            found += baked_entries(engine, bundles)
        return _answer(arguments, found, engine)


def _answer(
    arguments: argparse.Namespace, found: list[CacheEntry], engine: Engine | None
) -> ExitCode:
    if arguments.action == "prune":
        found = [entry for entry in found if entry.state == "unneeded"]
        if not arguments.dry_run:
            found = [entry for entry in found if _pruned(entry, engine)]
    if arguments.json:
        print(json.dumps([entry.model_dump(mode="json") for entry in found], indent=2))
    else:
        print("\n".join(_lines(arguments, found)))
    return ExitCode.OK


def _pruned(entry: CacheEntry, engine: Engine | None) -> bool:
    if entry.kind != "baked":
        return prune(entry)
    assert engine is not None
    return remove_image(engine, str(entry.path))


def _shelves(libraries: Sequence[RuntimeLibrary]) -> Iterator[Shelf]:
    yield from runtime_shelves(Store.default(), libraries)
    wheels = image_folder() / "wheels"
    yield Shelf(folder=image_folder(), kind="image", needed=needed_images() | {wheels})
    yield Shelf(folder=wheels, kind="wheel", needed=needed_wheels())


def _lines(arguments: argparse.Namespace, found: Sequence[CacheEntry]) -> Iterator[str]:
    for entry in found:
        what = f"{entry.kind:<9} {megabytes(entry.size):>8}  {entry.path}"
        yield what if arguments.action == "prune" else f"{entry.state:<8} {what}"
    total = megabytes(sum(entry.size for entry in found))
    if arguments.action == "list":
        loose = megabytes(sum(entry.size for entry in found if entry.state == "unneeded"))
        yield f"{len(found)} entries, {total}; `sandbox cache prune` would free {loose}"
    else:
        verb = "would remove" if arguments.dry_run else "removed"
        yield f"{verb} {len(found)} entries, {total}"
