"""The lifecycle of agent sessions: every order of seed, activate, close, retry, late and double."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import settings

from sandbox.agents.contract import (
    Agent,
    CloseResponse,
    ConflictError,
    ContractError,
    EpisodeId,
    SeedRequest,
    interface_of,
)
from sandbox.agents.lifecycle import AgentSessions
from sandbox.agents.response import AgentResponse
from sandbox.errors import CouldNotFindOut
from tests.unit.lifecycle_machine import Lifecycle, LifecycleOverHttp
from tests.unit.session_fakes import (
    Clock,
    FakeAgent,
    Held,
    activate_request,
    close_request,
    in_thread,
    seed_request,
)

TestLifecycle = Lifecycle.TestCase
TestLifecycle.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestLifecycleOverHttp = LifecycleOverHttp.TestCase
TestLifecycleOverHttp.settings = settings(max_examples=5, stateful_step_count=15, deadline=None)


# --- threads ----------------------------------------------------------------------------------


def test_a_close_during_setup_ends_it_and_releases_what_it_made() -> None:
    begun = threading.Event()

    def slow(cancel: threading.Event) -> None:
        begun.set()
        assert cancel.wait(10)
        raise ConflictError("closed during setup")

    agent = FakeAgent(while_seeding=slow)
    sessions = AgentSessions(agent)
    thread, results = in_thread(lambda: sessions.seed(seed_request()))
    assert begun.wait(10)
    closed = sessions.close(close_request())
    thread.join(10)
    assert isinstance(results[0], ConflictError)
    assert closed.agent_session_id == "s"
    with pytest.raises(ConflictError):
        sessions.seed(seed_request())


def test_a_setup_that_ends_well_after_a_close_came_is_refused_all_the_same() -> None:
    agent = FakeAgent(while_seeding=lambda cancel: begun.set() or cancel.wait(10))  # type: ignore[func-returns-value,arg-type]
    begun = threading.Event()
    sessions = AgentSessions(agent)
    thread, results = in_thread(lambda: sessions.seed(seed_request()))
    assert begun.wait(10)
    sessions.close(close_request())
    thread.join(10)
    assert isinstance(results[0], ConflictError)
    assert agent.made[0].released == 1


@pytest.mark.parametrize("again", ["seed", "activate"])
def test_a_setup_that_a_close_waits_for_refuses_others_at_once(again: str) -> None:
    begun, told, let_go = threading.Event(), threading.Event(), threading.Event()

    def slow(cancel: threading.Event) -> None:
        begun.set()
        assert cancel.wait(10)
        told.set()
        let_go.wait(10)

    sessions = AgentSessions(FakeAgent(while_seeding=slow))
    setup, _ = in_thread(lambda: sessions.seed(seed_request()))
    assert begun.wait(10)
    closing, _ = in_thread(lambda: sessions.close(close_request()))
    assert told.wait(10)
    calls = {
        "seed": lambda: sessions.seed(seed_request()),
        "activate": lambda: sessions.activate(activate_request()),
    }
    asked, results = in_thread(calls[again])
    asked.join(5)
    refused = list(results)  # before the setup may go on
    let_go.set()
    for thread in (setup, closing, asked):
        thread.join(10)
    assert [type(one) for one in refused] == [ConflictError]


def test_a_close_during_activation_waits_for_its_end() -> None:
    begun, order = threading.Event(), []

    def slow(cancel: threading.Event) -> None:
        begun.set()
        assert cancel.wait(10)
        order.append("stopped")

    agent = FakeAgent(while_active=slow)
    sessions = AgentSessions(agent)
    sessions.seed(seed_request())
    thread, results = in_thread(lambda: sessions.activate(activate_request()))
    assert begun.wait(10)
    sessions.close(close_request())
    order.append("closed")
    thread.join(10)
    assert order == ["stopped", "closed"]
    assert isinstance(results[0], AgentResponse)
    assert agent.made[0].released == 1


def test_an_activation_that_will_not_end_fails_the_close_and_keeps_the_session() -> None:
    begun, let_go = threading.Event(), threading.Event()

    def stuck(cancel: threading.Event) -> None:
        begun.set()
        assert let_go.wait(10)

    agent = FakeAgent(while_active=stuck)
    sessions = AgentSessions(agent, stop_wait_s=0.05)
    sessions.seed(seed_request())
    thread, _ = in_thread(lambda: sessions.activate(activate_request()))
    assert begun.wait(10)
    with pytest.raises(CouldNotFindOut, match="did not end"):
        sessions.close(close_request())
    assert agent.made[0].released == 0
    let_go.set()
    thread.join(10)
    sessions.close(close_request())
    assert agent.made[0].released == 1


def test_two_closes_at_once_release_once_and_answer_alike() -> None:
    agent = FakeAgent()
    sessions = AgentSessions(agent)
    sessions.seed(seed_request())
    calls = [in_thread(lambda: sessions.close(close_request())) for _ in range(8)]
    for thread, _ in calls:
        thread.join(10)
    answers = [results[0] for _, results in calls]
    assert all(answer == answers[0] for answer in answers)
    assert agent.made[0].released == 1


def test_two_activations_at_once_run_once() -> None:
    agent = FakeAgent()
    sessions = AgentSessions(agent)
    sessions.seed(seed_request())
    calls = [in_thread(lambda: sessions.activate(activate_request())) for _ in range(8)]
    for thread, _ in calls:
        thread.join(10)
    results = [results[0] for _, results in calls]
    assert sum(isinstance(r, AgentResponse) for r in results) == 1
    assert sum(isinstance(r, ConflictError) for r in results) == 7
    assert agent.activations == ["s"]


def test_two_seeds_at_once_make_one_session() -> None:
    agent = FakeAgent()
    sessions = AgentSessions(agent)
    calls = [in_thread(lambda: sessions.seed(seed_request())) for _ in range(8)]
    for thread, _ in calls:
        thread.join(10)
    assert len(agent.made) == 1


def test_a_session_that_is_closing_refuses_at_once() -> None:
    begun, let_go = threading.Event(), threading.Event()

    def slow(cancel: threading.Event) -> None:
        begun.set()
        let_go.wait(10)

    agent = FakeAgent(while_active=slow)
    sessions = AgentSessions(agent)
    sessions.seed(seed_request())
    running, _ = in_thread(lambda: sessions.activate(activate_request()))
    assert begun.wait(10)
    closing, _ = in_thread(lambda: sessions.close(close_request()))
    until = time.monotonic() + 10
    while not agent.activations or not sessions._records["s"].closing:
        assert time.monotonic() < until, "the close was not announced"
        time.sleep(0.01)
    with pytest.raises(ConflictError):
        sessions.activate(activate_request())
    with pytest.raises(ConflictError):
        sessions.seed(seed_request())
    let_go.set()
    running.join(10)
    closing.join(10)


# --- which interface --------------------------------------------------------------------------


class OneHook(Agent[Held]):
    def seed_state(self, request: SeedRequest, cancel: threading.Event) -> Held:
        return Held(request)


class OtherHook(Agent[Held]):
    def close_state(self, state: Held) -> CloseResponse:
        return CloseResponse(agent_session_id="x")


class Legacy(Agent[Held]):
    def run(self, row: object, cancel: threading.Event) -> object:  # type: ignore[override]
        return row


class Migrated(FakeAgent):
    """Inherits both hooks."""


class HalfInherited(OneHook):
    def close_state(self, state: Held) -> CloseResponse:
        return CloseResponse(agent_session_id="x")


class HooksAndRun(FakeAgent):
    def run(self, row: object, cancel: threading.Event) -> object:  # type: ignore[override]
        return row


@pytest.mark.parametrize(
    ("agent", "interface"),
    [
        (FakeAgent, "agent-session"),
        (Migrated, "agent-session"),
        (HalfInherited, "agent-session"),
        (HooksAndRun, "agent-session"),
        (Legacy, "legacy"),
    ],
)
def test_the_interface_is_read_from_the_class(agent: type[Agent[Held]], interface: str) -> None:
    assert interface_of(agent) == interface


@pytest.mark.parametrize(
    ("agent", "word"), [(OneHook, "close_state"), (OtherHook, "seed_state"), (Agent, "neither")]
)
def test_half_an_interface_is_a_contract_error(agent: type[Agent[Held]], word: str) -> None:
    with pytest.raises(ContractError, match=r"only one|neither") as caught:
        interface_of(agent)
    assert word in str(caught.value)


# --- the wire's shapes ------------------------------------------------------------------------


def test_a_seed_round_trips_in_the_wire_form() -> None:
    wire = (
        '{"agent_session_id": "s", "episode_id": {"rollout_id": "r", "attempt": 2},'
        ' "task_id": {"task_source": "set", "task_id": "1"},'
        ' "tool_accesses": [{"kind": "mcp", "name": "m", "required": false,'
        ' "connection": {"transport": "streamable_http", "url": "http://x/mcp", "headers": {}}}],'
        ' "sandbox_access": {"connection": {"kind": "direct", "provider_config_ref": "docker",'
        ' "descriptor": {"container_id": "abc"}}, "workdir": "/work"}}'
    )
    request = SeedRequest.model_validate_json(wire)
    assert request.episode_id.capture_key == "r-a2"
    assert SeedRequest.model_validate_json(request.model_dump_json()) == request


@pytest.mark.parametrize("rollout", ["", "-x", "a b", "r-a1", "../r"])
def test_a_rollout_id_is_a_plain_name(rollout: str) -> None:
    with pytest.raises(ValueError, match=r"rollout_id"):
        EpisodeId(rollout_id=rollout)


def test_tool_names_are_unique() -> None:
    tool = {"kind": "direct_http", "name": "x", "required": True, "base_url": "http://x"}
    with pytest.raises(ValueError, match="unique"):
        SeedRequest.model_validate(seed_request().model_dump() | {"tool_accesses": [tool, tool]})


# --- leases -----------------------------------------------------------------------------------


def test_a_session_that_nobody_asks_for_is_closed_after_its_lease() -> None:
    agent, clock = FakeAgent(), Clock()
    sessions = AgentSessions(agent, clock=clock)
    sessions.seed(seed_request("old"))
    sessions.close(close_request("fence"))
    clock.now = 6
    sessions.seed(seed_request("young"))
    sessions.activate(activate_request("young"))
    clock.now = 10
    assert sessions.close_lapsed(10) == ()
    assert [held.released for held in agent.made] == [1, 0]
    with pytest.raises(ConflictError, match="lease"):
        sessions.activate(activate_request("old"))
    assert sessions.close(close_request("old")).agent_observations is not None


def test_a_close_after_the_lease_that_fails_is_tried_again() -> None:
    agent, clock = FakeAgent(close_fails=CouldNotFindOut("busy")), Clock()
    sessions = AgentSessions(agent, clock=clock)
    sessions.seed(seed_request())
    clock.now = 10
    assert sessions.close_lapsed(10) == ("agent session s: busy",)
    agent.close_fails = None
    assert sessions.close_lapsed(10) == ()
    assert agent.made[0].released == 1


def test_what_is_under_way_has_no_lease() -> None:
    agent, clock = FakeAgent(), Clock()
    sessions = AgentSessions(agent, clock=clock)

    def slow(_: threading.Event) -> None:
        clock.now += 100
        assert sessions.close_lapsed(10) == ()

    agent.while_seeding = agent.while_active = slow
    sessions.seed(seed_request())
    assert sessions.activate(activate_request()).status == "completed"
    assert agent.made[0].released == 0
