"""``sandbox list``: the cells that a selection holds, and what each scenario proves."""

from __future__ import annotations

import argparse
import json
import sys

from sandbox.commands.selection import add_selection, planned
from sandbox.conformance.scenarios import SCENARIOS
from sandbox.errors import ExitCode


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_selection(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> ExitCode:
    """Print one line a cell; needs no engine."""
    plan, broken = planned(arguments)
    for error in broken.values():
        print(f"sandbox: left out: {error}", file=sys.stderr)
    if arguments.json:
        print(
            json.dumps(
                [
                    {**cell.model_dump(), "cell_id": cell.cell_id, "proves": _proves(cell.scenario)}
                    for cell in plan
                ],
                indent=2,
            )
        )
        return ExitCode.OK
    width = max(len(cell.cell_id) for cell in plan)
    for cell in plan:
        print(f"{cell.cell_id:<{width}}  {_proves(cell.scenario)}")
    return ExitCode.OK


def _proves(scenario: str) -> str:
    return SCENARIOS[scenario].expectation.proves
