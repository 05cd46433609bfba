"""What a scenario expects: data copied into each cell, so that judging needs no scenario."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from sandbox.evidence.records import InvocationStatus, Record

RowKind = Literal["rollout", "failure"]
Stage = Literal["seed", "agent", "cleanup", "verification"]


class StatusRun(Record):
    """A run of consecutive model exchanges with one status; ``at_most`` None: no upper limit.

    Status 0 is a request that got no status: it was held until the client left.
    """

    status: int = Field(ge=0, le=599)
    at_least: int = Field(default=1, ge=0)
    at_most: int | None = Field(default=1, ge=0)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.at_most is not None and self.at_most < self.at_least:
            raise ValueError(f"at_most {self.at_most} is below at_least {self.at_least}")
        return self

    def __str__(self) -> str:
        """Say it shortly: ``200``, ``500 x2``, ``400 x1+``, ``200 x1-3``."""
        if (self.at_least, self.at_most) == (1, 1):
            return str(self.status)
        if self.at_most is None:
            return f"{self.status} x{self.at_least}+"
        if self.at_most == self.at_least:
            return f"{self.status} x{self.at_least}"
        return f"{self.status} x{self.at_least}-{self.at_most}"


class Expectation(Record):
    """The true result of a scenario, whichever harness runs it.

    ``proves`` says in one line what the scenario is for. ``exchanges`` are the statuses of the
    model exchanges in the order in which they began. ``outcomes`` are the accepted statuses of the
    root invocation. ``reward`` is the verifier's (None: no row with a reward may exist).
    ``tools`` is how many scripted tool calls must run; ``timed_out`` whether the deadline must
    have stopped the run; ``failure_stage`` the stage of an expected failure row.
    """

    proves: str
    exchanges: tuple[StatusRun, ...]
    outcomes: tuple[InvocationStatus, ...] = Field(min_length=1)
    row: RowKind
    reward: float | None = None
    tools: int = Field(default=0, ge=0)
    timed_out: bool = False
    failure_stage: Stage | None = None

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if (self.row == "rollout") != (self.reward is not None):
            raise ValueError("a rollout row needs a reward, a failure row has none")
        if (self.row == "failure") != (self.failure_stage is not None):
            raise ValueError("a failure row needs a failure_stage, a rollout row has none")
        return self
