"""``sandbox judge DIR``: judge an earlier run again with today's checks; needs no engine."""

from __future__ import annotations

import argparse
from pathlib import Path

from sandbox.commands.reporting import add_gate, baseline, conclude
from sandbox.errors import ExitCode, UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="a run folder or one cell folder")
    parser.add_argument(
        "cells",
        nargs="*",
        metavar="CELL",
        help="globs of cell ids: judge these alone, and write nothing",
    )
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="another baseline.toml")
    add_gate(parser)
    parser.add_argument("--json", action="store_true", help="print results.json instead of a table")
    parser.add_argument("--dry-run", action="store_true", help="write nothing into DIR")


def run(arguments: argparse.Namespace) -> ExitCode:
    """Judge and report."""
    folder: Path = arguments.folder
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder", cure="give the folder that --output named")
    return conclude(
        folder,
        known=baseline(arguments.baseline),
        as_json=arguments.json,
        gate=arguments.gate,
        write=not arguments.dry_run,
        only=arguments.cells,
    )
