"""The endings that many scenarios share."""

from __future__ import annotations

from sandbox.evidence.expectations import Ending, Expectation, StatusRun
from sandbox.evidence.observations import InvocationStatus

STOPPED_SHORT = (InvocationStatus.INCOMPLETE, InvocationStatus.UNKNOWN)
"""What a root may be called that was ended from outside."""

NOT_COMPLETED = (*STOPPED_SHORT, InvocationStatus.FAILED)
"""Everything but completed."""


def completed(proves: str, *runs: StatusRun, tools: int = 1, **own: object) -> Expectation:
    """Expect a run that completes, with reward 1.0."""
    return Expectation.model_validate(
        {
            "proves": proves,
            "exchanges": runs,
            "outcomes": (InvocationStatus.COMPLETED,),
            "row": "rollout",
            "reward": 1.0,
            "tools": tools,
            **own,
        }
    )


def gave_up(*runs: StatusRun, **own: object) -> Ending:
    """A run that the harness ended itself as failed, without a grade."""
    return Ending.model_validate(
        {
            "exchanges": runs,
            "outcomes": (InvocationStatus.FAILED,),
            "row": "failure",
            "failure_stage": "agent",
            **own,
        }
    )


def ran_out(*runs: StatusRun, **own: object) -> Ending:
    """A run that the task's deadline ended before the model ever answered: no grade."""
    return gave_up(*runs, **{"outcomes": NOT_COMPLETED, "timed_out": True, **own})


def failing(proves: str, best: Ending, *alternatives: Ending, **own: object) -> Expectation:
    """Expect one of these endings."""
    whole = {**best.model_dump(), "proves": proves, "alternatives": alternatives, **own}
    return Expectation.model_validate(whole)


def ok(at_least: int, at_most: int | None = None) -> StatusRun:
    """That many answers with status 200; ``at_most`` is ``at_least`` when it is not given."""
    return StatusRun(status=200, at_least=at_least, at_most=at_most or at_least)


def some(status: int) -> StatusRun:
    """One answer or more with this status; 0: requests that were never answered."""
    return StatusRun(status=status, at_least=1, at_most=None)
