"""The state machine that knows what may happen to an agent session when."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sandbox.agents.app import agent_app
from sandbox.agents.contract import (
    CloseResponse,
    ConflictError,
    SeedRequest,
    SetupFailed,
    UnprocessableError,
)
from sandbox.agents.lifecycle import AgentSessions
from sandbox.errors import CouldNotFindOut
from tests.unit.agent_server import Clients
from tests.unit.session_fakes import (
    Clock,
    FakeAgent,
    activate_request,
    close_request,
    in_thread,
    seed_request,
)

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

    def own(self, name: str) -> str:
        """Name a session of this run of the machine."""
        return name

    def expected(self, name: str) -> Expected:
        known = self.known.get(name)
        if known and known.answer and self.clock.now - known.closed_at >= self.WINDOW:
            del self.known[name]
        return self.known.get(name) or Expected()

    @rule(name=NAMES, rollout=ROLLOUTS, task=st.sampled_from(["t1", "t2"]), how=st.integers(0, 3))
    def seed(self, name: str, rollout: str, task: str, how: int) -> None:
        name = self.own(name)
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
            for _ in range(2):
                assert self.sessions.seed(request).agent_session_id == name
            self.known[name] = Expected(seeded=request)
        self.agent.seed_fails = None

    @rule(name=NAMES)
    def activate(self, name: str) -> None:
        name = self.own(name)
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
        with pytest.raises(ConflictError):
            self.sessions.activate(activate_request(name))

    @rule(name=NAMES, during=st.sampled_from(["setup", "run"]))
    def cancelled(self, name: str, during: str) -> None:
        """A close arrives while the setup or the activation is under way, from its own thread."""
        name = self.own(name)
        expected = self.expected(name)
        rollout = expected.seeded.episode_id.rollout_id if expected.seeded else "r1"
        if (during == "setup") != (expected.seeded is None) or expected.answer:
            return
        if during == "run" and (expected.broken or expected.activated or expected.closing):
            return
        closed: list[tuple[threading.Thread, list[object]]] = []

        def interrupt(cancel: threading.Event) -> None:
            request = close_request(name, rollout=rollout)
            closed.append(in_thread(lambda: self.sessions.close(request)))
            assert cancel.wait(10)

        request = seed_request(name, rollout=rollout)
        if during == "setup":
            self.agent.while_seeding = interrupt
            with pytest.raises(ConflictError):
                self.sessions.seed(request)
            expected.seeded = request
        else:
            self.agent.while_active = interrupt
            assert self.sessions.activate(activate_request(name)).status == "completed"
        self.agent.while_seeding = self.agent.while_active = lambda cancel: None
        closed[0][0].join(10)
        answer = closed[0][1][0]
        assert isinstance(answer, CloseResponse), answer
        assert answer.agent_observations is not None
        expected.answer, expected.closed_for = answer, rollout
        expected.closed_at = self.clock.now
        self.known[name] = expected

    @rule(name=NAMES, rollout=ROLLOUTS, fails=st.booleans())
    def close(self, name: str, rollout: str, fails: bool) -> None:
        name = self.own(name)
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
            assert self.sessions.close(request) == answer
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


class LifecycleOverHttp(Lifecycle):
    """The same, through the contract's server and client."""

    @initialize()
    def start(self) -> None:
        super().start()
        self.server = Clients(agent_app(self.agent, sessions=self.sessions))  # type: ignore[has-type]
        self.sessions = self.server.__enter__()  # type: ignore[assignment]

    def teardown(self) -> None:
        if hasattr(self, "server"):
            self.server.__exit__()
