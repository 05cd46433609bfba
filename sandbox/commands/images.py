"""``sandbox images list|build|bake|lock|inspect``: the task images and their state."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from fnmatch import fnmatchcase

from sandbox.commands.engine import add_engine, open_engine
from sandbox.commands.library import open_library
from sandbox.commands.sizes import megabytes
from sandbox.conformance.baked import bake
from sandbox.conformance.imagenames import ALL
from sandbox.conformance.prepare import prepare_images
from sandbox.engine.client import Engine
from sandbox.engine.imagebuild.definition import ImageDef, image_definitions
from sandbox.engine.imagelock import LockedBase, lock_bases
from sandbox.engine.images import build_image, image_definition, inspect_image, list_images
from sandbox.errors import ExitCode, IntegrityError, NothingSelected, PrerequisiteMissing
from sandbox.harnesses.registry import registered
from sandbox.progress import progress


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="all images: loaded, cached or absent")
    listing.add_argument("--json", action="store_true", help="print JSON")
    building = actions.add_parser("build", help="make and load images; what is there is kept")
    building.add_argument(
        "images",
        nargs="*",
        metavar="GLOB",
        help="which; 'all': every one that can be made here (default: the default images)",
    )
    building.add_argument(
        "--again", action="store_true", help="build once more and say whether the ID is the same"
    )
    add_engine(building)
    locking = actions.add_parser(
        "lock", help="ask the registries for the digests of Dockerfiles' base images, and pin them"
    )
    locking.add_argument("images", nargs="*", metavar="GLOB", help="which (default: all)")
    locking.add_argument(
        "--update", action="store_true", help="pin the new digest of a name that moved"
    )
    locking.add_argument("--json", action="store_true", help="print JSON")
    add_engine(locking)
    baking = actions.add_parser(
        "bake", help="make a task image with a harness's verified runtime on its PATH"
    )
    baking.add_argument("harness", metavar="HARNESS")
    baking.add_argument("image", metavar="IMAGE")
    baking.add_argument("--json", action="store_true", help="print JSON")
    add_engine(baking)
    inspecting = actions.add_parser("inspect", help="everything known of one image, as JSON")
    inspecting.add_argument("image", metavar="IMAGE")


def run(arguments: argparse.Namespace) -> ExitCode:
    """Do the action."""
    if arguments.action == "build":
        return _build(arguments)
    if arguments.action == "lock":
        return _lock(arguments)
    if arguments.action == "bake":
        return _bake(arguments)
    engine = _engine_or_none()
    try:
        if arguments.action == "list":
            return _list(engine, as_json=arguments.json)
        found = inspect_image(engine, image_definition(arguments.image))
        print(json.dumps(found.model_dump(mode="json"), indent=2))
        return ExitCode.OK
    finally:
        if engine is not None:
            engine.close()


def _engine_or_none() -> Engine | None:
    try:
        return Engine.connect()
    except PrerequisiteMissing:
        return None


def _list(engine: Engine | None, *, as_json: bool) -> ExitCode:
    records = list_images(engine)
    if as_json:
        print(json.dumps([record.model_dump(mode="json") for record in records], indent=2))
        return ExitCode.OK
    width = max((len(record.name) for record in records), default=0)
    for record in records:
        size = "-" if record.size is None else megabytes(record.size)
        print(
            f"{record.name:<{width}} {record.libc} {record.libc_version:<7} {record.platform:<15} "
            f"{record.state:<8} {size:>7}  {record.image_id or 'not built yet'}"
        )
    return ExitCode.OK


def _chosen(globs: Sequence[str]) -> dict[str, ImageDef]:
    found = {
        name: item
        for name, item in image_definitions().items()
        if any(fnmatchcase(name, "*" if glob == ALL else glob) for glob in globs)
    }
    if not found:
        raise NothingSelected("no image matches", cure="see what there is: sandbox images list")
    return found


def _build(arguments: argparse.Namespace) -> ExitCode:
    found = _chosen(arguments.images or [ALL])
    if arguments.images:
        names = [
            name for name, item in found.items() if item.is_obtainable or name in arguments.images
        ]
    else:
        names = [name for name, item in found.items() if item.default]
    with progress() as shown, open_engine(arguments, shown) as engine:
        if arguments.again:
            for name in (name for name in names if found[name].recipe is not None):
                build_image(found[name], shown, again=True)
        for image in prepare_images(engine, names, shown).values():
            print(f"{image.name}: {image.image_id} ({image.ref})")
    return ExitCode.OK


def _lock(arguments: argparse.Namespace) -> ExitCode:
    found = _chosen(arguments.images or [ALL])
    with progress() as shown, open_engine(arguments, shown) as engine:
        bases = lock_bases(engine, found.values(), update=arguments.update)
    if arguments.json:
        print(json.dumps([base.model_dump(mode="json") for base in bases], indent=2))
    for base in () if arguments.json else bases:
        print(f"{base.image}: {base.base}: {base.state}: {base.digest or base.reason}")
    _expect_pinned(bases)
    return ExitCode.OK


def _expect_pinned(bases: Sequence[LockedBase]) -> None:
    if moved := [base for base in bases if base.state == "moved"]:
        first = moved[0]
        raise IntegrityError(
            f"{len(moved)} base image(s) moved: {first.base} is {first.digest} now, "
            f"{first.image} pins {first.before}",
            cure="look at what changed there, then: sandbox images lock --update",
        )
    if unknown := [base for base in bases if base.state == "unknown"]:
        raise PrerequisiteMissing(
            f"no registry told the digest of {', '.join(base.base for base in unknown)}: "
            f"{unknown[0].reason}",
            cure="give the engine a way to the registry (proxy, mirror, docker login)",
        )


def _bake(arguments: argparse.Namespace) -> ExitCode:
    image_definition(arguments.image)
    known = registered()
    known.find(arguments.harness)
    with (
        progress() as shown,
        open_engine(arguments, shown) as engine,
        open_library(shown, known) as library,
    ):
        image = prepare_images(engine, [arguments.image], shown)[arguments.image]
        with shown.step(f"baking {arguments.harness} into {arguments.image}"):
            baked = bake(engine, library, harness=arguments.harness, image=image)
    print(json.dumps(baked.model_dump(), indent=2) if arguments.json else baked.ref)
    return ExitCode.OK
