"""What a cell will take, in seconds and memory: as an earlier run recorded, else as declared."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from functools import cached_property

from sandbox.conformance.plan import CellSpec
from sandbox.conformance.scenarios import SCENARIOS
from sandbox.engine.limits import DEFAULT_LIMITS
from sandbox.evidence.costs import CellCost
from sandbox.harnesses.base import Harness

_TYPICAL_S = 5.0
"""Seconds of a cell about which nothing is known but what its harness and scenario declare."""
PEAK_MIB = 512
"""Memory of a harness that declares nothing."""


class Estimates:
    """Estimates for any cell; the same inputs always give the same ones.

    A cell's own record counts first, then those of the same harness and scenario in other images:
    of their seconds the median, of their memory the most. What is known of neither is declared.

    Args:
        costs: of earlier cells, by cell id.
        harnesses: the adapters, by name.
    """

    def __init__(self, costs: Mapping[str, CellCost], harnesses: Mapping[str, Harness]) -> None:
        self._costs = costs
        self._harnesses = harnesses

    def seconds(self, cell: CellSpec) -> float:
        """Return about how long the cell takes."""
        known = self._costs.get(cell.cell_id)
        if known is not None:
            return known.seconds
        alike = self._alike.get((cell.harness, cell.scenario))
        if alike:
            return statistics.median(one.seconds for one in alike)
        harness = self._harnesses.get(cell.adapter)
        slow = 0.0 if harness is None else harness.capabilities.slow_start_s
        return _TYPICAL_S + slow + least_seconds(cell)

    def peak_mib(self, cell: CellSpec) -> float:
        """Return how much memory the cell's sandbox takes at its peak."""
        known = self._costs.get(cell.cell_id)
        found = _peaks(() if known is None else (known,)) or _peaks(
            self._alike.get((cell.harness, cell.scenario), ())
        )
        return max(found) if found else self._declared_mib(cell)

    def _declared_mib(self, cell: CellSpec) -> float:
        scenario = SCENARIOS[cell.scenario]
        if scenario.limits.memory_mib != DEFAULT_LIMITS.memory_mib:
            return scenario.limits.memory_mib  # it is about what the limit does
        harness = self._harnesses.get(cell.adapter)
        declared = PEAK_MIB if harness is None else harness.capabilities.peak_memory_mib
        return declared * (1 if scenario.companion is None else 2)

    @cached_property
    def _alike(self) -> dict[tuple[str, str], list[CellCost]]:
        found: dict[tuple[str, str], list[CellCost]] = {}
        for name, cost in self._costs.items():
            harness, _, rest = name.partition("/")
            found.setdefault((harness, rest.rpartition("/")[2]), []).append(cost)
        return found


def least_seconds(cell: CellSpec) -> float:
    """Return what a cell takes at least: its whole deadline when that must expire."""
    scenario = SCENARIOS[cell.scenario]
    return scenario.deadline_s if scenario.expectation.timed_out else 0.0


def _peaks(costs: Iterable[CellCost]) -> list[int]:
    return [cost.peak_mib for cost in costs if cost.peak_mib is not None]
