"""How long a recorded run would take with other rules of admission, on processors that are shared.

    python -m tests.scale.admission [--timings FILE] [--processors 2]

A cell is half of its processor time, then what it waits, then the other half. Cells that work share
the processors evenly, none has more than one. To the processor time of its sandbox comes that of
the engine and of this tool, which nobody records for each cell: ``ENGINE_S``, with which the rule
of before takes as long as that run took. What a cell waits is its recorded time without its
processor time, which was stretched as processors were shared then.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.conformance.estimate import Estimates
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.queue import Queue
from sandbox.conformance.room import Room
from sandbox.conformance.scenarios import SCENARIOS
from sandbox.evidence.costs import CellCost, read_costs

TOOK_S = 3029.0
"""What the recorded run took, five cells at a time on two processors."""
RECORDED = Path(__file__).parents[1] / "fixtures" / "timings" / "full.json"
ENGINE_S = 1.9
_JOBS = 5
_UNKNOWN_CPU_S = 3.0


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How cells are admitted; ``by_share``: what waits is told by recorded processor time."""

    name: str
    jobs: int
    working: int | None
    by_share: bool


@dataclass(frozen=True)
class Simulated:
    """Seconds from the first cell's start to the last one's end; the part of the processors that
    had work, over all of them and over the first tenth.
    """

    makespan_s: float
    busy: float
    begun_busy: float


@dataclass
class _Running:
    """What is left of a cell: seconds of work, of waiting, of work."""

    left: list[float]

    @property
    def works(self) -> bool:
        return len(self.left) != 2

    def pass_by(self, seconds: float) -> bool:
        """Take off; whether all is done."""
        self.left[0] -= seconds
        while self.left and self.left[0] <= 1e-9:
            self.left.pop(0)
        return not self.left


def rules(processors: int) -> tuple[Rule, ...]:
    """Return the rule of before, that of now, and what lies between."""
    half = 2 * processors + 1
    now = half + processors + 1
    return (
        Rule(name="before", jobs=half, working=None, by_share=False),
        Rule(name="more jobs alone", jobs=now, working=half, by_share=False),
        Rule(name="shares alone", jobs=half, working=None, by_share=True),
        Rule(name="now", jobs=now, working=half, by_share=True),
    )


def simulate(costs: Mapping[str, CellCost], rule: Rule, *, processors: int) -> Simulated:
    """Run the cells of a record by a rule."""
    plan = [_spec(name) for name in costs if name.rpartition("/")[2] in SCENARIOS]
    judged = Estimates(costs, {})
    blind = {name: cost.model_copy(update={"cpu_s": None}) for name, cost in costs.items()}
    queue = Queue(
        plan,
        judged if rule.by_share else Estimates(blind, {}),
        jobs=rule.jobs,
        working=rule.working,
        room=Room(None, lambda: None),
    )
    running: dict[CellSpec, _Running] = {}
    spans: list[tuple[float, float]] = []
    while True:
        while len(running) < rule.jobs and (cell := queue.next(running)) is not None:
            running[cell] = _Running(_needs(costs[cell.cell_id], judged.waits(cell), processors))
        if not running:
            return _told(spans)
        spans.append(_step(running, processors))


def _step(running: dict[CellSpec, _Running], processors: int) -> tuple[float, float]:
    """Let time pass until something of a cell is done; return it and the busy part."""
    working = sum(one.works for one in running.values())
    rate = min(1.0, processors / working) if working else 0.0
    seconds = min(one.left[0] / (rate if one.works else 1.0) for one in running.values())
    for cell, one in list(running.items()):
        if one.pass_by(seconds * (rate if one.works else 1.0)):
            del running[cell]
    return seconds, min(1.0, working / processors)


def _needs(cost: CellCost, waits: bool, processors: int) -> list[float]:
    work = (_UNKNOWN_CPU_S if cost.cpu_s is None else cost.cpu_s) + ENGINE_S
    stretch = 1.0 if waits else _JOBS / processors
    return [work / 2, max(1e-6, cost.seconds - stretch * work), work / 2]


def _told(spans: list[tuple[float, float]]) -> Simulated:
    whole = sum(seconds for seconds, _ in spans)
    passed = begun = 0.0
    for seconds, busy in spans:
        begun += max(0.0, min(seconds, whole / 10 - passed)) * busy
        passed += seconds
    return Simulated(whole, sum(s * busy for s, busy in spans) / whole, begun / (whole / 10))


def _spec(name: str) -> CellSpec:
    harness, image, scenario = name.split("/")
    return CellSpec(harness=harness, image=image, scenario=scenario)


def main() -> int:
    """Print each rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timings", type=Path, default=RECORDED, metavar="FILE")
    parser.add_argument("--processors", type=int, default=2, metavar="N")
    arguments = parser.parse_args()
    costs = read_costs(arguments.timings)
    print("rule               jobs  working   makespan s   busy   in the first tenth")
    for rule in rules(arguments.processors):
        found = simulate(costs, rule, processors=arguments.processors)
        print(
            f"{rule.name:<17}{rule.jobs:>6}{rule.working or rule.jobs:>9}{found.makespan_s:>13.0f}"
            f"{found.busy:>7.0%}{found.begun_busy:>21.0%}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
