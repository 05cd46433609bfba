"""``sandbox figures DIR``: what the cells of a run used and left, by harness and image."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from sandbox.commands.folders import cells_in
from sandbox.errors import ExitCode
from sandbox.evidence.figures import figures_of, figures_table


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("run", type=Path, metavar="DIR", help="a run folder, or one cell's")
    parser.add_argument("--json", action="store_true", help="print each cell's figures as JSON")


def run(arguments: argparse.Namespace) -> ExitCode:
    """Print a table in Markdown; no engine is needed.

    Raises:
        NothingSelected: there is no readable cell in the folder.
    """
    found = [figures_of(files) for files in cells_in([arguments.run])]
    if arguments.json:
        print(json.dumps([one.model_dump(mode="json") for one in found], indent=2))
    else:
        print(figures_table(found), end="")
    return ExitCode.OK
