"""One task attempt: seed resources, seed agent, activate, close agent, verify, release.

Whatever a stage raises becomes the episode's failure, with its stage; the agent session is closed
at once, its observations travel with the failure, and the resources are released in any case. What
goes wrong while cleaning up is reported beside the first failure, never instead of it. A reward
comes only from the verifier.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from sandbox.agents.contract import (
    ActivateRequest,
    CloseRequest,
    CloseResponse,
    ContractError,
    EpisodeId,
    ModelEndpoint,
    SandboxAccess,
    SeedRequest,
    SeedResponse,
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
from sandbox.evidence.records import Observations


class AgentClient(Protocol):
    """An agent with sessions: in process (``AgentSessions``) or behind a transport."""

    def seed(self, request: SeedRequest) -> SeedResponse:
        """Set a session up."""

    def activate(self, request: ActivateRequest) -> AgentResponse:
        """Run its one turn."""

    def close(self, request: CloseRequest) -> CloseResponse:
        """End it; safe to call again."""


class Resources(Protocol):
    """The task's side of an episode: whoever owns sandbox, workspace and verifier."""

    def seed(self) -> Seeded:
        """Make the task's workspace, and say what the agent may use."""

    def verify(self, response: AgentResponse) -> float:
        """Look at the sandbox, not at what the agent says; return the reward."""

    def release(self) -> None:
        """Let go of everything; called once, whatever happened before."""


