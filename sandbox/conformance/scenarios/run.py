"""Scenarios in which the run itself is stopped."""

from __future__ import annotations

from sandbox.conformance.scenario import Scenario, marker, probe
from sandbox.evidence.expectations import Expectation, StatusRun
from sandbox.evidence.records import InvocationStatus
from sandbox.model.script import HoldStep, Script


def _never_ends(rollout_id: str) -> Script:
    return Script(seed=rollout_id, steps=(probe(rollout_id, 1, exit_code=None), HoldStep()))


RUN_TIMEOUT = Scenario(
    name="run_timeout",
    script=_never_ends,
    deadline_s=20.0,
    graded=(marker(2),),
    expectation=Expectation(
        proves="a tool that never ends is stopped with the run by the task's deadline; "
        "nothing of it lives on, and the verifier still grades what is there",
        exchanges=(StatusRun(status=200), StatusRun(status=0, at_least=0, at_most=1)),
        outcomes=(InvocationStatus.INCOMPLETE, InvocationStatus.UNKNOWN),
        row="rollout",
        reward=0.0,
        tools=1,
        timed_out=True,
    ),
)
