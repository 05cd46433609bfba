"""Scenarios of what happens after the agent: the verifier."""

from __future__ import annotations

from sandbox.conformance.scenario import Scenario, marker
from sandbox.conformance.scenarios.expected import completed, failing, ok
from sandbox.conformance.scenarios.faults import one_tool
from sandbox.evidence.expectations import Ending
from sandbox.evidence.observations import InvocationStatus
from sandbox.model.script import Script

_COMPLETED = (InvocationStatus.COMPLETED,)
_TASK = "answer.txt"


def _says_one(rollout_id: str) -> Script:
    return one_tool()(rollout_id).model_copy(update={"helper_text": "1.0"})


VERIFIER_FAILURE = Scenario(
    name="verifier_failure",
    script=one_tool(),
    workspace={_TASK: "not solved yet\n"},
    graded=(_TASK,),
    expectation=failing(
        "a task that was not solved is a verifier's zero, whatever the agent says of itself",
        Ending(exchanges=(ok(2),), outcomes=_COMPLETED, row="rollout", reward=0.0, tools=1),
    ),
)
VERIFIER_ERROR = Scenario(
    name="verifier_error",
    script=one_tool(),
    verifier="broken",
    expectation=failing(
        "a verifier that breaks makes a failure record with the agent's evidence, never a zero",
        Ending(
            exchanges=(ok(2),),
            outcomes=_COMPLETED,
            row="failure",
            failure_stage="verification",
            tools=1,
        ),
    ),
)
JUDGE_VERIFIER = Scenario(
    name="judge_verifier",
    script=_says_one,
    graded=(marker(1),),
    verifier="judge",
    expectation=completed(
        "model calls of the verifier itself are its own, and in no row of the agent",
        ok(2),
        verifier_calls=1,
    ),
)

SCENARIOS = (VERIFIER_FAILURE, VERIFIER_ERROR, JUDGE_VERIFIER)
