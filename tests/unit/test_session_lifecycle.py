"""The lifecycle of agent sessions: every order of seed, activate, close, retry, late and double."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sandbox.agents.contract import (
    ActivateRequest,
    Agent,
    CloseRequest,
    CloseResponse,
    ConflictError,
    ContractError,
    EpisodeId,
    ModelEndpoint,
    SeedRequest,
    SetupFailed,
    TaskId,
    UnprocessableError,
    interface_of,
)
from sandbox.agents.lifecycle import AgentSessions
from sandbox.agents.response import AgentResponse
from sandbox.errors import CouldNotFindOut
from sandbox.evidence.records import Observations

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


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


# --- every order, by a model ------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b"])
ROLLOUTS = st.sampled_from(["r1", "r2"])


@dataclass
class Expected:
    """What the model knows of one id."""

    seeded: SeedRequest | None = None
    broken: bool = False
    activated: bool = False
    closing: bool = False
    closed_for: str | None = None
    answer: CloseResponse | None = None
    closed_at: float = 0.0


class Lifecycle(RuleBasedStateMachine):
    WINDOW = 100.0

    @initialize()
    def start(self) -> None:
        self.agent = FakeAgent()
        self.clock = Clock()
        self.sessions = AgentSessions(self.agent, clock=self.clock, retry_window_s=self.WINDOW)
        self.known: dict[str, Expected] = {}

    def expected(self, name: str) -> Expected:
        known = self.known.get(name)
        if known and known.answer and self.clock.now - known.closed_at >= self.WINDOW:
            del self.known[name]
        return self.known.get(name) or Expected()

    @rule(name=NAMES, rollout=ROLLOUTS, task=st.sampled_from(["t1", "t2"]), how=st.integers(0, 3))
    def seed(self, name: str, rollout: str, task: str, how: int) -> None:
        request = seed_request(name, rollout=rollout, task=task)
        self.agent.seed_fails = {
            2: UnprocessableError("no"),
            3: SetupFailed(None, CouldNotFindOut("half")),
        }.get(how)
        expected, before = self.expected(name), len(self.agent.made)
        if expected.answer or expected.closing or (expected.seeded and expected.seeded != request):
            with pytest.raises(ConflictError):
                self.sessions.seed(request)
        elif expected.seeded:
            if expected.broken:
                with pytest.raises(ConflictError):
                    self.sessions.seed(request)
            else:
                assert self.sessions.seed(request).agent_session_id == name
            assert len(self.agent.made) == before
        elif how == 2:
            with pytest.raises(UnprocessableError):
                self.sessions.seed(request)
        elif how == 3:
            with pytest.raises(CouldNotFindOut):
                self.sessions.seed(request)
            self.known[name] = Expected(seeded=request, broken=True)
        else:
            assert self.sessions.seed(request).agent_session_id == name
            self.known[name] = Expected(seeded=request)
        self.agent.seed_fails = None

    @rule(name=NAMES)
    def activate(self, name: str) -> None:
        expected = self.expected(name)
        allowed = expected.seeded and not (
            expected.broken or expected.activated or expected.closing or expected.answer
        )
        if not allowed:
            with pytest.raises(ConflictError):
                self.sessions.activate(activate_request(name))
            return
        assert self.sessions.activate(activate_request(name)).status == "completed"
        expected.activated = True

    @rule(name=NAMES, rollout=ROLLOUTS, fails=st.booleans())
    def close(self, name: str, rollout: str, fails: bool) -> None:
        expected = self.expected(name)
        request = close_request(name, rollout=rollout)
        owner = expected.seeded.episode_id.rollout_id if expected.seeded else expected.closed_for
        self.agent.close_fails = CouldNotFindOut("busy") if fails else None
        if owner not in (None, rollout):
            with pytest.raises(ConflictError):
                self.sessions.close(request)
        elif expected.answer:
            assert self.sessions.close(request) == expected.answer
        elif expected.seeded and fails:
            with pytest.raises(CouldNotFindOut):
                self.sessions.close(request)
            expected.closing = True
        else:
            answer = self.sessions.close(request)
            assert (answer.agent_observations is not None) == (expected.seeded is not None)
            expected.answer, expected.closed_for = answer, rollout
            expected.closed_at = self.clock.now
            self.known[name] = expected
        self.agent.close_fails = None

    @rule(seconds=st.sampled_from([1.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @invariant()
    @precondition(lambda self: hasattr(self, "agent"))
    def nothing_is_released_twice_or_leaks(self) -> None:
        assert all(held.released <= 1 for held in self.agent.made)
        open_now = sum(1 for k in self.known.values() if k.seeded and not k.answer)
        assert sum(1 for held in self.agent.made if not held.released) == open_now


TestLifecycle = Lifecycle.TestCase
TestLifecycle.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)


# --- threads ----------------------------------------------------------------------------------


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
    while not agent.activations or not sessions._records["s"].closing:
        threading.Event().wait(0.01)
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
    def run(self, row: dict[str, object]) -> dict[str, object]:  # type: ignore[override]
        return row


class Migrated(FakeAgent):
    """Inherits both hooks."""


class HalfInherited(OneHook):
    def close_state(self, state: Held) -> CloseResponse:
        return CloseResponse(agent_session_id="x")


class HooksAndRun(FakeAgent):
    def run(self, row: dict[str, object]) -> dict[str, object]:  # type: ignore[override]
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
