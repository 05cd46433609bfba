"""All scenarios by name, in the order in which reports show them."""

from __future__ import annotations

from sandbox.conformance.scenario import Scenario
from sandbox.conformance.scenarios import faults, run, sessions, slow, stops, streams, tools
from sandbox.conformance.scenarios.declared import DECLARED

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for family in (
        tools.SCENARIOS,
        (DECLARED,),
        faults.SCENARIOS,
        streams.SCENARIOS,
        stops.SCENARIOS,
        run.SCENARIOS,
        sessions.SCENARIOS,
        slow.SCENARIOS,
    )
    for scenario in family
}
