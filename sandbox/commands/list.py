"""``sandbox list``: the cells that a selection holds, and what each scenario proves."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Iterator

from sandbox.commands.selection import add_selection, planned
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.scenarios import SCENARIOS
from sandbox.engine.imagebuild.definition import arch_of, image_definitions
from sandbox.errors import ExitCode
from sandbox.harnesses.registry import Registered, registered


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_selection(parser)
    parser.add_argument(
        "--json",
        action="store_true",
        help="print JSON: also platform and capabilities, on an engine of this machine's kind",
    )


def run(arguments: argparse.Namespace) -> ExitCode:
    """Print one line a cell; needs no engine."""
    known = registered()
    plan, broken = planned(arguments, known)
    for error in broken.values():
        print(f"sandbox: left out: {error}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(list(_described(plan, known)), indent=2))
        return ExitCode.OK
    width = max(len(cell.cell_id) for cell in plan)
    for cell in plan:
        print(f"{cell.cell_id:<{width}}  {_proves(cell.scenario)}")
    return ExitCode.OK


def _described(plan: tuple[CellSpec, ...], known: Registered) -> Iterator[dict[str, object]]:
    images, arch = image_definitions(), arch_of(platform.machine())
    for cell in plan:
        where = images[cell.image].platform(arch)
        can = known.harnesses[cell.adapter].capabilities.on(where)
        yield {
            **cell.model_dump(),
            "cell_id": cell.cell_id,
            "platform": where,
            "proves": _proves(cell.scenario),
            "capabilities": can.model_dump(mode="json", exclude={"exceptions"}),
        }


def _proves(scenario: str) -> str:
    return SCENARIOS[scenario].expectation.proves
