"""Scenarios in which the model server refuses, or nobody is there."""

from __future__ import annotations

from collections.abc import Callable

from sandbox.conformance.scenario import EVERYWHERE, Scenario, marker, probe
from sandbox.conformance.scenarios.expected import completed, failing, gave_up, ok, ran_out, some
from sandbox.conformance.scenarios.tools import DONE
from sandbox.evidence.expectations import Ending, Expectation, StatusRun
from sandbox.evidence.observations import InvocationStatus
from sandbox.model.faults import Fault, StatusFault
from sandbox.model.script import Script

_RETRY_AFTER = {"retry-after": "1"}
_MOST_TRIES = 40
"""Tries of a harness that waits longer each time: it has fewer in half a minute, or in ten."""


def one_tool(*faults: Fault, reachable: bool = True) -> Callable[[str], Script]:
    """Return the maker of a script with one command and these faults."""
    return lambda rollout_id: Script(
        seed=rollout_id,
        steps=(probe(rollout_id, 1), DONE),
        faults=faults,
        reachable=reachable,
    )


def _always(status: int, message: str) -> Callable[[str], Script]:
    return one_tool(StatusFault(at="every", status=status, message=message))


def _refused(status: int, proves: str) -> Expectation:
    return failing(proves, gave_up(some(status)))


def _endless(status: int, proves: str, *, at_most: int | None = None) -> Expectation:
    tries = StatusRun(status=status, at_most=at_most)
    return failing(proves, gave_up(tries), ran_out(tries))


def lost(status: int) -> tuple[Ending, Ending]:
    """Honest ends of a run that another try would have saved."""
    return (
        gave_up(some(status), unwanted=True),
        ran_out(some(status), unwanted=True),
    )


MODEL_ERROR = Scenario(
    name="model_error",
    script=_always(400, "the request is refused"),
    deadline_s=60.0,  # enough for every usual retry; one that never ends is cut off here
    profiles=EVERYWHERE,
    expectation=_refused(
        400, "a refused model request ends as a failure record, never as a graded zero"
    ),
)
REJECTED_TASK = Scenario(
    name="rejected_task",
    script=_always(400, "the prompt is longer than the context"),
    graded=(marker(1),),
    deadline_s=60.0,
    expectation=failing(
        "a task that the model refuses at once may be graded: where its owner says so, and masked",
        Ending(
            exchanges=(some(400),),
            outcomes=(InvocationStatus.FAILED,),
            row="rollout",
            reward=0.0,
            rejected=True,
        ),
        grades_rejection=True,
    ),
)
LATE_REJECTION = Scenario(
    name="late_rejection",
    script=one_tool(
        StatusFault(at=tuple(range(2, 12)), status=400, message="the context is exceeded")
    ),
    graded=(marker(1),),
    deadline_s=60.0,
    expectation=failing(
        "a refusal after the model has answered is a failure, also where refused tasks are graded",
        gave_up(ok(1), some(400), tools=1),
        grades_rejection=True,
    ),
)
AUTH_ERROR = Scenario(
    name="auth_error",
    script=_always(401, "the key is wrong"),
    deadline_s=40.0,
    expectation=_refused(401, "a key that the model server refuses ends the run, which says so"),
)
RETRY_429 = Scenario(
    name="retry_429",
    script=one_tool(
        StatusFault(at=(1, 2), status=429, message="too many requests", headers=_RETRY_AFTER)
    ),
    graded=(marker(1),),
    expectation=completed(
        "a rate limit that says when to come back is waited for; all attempts are one step",
        StatusRun(status=429, at_least=2, at_most=2),
        ok(2),
        alternatives=lost(429),
    ),
)
RETRY_429_PLAIN = Scenario(
    name="retry_429_plain",
    script=one_tool(StatusFault(at=(1, 2), status=429, message="too many requests")),
    graded=(marker(1),),
    expectation=completed(
        "a rate limit that does not say when to come back is retried; all attempts are one step",
        StatusRun(status=429, at_least=2, at_most=2),
        ok(2),
        alternatives=lost(429),
    ),
)
ENDLESS_429 = Scenario(
    name="endless_429",
    script=_always(429, "too many requests"),
    deadline_s=30.0,
    expectation=_endless(
        429,
        "a rate limit without an end is tried a few times, then a failure record, never a zero",
        at_most=_MOST_TRIES,
    ),
)
RETRY_500 = Scenario(
    name="retry_500",
    script=one_tool(StatusFault(at=(1,), status=500, message="the server failed once")),
    graded=(marker(1),),
    profiles=EVERYWHERE,
    expectation=completed(
        "one server error is retried, the run completes, both attempts are kept",
        StatusRun(status=500),
        ok(2),
        alternatives=lost(500),
    ),
)
ENDLESS_500 = Scenario(
    name="endless_500",
    script=_always(500, "the server is broken"),
    deadline_s=30.0,
    expectation=_endless(500, "a server that stays broken is a failure record, never a zero"),
)
SERVER_DEADLINE = Scenario(
    name="server_deadline",
    script=_always(504, "the model took too long"),
    deadline_s=30.0,
    expectation=_endless(504, "the server's own time-out (504) is a failure record, never a zero"),
)
UNREACHABLE = Scenario(
    name="unreachable",
    script=one_tool(reachable=False),
    deadline_s=30.0,
    expectation=failing(
        "a model server that nobody can connect to is a failure record without a model call",
        gave_up(),
        ran_out(),
    ),
)

SCENARIOS = (
    MODEL_ERROR,
    REJECTED_TASK,
    LATE_REJECTION,
    AUTH_ERROR,
    RETRY_429,
    RETRY_429_PLAIN,
    ENDLESS_429,
    RETRY_500,
    ENDLESS_500,
    SERVER_DEADLINE,
    UNREACHABLE,
)
