"""``sandbox prepare``: engine, images and runtimes, so that later commands start at once."""

from __future__ import annotations

import argparse

from sandbox.commands.engine import add_engine, open_engine
from sandbox.commands.library import open_library
from sandbox.commands.selection import add_selection, selected
from sandbox.conformance.prepare import prepare
from sandbox.conformance.ways import choose_way
from sandbox.errors import ExitCode
from sandbox.progress import progress


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_selection(parser)
    add_engine(parser)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Make ready what the selection needs and say what there is."""
    plan = selected(arguments)
    with (
        progress() as shown,
        open_engine(arguments, shown) as engine,
        open_library(shown) as library,
    ):
        images = prepare(engine, library, plan, shown, choose_way("auto"))
        print(f"engine {engine.info.version} at {engine.info.host}")
        for image in images.values():
            print(f"image {image.name} {image.platform} {image.image_id}")
        for entry in library.entries():
            here = "ready" if entry.cached else "not needed"
            print(f"runtime {entry.harness} {entry.version} {entry.platform}: {here}")
    return ExitCode.OK