@dataclass(frozen=True, kw_only=True)
class Seeded:
    """What the resources hand to the agent; ``sandbox_access`` None: the agent owns its sandbox."""

    endpoint: ModelEndpoint
    sandbox_access: SandboxAccess | None = None
    tool_accesses: tuple[ToolAccess, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Episode:
    """What is attempted; ``deadline_s`` is the task's own agent deadline in seconds."""

    agent_session_id: str
    episode_id: EpisodeId
    task_id: TaskId
    prompt: str
    deadline_s: float


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


@dataclass(frozen=True, kw_only=True)
class EpisodeResult:
    """What an episode leaves. ``reward`` None exactly when there is a ``failure``.

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


class _Failed(Exception):
    def __init__(self, failure: StageFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass
class _Ledger:
    """What has been seen so far, whatever comes next."""

    reward: float | None = None
    failure: StageFailure | None = None
    response: AgentResponse | None = None
    outcome: Outcome | None = None
    closed: CloseResponse | None = None
    cleanup_errors: list[str] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)


def run_episode(
    episode: Episode,
    *,
    agent: AgentClient,
    resources: Resources,
    cancel: threading.Event | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> EpisodeResult:
    """Run one episode to its end; only an interrupt leaves it as an exception, after cleaning up.

    Args:
        episode: what is attempted.
        agent: who attempts it.
        resources: the task's side.
        cancel: when set, the agent session is closed and the episode ends as a failure.
        clock: gives seconds, monotonic.
    """
    run = _Run(episode, agent, resources, clock, cancel or threading.Event())
    run.to_the_end()
    return run.result()


class _Run:
    def __init__(
        self,
        episode: Episode,
        agent: AgentClient,
        resources: Resources,
        clock: Callable[[], float],
        cancel: threading.Event,
    ) -> None:
        self._episode = episode
        self._agent = agent
        self._resources = resources
        self._clock = clock
        self._cancel = cancel
        self._ledger = _Ledger()

    def to_the_end(self) -> None:
        try:
            with self._stage("seed", "resources"):
                seeded = self._resources.seed()
            try:
                with self._closing_when_cancelled():
                    self._work(seeded)
                with self._stage("cleanup", "close"):
                    self._close()
                self._expect_not_cancelled()
            finally:
                if self._ledger.closed is None:
                    self._close_beside()
            with self._stage("verification", "verify"):
                self._verify()
        except _Failed as failed:
            failure = failed.failure
            if self._cancel.is_set():
                failure = replace(failure, kind="cancelled", terminal=False)
            self._ledger.failure = failure
        finally:
            self._beside("release", self._resources.release)

    def result(self) -> EpisodeResult:
        ledger = self._ledger
        observed = ledger.closed.agent_observations if ledger.closed else None
        return EpisodeResult(
            reward=ledger.reward,
            failure=ledger.failure,
            response=ledger.response,
            outcome=ledger.outcome,
            observations=observed or nothing_observed("episode", "the agent gave no observations"),
            cleanup_errors=tuple(ledger.cleanup_errors),
            phases=ledger.phases,
        )

    def _work(self, seeded: Seeded) -> None:
        episode = self._episode
        with self._stage("agent", "seed"):
            self._agent.seed(
                SeedRequest(
                    agent_session_id=episode.agent_session_id,
                    episode_id=episode.episode_id,
                    task_id=episode.task_id,
                    tool_accesses=seeded.tool_accesses,
                    sandbox_access=seeded.sandbox_access,
                )
            )
        with self._stage("agent", "activate"):
            response = self._ledger.response = self._agent.activate(
                ActivateRequest(
                    agent_session_id=episode.agent_session_id,
                    input=episode.prompt,
                    deadline_s=episode.deadline_s,
                    endpoint=seeded.endpoint,
                )
            )
        self._ledger.outcome = response.outcome
        self._expect_gradable(response)

    def _expect_gradable(self, response: AgentResponse) -> None:
        outcome = response.outcome
        if outcome is None and response.status != "failed":
            return
        if outcome is None:
            said = response.error.message if response.error else "no reason given"
            outcome = Outcome(kind=OutcomeKind.FAILED, reason=said)
        if not outcome.gradable:
            tail = f"; its log ends: {outcome.log_tail}" if outcome.log_tail else ""
            raise _Failed(
                StageFailure(
                    stage="agent",
                    step="activate",
                    kind=outcome.kind.value,
                    message=f"{outcome.reason}{tail}",
                    terminal=outcome.kind is not OutcomeKind.INFRASTRUCTURE_FAILURE,
                )
            )

    def _expect_not_cancelled(self) -> None:
        if self._cancel.is_set():
            raise _Failed(
                StageFailure(
                    stage="agent",
                    step="activate",
                    kind="cancelled",
                    message="the episode was cancelled",
                    terminal=False,
                )
            )

    def _verify(self) -> None:
        assert self._ledger.response is not None
        self._ledger.reward = float(self._resources.verify(self._ledger.response))

    def _close(self) -> None:
        """Close the agent session; once more when it fails, as its owner may."""
        request = CloseRequest(
            agent_session_id=self._episode.agent_session_id, episode_id=self._episode.episode_id
        )
        try:
            self._ledger.closed = self._agent.close(request)
        except CouldNotFindOut:
            self._ledger.closed = self._agent.close(request)

    def _close_beside(self) -> None:
        """Close after a failure; one that comes from closing itself was reported already."""
        if "close" not in self._ledger.phases:
            self._beside("close", self._close)

    @contextmanager
    def _closing_when_cancelled(self) -> Iterator[None]:
        """A close from another thread ends a setup or an activation that is under way."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.is_set():
                if self._cancel.wait(0.05):
                    self._beside("close", self._close)
                    return

        thread = threading.Thread(target=watch, name="episode-cancel", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    @contextmanager
    def _stage(self, stage: Stage, step: str) -> Iterator[None]:
        """Time a step, and turn what it raises into the failure of its stage."""
        started = self._clock()
        try:
            yield
        except Exception as error:
            raise _Failed(failure_of(error, stage=stage, step=step)) from error
        finally:
            self._ledger.phases[step] = self._clock() - started

    def _beside(self, step: str, clean: Callable[[], None]) -> None:
        """Clean up; an error goes beside whatever happened before."""
        started = self._clock()
        try:
            clean()
        except Exception as error:  # noqa: BLE001 - cleaning up goes on, and says what it met
            self._ledger.cleanup_errors.append(f"{step}: {error}")
        finally:
            self._ledger.phases[step] = self._clock() - started


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
