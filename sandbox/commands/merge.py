"""``sandbox merge DIR...``: bring the parts of a sharded run together and judge the whole."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from sandbox.commands.folders import new_folder, record_of
from sandbox.commands.reporting import add_gate, baseline, conclude
from sandbox.errors import ExitCode
from sandbox.evidence.folder import (
    attempt_folder,
    attempt_folders,
    cell_folder,
    cell_id_of,
    find_cells,
    write_run,
)
from sandbox.evidence.foretold import read_preflight, united, write_preflight
from sandbox.evidence.merge import Merged, merge


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("parts", nargs="+", type=Path, metavar="DIR", help="run folders, the parts")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", required=True, help="new folder for the whole run"
    )
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="another baseline.toml")
    add_gate(parser)
    parser.add_argument("--json", action="store_true", help="print results.json instead of a table")


def run(arguments: argparse.Namespace) -> ExitCode:
    """Bring the cells of all parts into one run, judge it and write its reports."""
    known = baseline(arguments.baseline)
    parts: list[Path] = arguments.parts
    merged = merge(
        {part: record_of(part) for part in parts},
        {part: tuple(cell_id_of(part, cell) for cell in find_cells(part)) for part in parts},
    )
    folder = new_folder(arguments.output)
    for number in range(1, max(len(attempt_folders(part)) for part in parts) + 1):
        _bring(merged, folder, number)
    told = united(filter(None, map(read_preflight, parts)))
    if told is not None:
        write_preflight(folder, told)
    return conclude(folder, known=known, as_json=arguments.json, gate=arguments.gate)


def _bring(merged: Merged, folder: Path, number: int) -> None:
    to = attempt_folder(folder, number)
    write_run(to, merged.record)
    for cell, part in merged.sources.items():
        source = cell_folder(attempt_folder(part, number), cell)
        if source.is_dir():
            shutil.copytree(source, cell_folder(to, cell), symlinks=True, copy_function=_linked)


def _linked(source: str, to: str) -> str:
    """Give the file a second name: recorded files never change; copy it to another file system."""
    try:
        os.link(source, to, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, to, follow_symlinks=False)
    return to
