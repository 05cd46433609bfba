"""Any harness behind ``/run``: an own sandbox, a runtime that its image brings, one turn, a grade.

Setup, turn and cleanup are those of the session agent; only who owns the sandbox, where the runtime
comes from and who asks the verifier differ.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from typing import TypeVar, cast

import httpx
from pydantic import BaseModel, JsonValue, ValidationError

from sandbox.agents.contract import (
    ActivateRequest,
    Agent,
    SandboxAccess,
    SeedRequest,
    SetupFailed,
    TaskId,
    UnprocessableError,
)
from sandbox.agents.legacy import (
    SEED_SESSION,
    VERIFY,
    RunRow,
    SandboxOrder,
    SeedSessionRequest,
    SeedSessionResponse,
    VerifyRequest,
    VerifyResponse,
    VerifyRow,
)
from sandbox.agents.ports import OwnedPlace, Place, Runtimes
from sandbox.agents.preinstalled import PreinstalledRuntimes
from sandbox.agents.response import AgentResponse
from sandbox.agents.session import Options, SupervisedAgent
from sandbox.agents.sessionstate import Session, SessionEvidence
from sandbox.agents.wire import error_from
from sandbox.errors import CouldNotFindOut
from sandbox.harnesses.base import Harness

Model = TypeVar("Model", bound=BaseModel)
_RESOURCES_S = 120.0


class LegacyAgent(Agent[None]):
    """One harness behind the legacy interface.

    Args:
        harness: the adapter.
        runtimes: where its pinned bundle is known from.
        order: makes the sandbox that a row orders, not started yet.
        options: how turns are run.
    """

    def __init__(
        self,
        harness: Harness,
        *,
        runtimes: Runtimes,
        order: Callable[[SandboxOrder], OwnedPlace],
        options: Options,
    ) -> None:
        self.name = harness.name
        self._harness = harness
        self._runtimes = PreinstalledRuntimes(runtimes)
        self._order = order
        self._options = options
        self.last: SessionEvidence | None = None
        """What the newest run kept, for a runner in the same process."""

    def run(self, row: dict[str, JsonValue], cancel: threading.Event) -> dict[str, JsonValue]:
        """Take a row through sandbox, harness and verifier."""
        asked = RunRow.model_validate(row)
        name = f"run-{secrets.token_hex(8)}"
        agent = SupervisedAgent(
            self._harness,
            runtimes=self._runtimes,
            places=_Ordered(lambda: self._order(asked.sandbox)),
            options=self._options,
        )
        try:
            state = agent.seed_state(_seed(asked, name), cancel)
        except SetupFailed as failed:
            agent.close_state(cast("Session", failed.state))
            self.last = agent.evidence(name)
            raise failed.error from failed
        reward: float | None = None
        try:
            response, reward = self._turn(agent, state, asked, cancel)
        finally:
            closed = agent.close_state(state)
            self.last = agent.evidence(name)
        answer = VerifyRow(
            task_id=asked.task_id,
            rollout_id=asked.rollout_id,
            reward=reward,
            response=response,
            ng_agent_observations=closed.agent_observations,
        )
        return answer.model_dump(mode="json")

    @staticmethod
    def _turn(
        agent: SupervisedAgent, state: Session, asked: RunRow, cancel: threading.Event
    ) -> tuple[AgentResponse, float | None]:
        container = state.place.id
        seeded = _ask(
            asked, SEED_SESSION, SeedSessionRequest(container_id=container), SeedSessionResponse
        )
        activation = ActivateRequest(
            agent_session_id=state.request.agent_session_id,
            input=asked.responses_create_params.input,
            deadline_s=asked.deadline_s,
            endpoint=seeded.endpoint,
        )
        response = agent.activate_state(state, activation, cancel)
        verify = VerifyRequest(container_id=container, response=response)
        return response, _ask(asked, VERIFY, verify, VerifyResponse).reward


class _Ordered:
    """The one sandbox of a run."""

    def __init__(self, make: Callable[[], OwnedPlace]) -> None:
        self._make = make

    def borrow(self, access: SandboxAccess) -> Place:
        raise UnprocessableError(f"a run has a sandbox of its own, not {access.connection}")

    def own(self) -> OwnedPlace:
        return self._make()


def _seed(asked: RunRow, name: str) -> SeedRequest:
    return SeedRequest(
        agent_session_id=name,
        episode_id=asked.episode_id,
        task_id=TaskId(task_source="run", task_id=asked.task_id),
    )


def _ask(asked: RunRow, path: str, body: BaseModel, answers: type[Model]) -> Model:
    """Ask the row's resources server; raises the error that its answer stands for."""
    url = asked.resources.base_url.rstrip("/") + path
    headers = {"content-type": "application/json"}
    try:
        answer = httpx.post(
            url, content=body.model_dump_json(), headers=headers, timeout=_RESOURCES_S
        )
    except httpx.HTTPError as error:
        raise CouldNotFindOut(f"POST {url} had no answer: {error}") from error
    if not answer.is_success:
        raise error_from(answer.status_code, answer.content, asked=f"POST {url}")
    try:
        return answers.model_validate_json(answer.content)
    except ValidationError as error:
        raise CouldNotFindOut(f"POST {url}: the answer is no {answers.__name__}") from error
