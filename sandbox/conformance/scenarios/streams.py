"""Scenarios in which a reply comes late, stops, breaks, or says too little."""

from __future__ import annotations

from sandbox.conformance.scenario import Scenario, marker
from sandbox.conformance.scenarios.expected import (
    NOT_COMPLETED,
    completed,
    failing,
    gave_up,
    ok,
    ran_out,
    some,
)
from sandbox.conformance.scenarios.faults import one_tool
from sandbox.evidence.expectations import Ending, StatusRun
from sandbox.evidence.observations import InvocationStatus
from sandbox.model.faults import CutFault, EmptyFault, LengthFault, MalformedFault, StallFault

_UNANSWERED = StatusRun(status=0)
_BROKEN_ONCE = StatusRun(status=200, at_least=3, at_most=6)

REQUEST_DEADLINE = Scenario(
    name="request_deadline",
    script=one_tool(StallFault(at=(1,), where="headers")),
    graded=(marker(1),),
    deadline_s=60.0,
    expectation=completed(
        "the harness's own limit ends a request that is not answered; another try, or a failure",
        _UNANSWERED,
        ok(2, 4),
        needs="request_deadline",
        alternatives=(
            gave_up(some(0)),
            ran_out(some(0), lacks="request_deadline"),
            ran_out(some(0), unwanted=True),
        ),
    ),
)
STALL_BEFORE_HEADERS = Scenario(
    name="stall_before_headers",
    script=one_tool(StallFault(at="every", where="headers")),
    deadline_s=20.0,
    expectation=failing(
        "a model that never answers ends as a failure record, whoever loses patience first",
        gave_up(some(0)),
        ran_out(some(0)),
    ),
)
STALL_MID_STREAM = Scenario(
    name="stall_mid_stream",
    script=one_tool(StallFault(at=(1,), where="stream")),
    graded=(marker(1),),
    deadline_s=60.0,
    expectation=completed(
        "a reply that stops in the middle is given up and asked for again, or fails the run",
        _BROKEN_ONCE,
        alternatives=(gave_up(some(200)), ran_out(some(200), unwanted=True)),
    ),
)
STREAM_CUT = Scenario(
    name="stream_cut",
    script=one_tool(CutFault(at=(1,))),
    graded=(marker(1),),
    deadline_s=40.0,
    expectation=completed(
        "half a reply is no reply: it is asked for again, or fails the run; no half call runs",
        _BROKEN_ONCE,
        alternatives=(gave_up(some(200)), ran_out(some(200), unwanted=True)),
    ),
)
MALFORMED_STREAM = Scenario(
    name="malformed_stream",
    script=one_tool(MalformedFault(at=(1,))),
    graded=(marker(1),),
    deadline_s=40.0,
    expectation=completed(
        "a reply with a broken event is asked for again, or fails the run; no half call runs",
        _BROKEN_ONCE,
        alternatives=(gave_up(some(200)), ran_out(some(200), unwanted=True)),
    ),
)
LENGTH_STOP = Scenario(
    name="length_stop",
    script=one_tool(LengthFault(at="every", since=2)),
    graded=(marker(1),),
    deadline_s=60.0,
    expectation=failing(
        "an answer cut at its token limit leaves the run incomplete, never completed",
        Ending(
            exchanges=(StatusRun(status=200, at_least=2, at_most=None),),
            outcomes=(InvocationStatus.INCOMPLETE,),
            row="rollout",
            reward=1.0,
            tools=1,
        ),
    ),
)
LENGTH_STOP_IN_TOOL_CALL = Scenario(
    name="length_stop_in_tool_call",
    script=one_tool(LengthFault(at=(1,))),
    graded=(marker(1),),
    deadline_s=60.0,
    expectation=failing(
        "a call cut at the token limit does not run; the run is incomplete, or the model is told",
        Ending(
            exchanges=(StatusRun(status=200),),
            outcomes=(InvocationStatus.INCOMPLETE,),
            row="rollout",
            reward=0.0,
        ),
        Ending(
            exchanges=(ok(3, 6),),
            outcomes=(InvocationStatus.COMPLETED,),
            row="rollout",
            reward=1.0,
            tools=1,
        ),
    ),
)
EMPTY_ANSWER = Scenario(
    name="empty_answer",
    script=one_tool(EmptyFault(at="every")),
    graded=(marker(1),),
    deadline_s=60.0,
    expectation=failing(
        "a model that says nothing at all is a failure record, never a graded zero",
        gave_up(some(200), outcomes=(*NOT_COMPLETED, InvocationStatus.COMPLETED)),
    ),
)

SCENARIOS = (
    REQUEST_DEADLINE,
    STALL_BEFORE_HEADERS,
    STALL_MID_STREAM,
    STREAM_CUT,
    MALFORMED_STREAM,
    LENGTH_STOP,
    LENGTH_STOP_IN_TOOL_CALL,
    EMPTY_ANSWER,
)
