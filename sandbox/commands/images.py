"""``sandbox images list|build|inspect``: the task images and their state."""

from __future__ import annotations

import argparse
import json
from fnmatch import fnmatchcase

from sandbox.commands.engine import add_engine, open_engine
from sandbox.commands.sizes import megabytes
from sandbox.conformance.prepare import prepare_images
from sandbox.engine.client import Engine
from sandbox.engine.imagebuild.definition import image_definitions
from sandbox.engine.images import build_image, image_definition, inspect_image, list_images
from sandbox.errors import ExitCode, NothingSelected, PrerequisiteMissing
from sandbox.progress import progress


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="all images: loaded, cached or absent")
    listing.add_argument("--json", action="store_true", help="print JSON")
    building = actions.add_parser("build", help="make and load images; what is there is kept")
    building.add_argument("images", nargs="*", metavar="GLOB", help="which (default: all)")
    building.add_argument(
        "--again", action="store_true", help="build once more and say whether the ID is the same"
    )
    add_engine(building)
    inspecting = actions.add_parser("inspect", help="everything known of one image, as JSON")
    inspecting.add_argument("image", metavar="IMAGE")


def run(arguments: argparse.Namespace) -> ExitCode:
    """Do the action."""
    if arguments.action == "build":
        return _build(arguments)
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
    for record in records:
        size = "-" if record.size is None else megabytes(record.size)
        print(
            f"{record.name:<14} {record.libc} {record.libc_version:<7} {record.platform:<15} "
            f"{record.state:<7} {size:>7}  {record.image_id or 'not built yet'}"
        )
    return ExitCode.OK


def _build(arguments: argparse.Namespace) -> ExitCode:
    globs = arguments.images or ["*"]
    names = [name for name in image_definitions() if any(fnmatchcase(name, glob) for glob in globs)]
    if not names:
        raise NothingSelected("no image matches", cure="see what there is: sandbox images list")
    with progress() as shown, open_engine(arguments, shown) as engine:
        if arguments.again:
            for name in names:
                build_image(image_definition(name), shown, again=True)
        for image in prepare_images(engine, names, shown).values():
            print(f"{image.name}: {image.image_id} ({image.ref})")
    return ExitCode.OK
