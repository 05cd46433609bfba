"""The contract over a real socket: clients and servers that go away."""

from __future__ import annotations

import pytest

from sandbox.agents.app import agent_app
from sandbox.agents.lifecycle import AgentSessions
from tests.unit.agent_server import Clients, Slow, given_up
from tests.unit.session_fakes import (
    FakeAgent,
    activate_request,
    in_thread,
    seed_request,
)


@pytest.mark.parametrize("during", ["setup", "run"])
def test_a_client_that_gives_up_stops_the_work(during: str) -> None:
    given_up(during, socket=True)


def test_a_server_that_ends_closes_every_session() -> None:
    agent, slow = FakeAgent(while_active=Slow()), Slow()
    agent.while_active = slow
    sessions = AgentSessions(agent, stop_wait_s=10)
    with Clients(agent_app(agent, sessions=sessions), socket=True) as clients:
        clients.seed(seed_request("a"))
        clients.seed(seed_request("b"))
        thread, results = in_thread(lambda: clients.activate(activate_request("b")))
        assert slow.begun.wait(60)
        assert sessions.close_all() == ()
        thread.join(60)
    assert [held.released for held in agent.made] == [1, 1]
    assert results
