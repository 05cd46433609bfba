"""``sandbox runtimes fetch``: the pinned runtimes onto this machine; see also ``sandbox pins``."""

from __future__ import annotations

import argparse

from sandbox.commands.library import selected_library
from sandbox.commands.pins_options import add_options
from sandbox.commands.records import print_records
from sandbox.errors import ExitCode
from sandbox.progress import progress
from sandbox.runtimes.tools import host_platform

_FETCH = "fetch, verify and assemble bundles; what is here already is kept"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the action."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    fetch = actions.add_parser("fetch", help=_FETCH, description=_FETCH)
    add_options("fetch", fetch)
    fetch.add_argument("--harness", action="append", metavar="GLOB")
    fetch.add_argument("--platform", action="append", metavar="GLOB", help=f"default: {_here()}")


def _here() -> str:
    """Return the glob of the platforms that this machine's sandboxes can be."""
    return host_platform().rpartition("-")[0] + "-*"


def run(arguments: argparse.Namespace) -> ExitCode:
    """Fetch."""
    with progress() as shown, selected_library(arguments.pins, shown) as library:
        fetched = library.fetch(arguments.harness or ("*",), arguments.platform or (_here(),))
    lines = [
        f"{item.bundle.harness} {item.bundle.version} {item.bundle.platform}: "
        f"{item.bundle.path} ({'here already' if item.already_here else 'fetched'}, "
        f"{item.duration_s:.1f} s)"
        for item in fetched
    ]
    print_records(fetched, lines, as_json=arguments.json)
    return ExitCode.OK
