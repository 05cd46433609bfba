"""``sandbox report --egress DIR``: what recorded cells tried to reach, by harness and settings."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

from sandbox.commands.folders import cells_in
from sandbox.errors import ExitCode
from sandbox.evidence.egress import CellEgress, cell_egress
from sandbox.report.egress import egress_page


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--egress",
        action="store_true",
        required=True,
        help="the hosts that each harness tried to reach, with our settings and its defaults",
    )
    parser.add_argument(
        "folders",
        nargs="+",
        type=Path,
        metavar="DIR",
        help="a run folder, or what `sandbox egress --output` named",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of Markdown")


def run(arguments: argparse.Namespace) -> ExitCode:
    """Print the page; no engine is needed.

    Raises:
        NothingSelected: there is no readable cell in the folders.
    """
    show_egress(
        [cell_egress(files) for files in cells_in(arguments.folders)], as_json=arguments.json
    )
    return ExitCode.OK


def show_egress(cells: Iterable[CellEgress], *, as_json: bool) -> None:
    """Print what cells tried, as a page or as JSON."""
    found = list(cells)
    if as_json:
        print(json.dumps([one.model_dump(mode="json") for one in found], indent=2))
    else:
        print(egress_page(found), end="")
