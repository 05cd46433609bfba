"""A fake adapter with sessions, and requests for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from sandbox.agents.contract import (
    ActivateRequest,
    Agent,
    CloseRequest,
    CloseResponse,
    EpisodeId,
    ModelEndpoint,
    SeedRequest,
    SetupFailed,
    TaskId,
)
from sandbox.agents.response import AgentResponse
from sandbox.evidence.observations import Observations

ENDPOINT = ModelEndpoint(base_url="http://127.0.0.1:1/v1", api_key="k", model="m")


def seed_request(name: str = "s", *, rollout: str = "r", task: str = "t") -> SeedRequest:
    return SeedRequest(
        agent_session_id=name,
        episode_id=EpisodeId(rollout_id=rollout),
        task_id=TaskId(task_source="test", task_id=task),
    )


def activate_request(name: str = "s") -> ActivateRequest:
    return ActivateRequest(agent_session_id=name, input="go", deadline_s=5, endpoint=ENDPOINT)


def close_request(name: str = "s", *, rollout: str = "r") -> CloseRequest:
    return CloseRequest(agent_session_id=name, episode_id=EpisodeId(rollout_id=rollout))


@dataclass
class Held:
    """The fake agent's state of one session: how often it was made and released."""

    request: SeedRequest
    released: int = 0


@dataclass
class FakeAgent(Agent[Held]):
    """Does what the next item of its scripts says; remembers every call."""

    made: list[Held] = field(default_factory=list)
    activations: list[str] = field(default_factory=list)
    seed_fails: Exception | None = None
    close_fails: Exception | None = None
    while_seeding: Callable[[threading.Event], None] = lambda cancel: None
    while_active: Callable[[threading.Event], None] = lambda cancel: None

    def seed_state(self, request: SeedRequest, cancel: threading.Event) -> Held:
        held = Held(request)
        self.while_seeding(cancel)
        if self.seed_fails is not None:
            error = self.seed_fails
            if isinstance(error, SetupFailed):
                self.made.append(held)
                raise SetupFailed(held, error.error)
            raise error
        self.made.append(held)
        return held

    def activate_state(
        self, state: Held, request: ActivateRequest, cancel: threading.Event
    ) -> AgentResponse:
        assert not state.released
        self.activations.append(request.agent_session_id)
        self.while_active(cancel)
        return AgentResponse(id="resp", created_at=0.0, model="m", status="completed")

    def close_state(self, state: Held) -> CloseResponse:
        if self.close_fails is not None:
            raise self.close_fails
        state.released += 1
        return CloseResponse(
            agent_session_id=state.request.agent_session_id,
            agent_observations=Observations(source="fake"),
        )


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    results: list[object] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


# --- every order, by a model ------------------------------------------------------------------
