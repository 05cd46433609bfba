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
    """Print one line a cell, and how many they are; needs no engine."""
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
    told = f"{len(plan)} cell(s); {_minutes(plan, known):.0f} min if each took its deadline"
    print(told, file=sys.stderr)
    return ExitCode.OK


def _minutes(plan: tuple[CellSpec, ...], known: Registered) -> float:
    """Return what the deadlines of all cells add up to, with what slow harnesses get on top."""
    starts = {name: one.capabilities.slow_start_s for name, one in known.harnesses.items()}
    return sum(SCENARIOS[one.scenario].deadline_s + starts[one.adapter] for one in plan) / 60


def _described(plan: tuple[CellSpec, ...], known: Registered) -> Iterator[dict[str, object]]:
    images, arch = image_definitions(), arch_of(platform.machine())
    for cell in plan:
        where = images[cell.image].platform(images[cell.image].arch_on(arch))
        can = known.harnesses[cell.adapter].capabilities.on(where)
        yield {
            **cell.model_dump(),
            "cell_id": cell.cell_id,
            "platform": where,
            "proves": _proves(cell.scenario),
            "deadline_s": SCENARIOS[cell.scenario].deadline_s + can.slow_start_s,
            "capabilities": can.model_dump(mode="json", exclude={"exceptions"}),
        }


def _proves(scenario: str) -> str:
    return SCENARIOS[scenario].expectation.proves
