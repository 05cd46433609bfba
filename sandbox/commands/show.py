"""``sandbox show CELL``: the story of one cell, from the folder of a run."""

from __future__ import annotations

import argparse
from fnmatch import fnmatchcase
from pathlib import Path

from sandbox.commands.folders import RESULTS
from sandbox.commands.reporting import baseline, judged
from sandbox.errors import ExitCode, NothingSelected, UsageError
from sandbox.evidence.folder import attempt_folder, cell_id_of, find_cells, read_cell
from sandbox.evidence.nativetext import native_texts
from sandbox.report.storytext import story_text


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("cell", metavar="CELL", help="a cell id, a glob of one, or a cell folder")
    parser.add_argument(
        "--run",
        dest="folder",
        type=Path,
        metavar="DIR",
        help="the run folder (default: the newest one below results/)",
    )
    parser.add_argument(
        "--attempt", type=int, default=1, metavar="N", help="which run of a repeated cell"
    )
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="another baseline.toml")
    parser.add_argument(
        "--width", type=int, default=800, metavar="N", help="characters of each quoted text"
    )
    parser.add_argument("--native", action="store_true", help="transcripts and output too")


def run(arguments: argparse.Namespace) -> ExitCode:
    """Print it; the exit code says nothing of the verdicts."""
    folder = _cell(arguments)
    files = read_cell(folder)
    (result,) = judged(folder, known=baseline(arguments.baseline)).cells
    texts = {}
    if arguments.native:
        texts = native_texts(folder, files.native, most=arguments.width * 4)
    print(story_text(result, files, texts, most=arguments.width), end="")
    return ExitCode.OK


def _cell(arguments: argparse.Namespace) -> Path:
    path = Path(arguments.cell)
    if (path / "cell.json").is_file():
        return path
    run_folder = attempt_folder(arguments.folder or _newest(), arguments.attempt)
    found = {cell_id_of(run_folder, folder): folder for folder in find_cells(run_folder)}
    matching = [name for name in found if fnmatchcase(name, arguments.cell)]
    if not matching:
        raise NothingSelected(
            f"there is no cell {arguments.cell!r} in {run_folder}",
            cure=f"there are: {', '.join(list(found)[:12])}" if found else None,
        )
    if len(matching) > 1:
        raise UsageError(
            f"{arguments.cell!r} matches {len(matching)} cells", cure=f"name one: {matching[0]} ..."
        )
    return found[matching[0]]


def _newest() -> Path:
    runs = sorted(RESULTS.glob("*/run.json"), key=lambda path: path.stat().st_mtime)
    if not runs:
        raise UsageError(f"there is no run below {RESULTS}", cure="give its folder: --run DIR")
    return runs[-1].parent
