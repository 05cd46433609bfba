"""``sandbox sweep``: remove what dead runs left on the engine and in the temporary folder."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from sandbox.engine.client import Engine
from sandbox.engine.sweep import sweep
from sandbox.engine.workroom import remove_abandoned
from sandbox.errors import ExitCode


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--run", metavar="ID", help="remove this run's things whoever owns them")


def run(arguments: argparse.Namespace) -> ExitCode:
    """Sweep and say what went and what stayed; nothing of living runs goes."""
    folders = remove_abandoned(Path(tempfile.gettempdir()))
    with Engine.connect() as engine:
        swept = sweep(engine, include_run=arguments.run)
    for item in swept.removed:
        print(f"removed {item.kind} {item.name} (run {item.run_id})")
    for folder in folders:
        print(f"removed folder {folder}")
    for kept in swept.kept:
        print(f"kept    {kept.item.kind} {kept.item.name}: {kept.reason}")
    if not (swept.removed or swept.kept or folders):
        print("nothing of ours is there")
    return ExitCode.OK
