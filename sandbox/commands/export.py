"""``sandbox export --atif DIR``: trajectories of a run for other programs."""

from __future__ import annotations

import argparse
from pathlib import Path

from sandbox.commands.folders import new_folder
from sandbox.errors import CouldNotFindOut, ExitCode, NothingSelected, UsageError
from sandbox.evidence.folder import CellFiles, find_cells, read_cell, write_text
from sandbox.report.atif import VERSION
from sandbox.report.atifexport import atif


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--atif",
        type=Path,
        metavar="DIR",
        required=True,
        help=f"a run folder or one cell folder, to export as {VERSION}",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="new folder, one file a cell (default: the one cell's trajectory to standard output)",
    )


def run(arguments: argparse.Namespace) -> ExitCode:
    """Write one file for each cell that has a trajectory, and name those that have none."""
    cells = find_cells(arguments.atif)
    if not cells:
        raise NothingSelected(
            f"there is no cell in {arguments.atif}", cure="give the folder that --output named"
        )
    if arguments.output is None:
        if len(cells) > 1:
            raise UsageError(f"there are {len(cells)} cells", cure="give a new --output folder")
        print(_text(read_cell(cells[0])), end="")
        return ExitCode.OK
    folder = new_folder(arguments.output)
    for cell in cells:
        try:
            files = read_cell(cell)
            text = _text(files)
        except (CouldNotFindOut, NothingSelected) as error:
            print(f"left out: {error.message}")
            continue
        path = folder / f"{files.cell.cell_id}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
        print(path)
    return ExitCode.OK


def _text(files: CellFiles) -> str:
    found = atif(files)
    if found is None:
        raise NothingSelected(f"{files.cell.cell_id} has no trajectory of one root invocation")
    return found.text()
