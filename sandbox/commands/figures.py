"""``sandbox figures DIR``: what the cells of a run used and left, by harness and image."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

from sandbox.errors import CouldNotFindOut, ExitCode, NothingSelected
from sandbox.evidence.figures import CellFigures, figures_of, figures_table
from sandbox.evidence.folder import attempt_folders, find_cells, read_cell


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("run", type=Path, metavar="DIR", help="a run folder, or one cell's")
    parser.add_argument("--json", action="store_true", help="print each cell's figures as JSON")


def run(arguments: argparse.Namespace) -> ExitCode:
    """Print a table in Markdown; no engine is needed.

    Raises:
        NothingSelected: there is no readable cell in the folder.
    """
    folders = [cell for part in attempt_folders(arguments.run) for cell in find_cells(part)]
    found = list(_readable(folders))
    if not found:
        raise NothingSelected(
            f"there is no cell in {arguments.run}", cure="give the folder that --output named"
        )
    if arguments.json:
        print(json.dumps([one.model_dump(mode="json") for one in found], indent=2))
    else:
        print(figures_table(found), end="")
    return ExitCode.OK


def _readable(folders: Iterable[Path]) -> Iterable[CellFigures]:
    for folder in folders:
        try:
            yield figures_of(read_cell(folder))
        except CouldNotFindOut:
            continue  # the judge tells of it
