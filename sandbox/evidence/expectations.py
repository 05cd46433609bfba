"""What a scenario expects: data copied into each cell, so that judging needs no scenario."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, model_validator

from sandbox.evidence.observations import InvocationStatus
from sandbox.evidence.records import Record

RowKind = Literal["rollout", "failure"]
Capability = Literal["parallel_tools", "subagents", "compaction", "request_deadline"]
"""A capability of harnesses (``sandbox.harnesses.base.Capabilities``) that scenarios ask for."""
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


class Ending(Record):
    """One legitimate end of a scenario.

    ``exchanges`` are the statuses of the agent's model exchanges in the order in which they began.
    ``outcomes`` are the accepted statuses of the root invocation. ``reward`` is the verifier's
    (None: no row with a reward may exist). ``tools`` is how many scripted tool calls must run;
    ``timed_out`` whether the deadline must have stopped the run, ``stopped`` whether somebody's
    request must have; ``failure_stage`` the stage of an expected failure row. ``lacks``: a
    capability whose absence alone makes this end legitimate. ``rejected``: the row is of a task
    that the model refused at once, and says so. ``unwanted``: an honest end that is not what the
    scenario asks for, so that the outcome alone fails, and not all that follows.
    """

    exchanges: tuple[StatusRun, ...]
    outcomes: tuple[InvocationStatus, ...] = Field(min_length=1)
    row: RowKind
    reward: float | None = None
    tools: int = Field(default=0, ge=0)
    timed_out: bool = False
    stopped: bool = False
    failure_stage: Stage | None = None
    lacks: Capability | None = None
    rejected: bool = False
    unwanted: bool = False

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if (self.row == "rollout") != (self.reward is not None):
            raise ValueError("a rollout row needs a reward, a failure row has none")
        if (self.row == "failure") != (self.failure_stage is not None):
            raise ValueError("a failure row needs a failure_stage, a rollout row has none")
        if self.rejected and self.row != "rollout":
            raise ValueError("only a graded task is one that was rejected")
        return self


class Expectation(Ending):
    """The true result of a scenario, whichever harness runs it.

    ``proves`` says in one line what the scenario is for. The fields of an ending are the best one;
    ``alternatives`` are as legitimate, where harnesses may differ. ``needs``: the capability that
    the scenario is about. ``background`` are parts of the command lines that tools leave running on
    purpose; ``oom`` whether the kernel must have killed for memory; ``compaction`` whether the
    history must have been shortened; ``lossy`` whether what a harness writes may be lost, as long
    as a gap tells of lost records; ``subagents`` how many must have been started;
    ``verifier_calls`` how many model calls the verifier makes; ``companion`` whether another agent
    session works in the same sandbox; ``reactivated`` whether the closed session is activated
    again, which must be refused. ``grades_rejection``: a task that the model refuses at once is
    graded; it is a failure otherwise, and in any case once the model has given output.
    """

    proves: str
    alternatives: tuple[Ending, ...] = ()
    needs: Capability | None = None
    background: tuple[str, ...] = ()
    oom: bool = False
    compaction: bool = False
    lossy: bool = False
    subagents: int = Field(default=0, ge=0)
    verifier_calls: int = Field(default=0, ge=0)
    companion: bool = False
    reactivated: bool = False
    grades_rejection: bool = False

    def legitimate(self, capabilities: Mapping[str, object]) -> tuple[Ending, ...]:
        """Return the best ending and its alternatives for a harness with these capabilities."""
        return (
            self,
            *(
                ending
                for ending in self.alternatives
                if ending.lacks is None or not capabilities.get(ending.lacks)
            ),
        )

    def settled(self, ending: Ending) -> Expectation:
        """Return the expectation with this ending as its only one."""
        own = {name: getattr(ending, name) for name in Ending.model_fields}
        return self.model_copy(update={**own, "alternatives": ()})
