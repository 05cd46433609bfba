"""Scenarios in which the model server fails."""

from __future__ import annotations

from sandbox.conformance.scenario import Scenario, marker, probe
from sandbox.evidence.expectations import Expectation, StatusRun
from sandbox.evidence.records import InvocationStatus
from sandbox.model.faults import StatusFault
from sandbox.model.script import Script, TextStep

_DONE = TextStep(text="The task is done.")


def _always_400(rollout_id: str) -> Script:
    return Script(
        seed=rollout_id,
        steps=(probe(rollout_id, 1), _DONE),
        faults=(StatusFault(at="every", status=400, message="the request is refused"),),
    )


def _first_500(rollout_id: str) -> Script:
    return Script(
        seed=rollout_id,
        steps=(probe(rollout_id, 1), _DONE),
        faults=(StatusFault(at=(1,), status=500, message="the server failed once"),),
    )


MODEL_ERROR = Scenario(
    name="model_error",
    script=_always_400,
    deadline_s=60.0,  # enough for every usual retry; one that never ends is cut off here
    expectation=Expectation(
        proves="a refused model request ends as a failure record, never as a graded zero",
        exchanges=(StatusRun(status=400, at_least=1, at_most=None),),
        outcomes=(InvocationStatus.FAILED,),
        row="failure",
        failure_stage="agent",
    ),
)

RETRY_500 = Scenario(
    name="retry_500",
    script=_first_500,
    graded=(marker(1),),
    expectation=Expectation(
        proves="one server error is retried, the run completes, both attempts are kept",
        exchanges=(StatusRun(status=500), StatusRun(status=200, at_least=2, at_most=2)),
        outcomes=(InvocationStatus.COMPLETED,),
        row="rollout",
        reward=1.0,
        tools=1,
    ),
)
