"""All scenarios by name, in the order in which reports show them."""

from __future__ import annotations

from sandbox.conformance.scenario import Scenario
from sandbox.conformance.scenarios.declared import DECLARED
from sandbox.conformance.scenarios.faults import MODEL_ERROR, RETRY_500
from sandbox.conformance.scenarios.run import RUN_TIMEOUT
from sandbox.conformance.scenarios.tools import TOOL_FAILURE, TOOL_SUCCESS

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (TOOL_SUCCESS, TOOL_FAILURE, MODEL_ERROR, RETRY_500, RUN_TIMEOUT, DECLARED)
}
