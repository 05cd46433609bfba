"""Scenarios in which the model answers well and the tools are what is watched."""

from __future__ import annotations

from sandbox.conformance.scenario import Scenario, marker, probe
from sandbox.evidence.expectations import Expectation, StatusRun
from sandbox.evidence.records import InvocationStatus
from sandbox.model.script import Script, TextStep

_DONE = TextStep(text="The task is done.")


def _two_calls(rollout_id: str) -> Script:
    return Script(
        seed=rollout_id,
        steps=(probe(rollout_id, 1), probe(rollout_id, 2), _DONE),
    )


def _first_fails(rollout_id: str) -> Script:
    return Script(
        seed=rollout_id,
        steps=(probe(rollout_id, 1, exit_code=7), probe(rollout_id, 2), _DONE),
    )


TOOL_SUCCESS = Scenario(
    name="tool_success",
    script=_two_calls,
    graded=(marker(1), marker(2)),
    expectation=Expectation(
        proves="two tool calls run in the task's workdir, their true output returns, the run ends",
        exchanges=(StatusRun(status=200, at_least=3, at_most=3),),
        outcomes=(InvocationStatus.COMPLETED,),
        row="rollout",
        reward=1.0,
        tools=2,
    ),
)

TOOL_FAILURE = Scenario(
    name="tool_failure",
    script=_first_fails,
    graded=(marker(1), marker(2)),
    expectation=Expectation(
        proves="a command that exits 7 is recorded as failed, and the run goes on and completes",
        exchanges=(StatusRun(status=200, at_least=3, at_most=3),),
        outcomes=(InvocationStatus.COMPLETED,),
        row="rollout",
        reward=1.0,
        tools=2,
    ),
)
