"""What every episode is made of: its stages, and what ends it or is noted beside.

Whatever a stage raises becomes the episode's failure, with its stage and step. What goes wrong
while cleaning up is reported beside the first failure, never instead of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sandbox.agents.contract import (
    ContractError,
    EpisodeId,
    ModelEndpoint,
    SandboxAccess,
    TaskId,
    ToolAccess,
    nothing_observed,
)
from sandbox.agents.outcome import Outcome, OutcomeKind
from sandbox.agents.response import AgentResponse
from sandbox.errors import (
    CouldNotFindOut,
    IntegrityError,
    PrerequisiteMissing,
    Unsupported,
    UsageError,
)
from sandbox.evidence.expectations import Stage
from sandbox.evidence.observations import Observations


@dataclass(frozen=True, kw_only=True)
class Seeded:
    """What the resources hand to the agent; ``sandbox_access`` None: the agent owns its sandbox."""

    endpoint: ModelEndpoint
    sandbox_access: SandboxAccess | None = None
    tool_accesses: tuple[ToolAccess, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Episode:
    """What is attempted; ``deadline_s`` is the task's own agent deadline in seconds.

    ``rejection`` tells why the model refused a task at once that is graded all the same; None: it
    did not, or such a task is a failure.
    """

    agent_session_id: str
    episode_id: EpisodeId
    task_id: TaskId
    prompt: str
    deadline_s: float
    rejection: Callable[[], str | None] = lambda: None


_CLASSES = {
    "resources": "resources_seed_failed",
    "seed": "agent_setup_failed",
    "activate": "agent_run_failed",
    "run": "agent_run_failed",
    "close": "agent_close_failed",
    "verify": "verification_failed",
}


@dataclass(frozen=True, kw_only=True)
class StageFailure:
    """What ended an episode without a reward.

    ``step`` is the exact call; ``kind`` an outcome's name, or what sort of error it was;
    ``terminal``: trying the same episode again cannot help.
    """

    stage: Stage
    step: str
    kind: str
    message: str
    terminal: bool
    error: BaseException | None = None

    @property
    def failure_class(self) -> str:
        """Which duty failed: the agent's setup, run or close, or one of the task's."""
        return _CLASSES.get(self.step, "episode_failed")


@dataclass(frozen=True, kw_only=True)
class EpisodeResult:
    """What an episode leaves. ``reward`` None exactly when there is a ``failure``.

    ``rejection``: why the model refused the task at once, of a task that is graded all the same.
    ``response`` of a failed episode is its partial response. ``cleanup_errors`` happened beside.
    ``phases`` are durations in seconds by step.
    """

    reward: float | None
    failure: StageFailure | None
    response: AgentResponse | None
    outcome: Outcome | None
    observations: Observations
    cleanup_errors: tuple[str, ...]
    phases: dict[str, float]
    rejection: str | None = None


class Failed(Exception):
    """A stage failed; carries the failure to where the episode ends."""

    def __init__(self, failure: StageFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass
class Ledger:
    """What has been seen so far, whatever comes next."""

    reward: float | None = None
    failure: StageFailure | None = None
    response: AgentResponse | None = None
    outcome: Outcome | None = None
    rejection: str | None = None
    observations: Observations | None = None
    cleanup_errors: list[str] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic

    @contextmanager
    def stage(self, stage: Stage, step: str) -> Iterator[None]:
        """Time a step, and turn what it raises into the failure of its stage."""
        started = self.clock()
        try:
            yield
        except Exception as error:
            raise Failed(failure_of(error, stage=stage, step=step)) from error
        finally:
            self.phases[step] = self.clock() - started

    def beside(self, step: str, clean: Callable[[], None]) -> None:
        """Clean up; an error goes beside whatever happened before."""
        started = self.clock()
        try:
            clean()
        except Exception as error:  # noqa: BLE001 - cleaning up goes on, and says what it met
            self.cleanup_errors.append(f"{step}: {error}")
        finally:
            self.phases[step] = self.clock() - started

    def result(self) -> EpisodeResult:
        """Return everything that was seen."""
        return EpisodeResult(
            reward=self.reward,
            failure=self.failure,
            response=self.response,
            outcome=self.outcome,
            observations=self.observations
            or nothing_observed("episode", "the agent gave no observations"),
            cleanup_errors=tuple(self.cleanup_errors),
            phases=self.phases,
            rejection=self.rejection,
        )

    def take(self, response: AgentResponse, episode: Episode, *, step: str) -> None:
        """Take the answer of the step that let the agent work.

        Raises:
            Failed: nobody may judge the work, and the episode does not grade a refused task.
        """
        self.response, self.outcome = response, response.outcome
        ended_by_itself = self.phases[step] < episode.deadline_s
        if ended_by_itself and may_be_rejected(response):
            self.rejection = episode.rejection()
        if self.rejection is None:
            expect_gradable(response, step=step)


def may_be_rejected(response: AgentResponse) -> bool:
    """Whether the run was clean: nothing but the model's answers kept it from an end."""
    outcome = response.outcome
    return outcome is None or outcome.kind is not OutcomeKind.INFRASTRUCTURE_FAILURE


def expect_gradable(response: AgentResponse, *, step: str) -> None:
    """Raise Failed unless the response tells of an outcome that a verifier may judge."""
    outcome = response.outcome
    if outcome is None and response.status != "failed":
        return
    if outcome is None:
        said = response.error.message if response.error else "no reason given"
        outcome = Outcome(kind=OutcomeKind.FAILED, reason=said)
    if not outcome.gradable:
        tail = f"; its log ends: {outcome.log_tail}" if outcome.log_tail else ""
        raise Failed(
            StageFailure(
                stage="agent",
                step=step,
                kind=outcome.kind.value,
                message=f"{outcome.reason}{tail}",
                terminal=outcome.kind is not OutcomeKind.INFRASTRUCTURE_FAILURE,
            )
        )


def failure_of(error: Exception, *, stage: Stage, step: str) -> StageFailure:
    """Sort an error: can the same episode be tried again, and what is it called."""
    kind, terminal = "infrastructure_failure", False
    if isinstance(error, Unsupported):
        kind, terminal = "unsupported", True
    elif isinstance(error, ContractError):
        kind, terminal = "contract_error", True
    elif isinstance(error, UsageError | IntegrityError | PrerequisiteMissing):
        kind, terminal = "configuration_error", True
    elif not isinstance(error, CouldNotFindOut):
        kind, terminal = f"{stage}_error", True
    return StageFailure(
        stage=stage, step=step, kind=kind, message=str(error), terminal=terminal, error=error
    )
