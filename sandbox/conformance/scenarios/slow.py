"""The faults again, with all the patience that harnesses have by themselves: minutes each."""

from __future__ import annotations

from dataclasses import replace

from sandbox.conformance.scenario import Scenario
from sandbox.conformance.scenarios import faults, streams

PATIENCE_S = 600.0
"""A deadline that leaves a harness's own limits and retries as they come."""


def slow(scenario: Scenario) -> Scenario:
    """Return the scenario with a deadline beyond the harness's own patience."""
    return replace(
        scenario, name=f"{scenario.name}_slow", deadline_s=PATIENCE_S, profiles=("slow",)
    )


SCENARIOS = tuple(
    slow(scenario)
    for scenario in (
        faults.ENDLESS_429,
        faults.ENDLESS_500,
        faults.SERVER_DEADLINE,
        faults.UNREACHABLE,
        streams.REQUEST_DEADLINE,
        streams.STALL_BEFORE_HEADERS,
        streams.STALL_MID_STREAM,
        streams.STREAM_CUT,
        streams.MALFORMED_STREAM,
    )
)
