"""Moments: a cancel that comes by itself, and a closed session that is asked to go on."""

from __future__ import annotations

import threading

import pytest

from sandbox.agents.contract import (
    ActivateRequest,
    CloseRequest,
    CloseResponse,
    ConflictError,
    EpisodeId,
    ModelEndpoint,
    SeedRequest,
    SeedResponse,
)
from sandbox.agents.response import AgentResponse
from sandbox.conformance.moments import ActivatesAgain, CancelAt

CLOSE = CloseRequest(agent_session_id="s1", episode_id=EpisodeId(rollout_id="r1"))
ACTIVATE = ActivateRequest(
    agent_session_id="s1",
    input="go",
    deadline_s=1.0,
    endpoint=ModelEndpoint(base_url="http://127.0.0.1:1/v1", api_key="k", model="m"),
)


def test_a_cancel_waits_for_its_moment_and_then_stays() -> None:
    answers, now = iter([False, True]), [0.0]
    cancel = CancelAt(threading.Event(), lambda: next(answers), clock=lambda: now[0])
    assert not cancel.wait(0.0)
    now[0] = 0.1
    assert not cancel.wait(0.0), "it must not look so soon again: a look may cost a command"
    now[0] = 0.2
    assert cancel.wait(0.0)
    assert cancel.is_set()
    assert cancel.wait(0.0), "it must not look again"


def test_the_runs_own_cancel_counts_without_the_moment() -> None:
    other = threading.Event()
    cancel = CancelAt(other, lambda: False)
    assert not cancel.is_set()
    other.set()
    assert cancel.is_set()
    assert cancel.wait(0.0)


class Agent:
    """Answers activations after its close as it is told."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error
        self._closed = False
        self.activations = 0

    def seed(self, request: SeedRequest) -> SeedResponse:
        raise NotImplementedError

    def activate(self, request: ActivateRequest) -> AgentResponse:
        self.activations += 1
        if self._closed and self._error is not None:
            raise self._error
        return AgentResponse.model_construct()

    def close(self, request: CloseRequest) -> CloseResponse:
        self._closed = True
        return CloseResponse(agent_session_id=request.agent_session_id)


@pytest.mark.parametrize(
    ("error", "answer"), [(ConflictError("closed"), "ConflictError"), (None, "accepted")]
)
def test_a_closed_session_is_activated_once_more(error: Exception | None, answer: str) -> None:
    agent = Agent(error)
    client = ActivatesAgain(agent)
    client.activate(ACTIVATE)
    client.close(CLOSE)
    client.close(CLOSE)
    assert (client.answer, agent.activations) == (answer, 2)


def test_a_session_that_never_worked_is_not_asked_to_go_on() -> None:
    agent = Agent(None)
    client = ActivatesAgain(agent)
    client.close(CLOSE)
    assert (client.answer, agent.activations) == (None, 0)
