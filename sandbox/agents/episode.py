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
from dataclasses import replace
from typing import Protocol

from sandbox.agents.contract import (
    ActivateRequest,
    CloseRequest,
    CloseResponse,
    SeedRequest,
    SeedResponse,
)
from sandbox.agents.response import AgentResponse
from sandbox.agents.stages import (
    Episode,
    EpisodeResult,
    Failed,
    Ledger,
    Seeded,
    StageFailure,
)
from sandbox.agents.watching import watching
from sandbox.errors import CouldNotFindOut


class AgentClient(Protocol):
    """An agent with sessions (``sandbox.agents.client.HttpAgent``)."""

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
    return run.ledger.result()


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
        self._cancel = cancel
        self._closed = False
        self.ledger = Ledger(clock=clock)

    def to_the_end(self) -> None:
        try:
            with self.ledger.stage("seed", "resources"):
                seeded = self._resources.seed()
            try:
                with self._closing_when_cancelled():
                    self._work(seeded)
                with self.ledger.stage("cleanup", "close"):
                    self._close()
                self._expect_not_cancelled()
            finally:
                if not self._closed:
                    self._close_beside()
            with self.ledger.stage("verification", "verify"):
                self._verify()
        except Failed as failed:
            failure = failed.failure
            if self._cancel.is_set():
                failure = replace(failure, kind="cancelled", terminal=False)
            self.ledger.failure = failure
        finally:
            self.ledger.beside("release", self._resources.release)

    def _work(self, seeded: Seeded) -> None:
        episode = self._episode
        with self.ledger.stage("agent", "seed"):
            self._agent.seed(
                SeedRequest(
                    agent_session_id=episode.agent_session_id,
                    episode_id=episode.episode_id,
                    task_id=episode.task_id,
                    tool_accesses=seeded.tool_accesses,
                    sandbox_access=seeded.sandbox_access,
                )
            )
        with self.ledger.stage("agent", "activate"):
            response = self._agent.activate(
                ActivateRequest(
                    agent_session_id=episode.agent_session_id,
                    input=episode.prompt,
                    deadline_s=episode.deadline_s,
                    endpoint=seeded.endpoint,
                )
            )
        self.ledger.take(response, episode, step="activate")

    def _expect_not_cancelled(self) -> None:
        if self._cancel.is_set():
            raise Failed(
                StageFailure(
                    stage="agent",
                    step="activate",
                    kind="cancelled",
                    message="the episode was cancelled",
                    terminal=False,
                )
            )

    def _verify(self) -> None:
        assert self.ledger.response is not None
        self.ledger.reward = float(self._resources.verify(self.ledger.response))

    def _close(self) -> None:
        """Close the agent session; once more when it fails, as its owner may."""
        request = CloseRequest(
            agent_session_id=self._episode.agent_session_id, episode_id=self._episode.episode_id
        )
        try:
            closed = self._agent.close(request)
        except CouldNotFindOut:
            closed = self._agent.close(request)
        self._closed = True
        self.ledger.observations = closed.agent_observations

    def _close_beside(self) -> None:
        """Close after a failure; one that comes from closing itself was reported already."""
        if "close" not in self.ledger.phases:
            self.ledger.beside("close", self._close)

    @contextmanager
    def _closing_when_cancelled(self) -> Iterator[None]:
        """A close from another thread ends a setup or an activation that is under way."""

        def close() -> bool:
            self.ledger.beside("close", self._close)
            return True

        with watching(self._cancel, close, name="episode-cancel"):
            yield
