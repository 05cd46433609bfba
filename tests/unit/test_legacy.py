"""The legacy interface: rows through /run, whose reward counts, and migrating to sessions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from pydantic import JsonValue

from sandbox.agents.app import agent_app
from sandbox.agents.client import HttpAgent, agent_in_process
from sandbox.agents.contract import Agent, ConflictError, EpisodeId, TaskId, interface_of
from sandbox.agents.legacy import ResourcesServer, RunRow, SandboxOrder, VerifyRow
from sandbox.agents.legacyepisode import Order, run_legacy_episode
from sandbox.agents.response import AgentResponse, ResponseError
from sandbox.agents.stages import Episode, EpisodeResult
from sandbox.errors import CouldNotFindOut, EngineFailure
from sandbox.evidence.observations import Observations
from tests.unit.session_fakes import FakeAgent, Held, close_request, seed_request

EPISODE = Episode(
    agent_session_id="s",
    episode_id=EpisodeId(rollout_id="r"),
    task_id=TaskId(task_source="unit", task_id="1"),
    prompt="do it",
    deadline_s=5,
)
ORDER = Order(
    sandbox=SandboxOrder(image="i", labels={"a": "b"}, create={"network_mode": "none"}),
    resources=ResourcesServer(base_url="http://127.0.0.1:1"),
    model="m",
)


def response(status: str = "completed") -> AgentResponse:
    error = ResponseError(code="x", message="it broke") if status == "failed" else None
    return AgentResponse.model_validate(
        {"id": "r", "created_at": 0, "model": "m", "status": status, "error": error}
    )


@dataclass
class RunAgent(Agent[None]):
    """Answers a row with what it was given."""

    reward: float | None = 1.0
    said: AgentResponse = field(default_factory=response)
    fails: Exception | None = None
    rows: list[RunRow] = field(default_factory=list)
    while_running: Callable[[threading.Event], None] = lambda cancel: None

    def run(self, row: dict[str, JsonValue], cancel: threading.Event) -> dict[str, JsonValue]:
        self.rows.append(RunRow.model_validate(row))
        self.while_running(cancel)
        if self.fails is not None:
            raise self.fails
        answer = VerifyRow(
            task_id="1",
            rollout_id="r",
            reward=self.reward,
            response=self.said,
            ng_agent_observations=Observations(source="run"),
        )
        return answer.model_dump(mode="json")


@dataclass
class Resources:
    reward: float | None = 1.0
    released: int = 0

    def order(self) -> Order:
        return ORDER

    def release(self) -> None:
        self.released += 1


def run(
    agent: RunAgent, seen: float | None, cancel: threading.Event | None = None
) -> EpisodeResult:
    resources = Resources(reward=seen)
    with agent_in_process(agent_app(agent)) as client:
        result = run_legacy_episode(EPISODE, agent=client, resources=resources, cancel=cancel)
    assert resources.released == 1
    return result


def test_a_row_goes_in_and_its_verified_reward_comes_out() -> None:
    agent = RunAgent(reward=0.0)
    result = run(agent, seen=0.0)
    assert (result.reward, result.failure) == (0.0, None)
    assert result.observations.source == "run"
    assert list(result.phases) == ["resources", "run", "verify", "release"]
    (row,) = agent.rows
    assert row.responses_create_params.input == "do it"
    assert (row.sandbox, row.resources, row.deadline_s) == (ORDER.sandbox, ORDER.resources, 5)


@pytest.mark.parametrize(
    ("claimed", "seen", "word"),
    [(1.0, 0.0, "the verifier gave 0.0"), (1.0, None, "no verifier"), (None, 1.0, "gave 1.0")],
)
def test_a_reward_that_is_not_the_verifiers_is_a_contract_error(
    claimed: float | None, seen: float | None, word: str
) -> None:
    result = run(RunAgent(reward=claimed), seen=seen)
    assert result.reward is None
    assert result.failure is not None
    assert (result.failure.stage, result.failure.kind) == ("verification", "contract_error")
    assert word in result.failure.message


def test_a_turn_that_is_not_gradable_has_no_reward_and_keeps_what_was_said() -> None:
    result = run(RunAgent(reward=None, said=response("failed")), seen=None)
    assert result.failure is not None
    assert (result.failure.step, result.failure.kind) == ("run", "failed")
    assert result.failure.failure_class == "agent_run_failed"
    assert result.response is not None
    assert result.observations.source == "run"


def test_a_run_that_raises_fails_the_run() -> None:
    result = run(RunAgent(fails=EngineFailure("gone")), seen=None)
    assert result.failure is not None
    assert isinstance(result.failure.error, EngineFailure)
    assert (result.failure.step, result.failure.terminal) == ("run", False)


def test_a_cancelled_run_is_told_and_waited_for() -> None:
    cancel, told = threading.Event(), threading.Event()

    def work(stop: threading.Event) -> None:
        cancel.set()
        assert stop.wait(60)
        told.set()

    result = run(RunAgent(while_running=work), seen=None, cancel=cancel)
    assert told.is_set()
    assert result.failure is not None
    assert (result.failure.kind, result.failure.terminal) == ("cancelled", False)


# --- migrating an adapter -----------------------------------------------------------------------


class LegacyBase(RunAgent):
    """A base class before its migration."""


class MigratedBase(LegacyBase):
    """The same base class, now with both hooks."""

    def seed_state(self, request: object, cancel: object) -> Held:  # type: ignore[override]
        return FakeAgent().seed_state(request, cancel)  # type: ignore[arg-type]

    def close_state(self, state: object) -> object:  # type: ignore[override]
        return FakeAgent().close_state(state)  # type: ignore[arg-type]


def adapter_on(base: type[RunAgent]) -> RunAgent:
    """The adapter itself is the same in both cases."""
    return type("Adapter", (base,), {"name": "adapter"})()


def probe(client: HttpAgent) -> str:
    """Ask an agent by the interface that its document prefers, as the runner does."""
    preferred = client.describe().interfaces[0]
    if preferred == "legacy":
        row = RunRow(
            task_id="1",
            rollout_id="r",
            responses_create_params={"input": "x", "model": "m"},  # type: ignore[arg-type]
            deadline_s=1,
            sandbox=ORDER.sandbox,
            resources=ORDER.resources,
        )
        return f"ran {client.run(row).reward}"
    client.seed(seed_request())
    return f"closed {client.close(close_request()).agent_session_id}"


@pytest.mark.parametrize(
    ("base", "interface", "probed"),
    [(LegacyBase, "legacy", "ran 1.0"), (MigratedBase, "agent-session", "closed s")],
)
def test_overriding_the_hooks_in_a_base_class_switches_the_probes(
    base: type[RunAgent], interface: str, probed: str
) -> None:
    adapter = adapter_on(base)
    assert interface_of(type(adapter)) == interface
    with agent_in_process(agent_app(adapter)) as client:
        assert probe(client) == probed


def test_a_failed_setup_never_leads_to_run() -> None:
    agent = adapter_on(MigratedBase)
    agent.seed_state = lambda *_: (_ for _ in ()).throw(CouldNotFindOut("no"))  # type: ignore[method-assign]
    with agent_in_process(agent_app(agent)) as client:
        with pytest.raises(CouldNotFindOut):
            client.seed(seed_request())
        with pytest.raises(ConflictError, match="not by /run"):
            client.run(
                RunRow.model_validate(
                    {
                        "task_id": "1",
                        "rollout_id": "r",
                        "responses_create_params": {"input": "x", "model": "m"},
                        "deadline_s": 1,
                        "sandbox": {"image": "i"},
                        "resources": {"base_url": "http://x"},
                    }
                )
            )
    assert agent.rows == []
