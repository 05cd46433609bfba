"""One episode: every stage's failure with its stage, everything released, nothing hidden."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from sandbox.agents.contract import (
    ActivateRequest,
    CloseRequest,
    CloseResponse,
    ConflictError,
    EpisodeId,
    ModelEndpoint,
    SandboxAccess,
    SeedRequest,
    SeedResponse,
    TaskId,
    UnprocessableError,
)
from sandbox.agents.episode import run_episode
from sandbox.agents.response import AgentResponse, ResponseError
from sandbox.agents.stages import Episode, EpisodeResult, Seeded, failure_of
from sandbox.errors import (
    CacheUnusable,
    ContainerGone,
    CouldNotFindOut,
    EngineFailure,
    IntegrityError,
    UsageError,
)
from sandbox.evidence.observations import Observations

EPISODE = Episode(
    agent_session_id="s",
    episode_id=EpisodeId(rollout_id="r"),
    task_id=TaskId(task_source="unit", task_id="1"),
    prompt="do it",
    deadline_s=5,
)
OBSERVED = Observations(source="fake")
ORDER = ["resources", "seed", "activate", "close", "verify", "release"]


def response(kind: str | None = "completed", **changes: object) -> AgentResponse:
    said: dict[str, object] = {
        "id": "resp",
        "created_at": 0.0,
        "model": "m",
        "status": "completed",
        "metadata": {} if kind is None else {"outcome": kind, "outcome_reason": "because"},
    }
    return AgentResponse.model_validate(said | changes)


@dataclass
class Stage:
    """Both sides of an episode; raises what ``fails`` says for a step, once for each entry."""

    fails: dict[str, list[BaseException]] = field(default_factory=dict)
    answer: AgentResponse = field(default_factory=response)
    reward: float = 1.0
    observed: Observations | None = OBSERVED
    calls: list[str] = field(default_factory=list)
    requests: list[object] = field(default_factory=list)
    while_active: Callable[[], None] = lambda: None
    cancelled: threading.Event = field(default_factory=threading.Event)

    def _step(self, name: str, request: object = None) -> None:
        self.calls.append(name)
        self.requests.append(request)
        if self.fails.get(name):
            raise self.fails[name].pop(0)


class FakeAgentClient:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def seed(self, request: SeedRequest) -> SeedResponse:
        self.stage._step("seed", request)
        return SeedResponse(agent_session_id=request.agent_session_id)

    def activate(self, request: ActivateRequest) -> AgentResponse:
        self.stage._step("activate", request)
        self.stage.while_active()
        return self.stage.answer

    def close(self, request: CloseRequest) -> CloseResponse:
        self.stage.cancelled.set()
        self.stage._step("close", request)
        return CloseResponse(
            agent_session_id=request.agent_session_id, agent_observations=self.stage.observed
        )


class FakeResources:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def seed(self) -> Seeded:
        self.stage._step("resources")
        return Seeded(
            endpoint=ModelEndpoint(base_url="http://127.0.0.1:1/v1", api_key="k", model="m"),
            sandbox_access=SandboxAccess.to_container("c", workdir="/work"),
        )

    def verify(self, response: AgentResponse) -> float:
        self.stage._step("verify", response)
        return self.stage.reward

    def release(self) -> None:
        self.stage._step("release")


def run(
    stage: Stage, episode: Episode = EPISODE, cancel: threading.Event | None = None
) -> EpisodeResult:
    return run_episode(
        episode, agent=FakeAgentClient(stage), resources=FakeResources(stage), cancel=cancel
    )


def test_an_episode_goes_through_all_steps_in_order() -> None:
    stage = Stage()
    result = run(stage)
    assert stage.calls == ORDER
    assert result.reward == 1.0
    assert result.failure is None
    assert result.observations is OBSERVED
    assert result.cleanup_errors == ()
    assert list(result.phases) == ORDER
    assert result.outcome is not None
    seeded, activated = stage.requests[1:3]
    assert isinstance(seeded, SeedRequest)
    assert seeded.sandbox_access is not None
    assert isinstance(activated, ActivateRequest)
    assert (activated.input, activated.deadline_s) == ("do it", 5)


@pytest.mark.parametrize(
    ("step", "where", "calls"),
    [
        ("resources", "seed", ["resources", "release"]),
        ("seed", "agent", ["resources", "seed", "close", "release"]),
        ("activate", "agent", ["resources", "seed", "activate", "close", "release"]),
        ("close", "cleanup", ["resources", "seed", "activate", "close", "close", "release"]),
        ("verify", "verification", ORDER),
    ],
)
def test_a_failure_has_its_stage_and_everything_is_released(
    step: str, where: str, calls: list[str]
) -> None:
    stage = Stage(fails={step: [EngineFailure("broken"), EngineFailure("broken again")]})
    result = run(stage)
    assert stage.calls == calls
    assert result.failure is not None
    assert (result.failure.stage, result.failure.step) == (where, step)
    assert result.failure.kind == "infrastructure_failure"
    assert not result.failure.terminal
    assert result.reward is None
    closed = step in {"seed", "activate", "verify"}
    assert (result.observations is OBSERVED) == closed
    assert (result.response is not None) == (step in {"close", "verify"})


@pytest.mark.parametrize("kind", ["failed", "no_model_call", "infrastructure_failure"])
def test_an_outcome_that_cannot_be_graded_is_a_failure_without_reward(kind: str) -> None:
    stage = Stage(answer=response(kind, status="failed"))
    result = run(stage)
    assert "verify" not in stage.calls
    assert stage.calls.count("close") == 1
    assert result.failure is not None
    assert (result.failure.stage, result.failure.kind) == ("agent", kind)
    assert result.failure.terminal == (kind != "infrastructure_failure")
    assert result.reward is None
    assert result.response is stage.answer
    assert result.observations is OBSERVED


def test_the_log_of_a_turn_without_an_answer_is_in_the_message() -> None:
    answer = response(
        None,
        status="failed",
        metadata={"outcome": "no_model_call", "outcome_reason": "r", "log_tail": "ECONNREFUSED"},
    )
    result = run(Stage(answer=answer))
    assert result.failure is not None
    assert result.failure.message == "r; its log ends: ECONNREFUSED"


REFUSING = "the model refused the task"


@pytest.mark.parametrize("kind", ["failed", "no_model_call", None])
@pytest.mark.parametrize("rejection", [REFUSING, None])
def test_a_task_that_the_model_refused_at_once_is_graded_where_the_episode_says_so(
    kind: str | None, rejection: str | None
) -> None:
    stage = Stage(answer=response(kind, status="failed"), reward=0.0)
    result = run(stage, replace(EPISODE, rejection=lambda: rejection))
    assert (result.reward, result.rejection) == ((0.0 if rejection else None), rejection)
    assert ("verify" in stage.calls) == (result.failure is None) == (rejection is not None)
    assert run(Stage(answer=stage.answer)).failure is not None


def test_only_a_clean_run_can_be_a_refused_task() -> None:
    asked = replace(EPISODE, rejection=lambda: REFUSING)
    broken = run(Stage(answer=response("infrastructure_failure", status="failed")), asked)
    assert (broken.reward, broken.rejection) == (None, None)
    late = replace(asked, deadline_s=1e-9)
    stopped = run(Stage(answer=response("no_model_call", status="failed")), late)
    assert (stopped.reward, stopped.rejection) == (None, None)


@pytest.mark.parametrize("reward", [0.0, 0.5, 1.0])
def test_a_turn_cut_short_by_its_deadline_is_graded(reward: float) -> None:
    result = run(Stage(answer=response("incomplete", status="incomplete"), reward=reward))
    assert result.reward == reward
    assert result.failure is None


def test_an_agent_that_says_no_outcome_is_judged_by_its_status() -> None:
    assert run(Stage(answer=response(None))).reward == 1.0
    error = ResponseError(code="x", message="the model refused")
    result = run(Stage(answer=response(None, status="failed", error=error)))
    assert result.failure is not None
    assert result.failure.message == "the model refused"


def test_a_close_that_works_the_second_time_is_no_failure() -> None:
    stage = Stage(fails={"close": [CouldNotFindOut("busy")]})
    result = run(stage)
    assert result.failure is None
    assert result.reward == 1.0
    assert stage.calls.count("close") == 2


def test_cleanup_errors_stand_beside_the_first_failure() -> None:
    stage = Stage(
        fails={
            "activate": [ContainerGone("gone")],
            "close": [CouldNotFindOut("busy"), CouldNotFindOut("still busy")],
            "release": [EngineFailure("no answer")],
        }
    )
    result = run(stage)
    assert result.failure is not None
    assert result.failure.message == "gone"
    assert result.cleanup_errors == ("close: still busy", "release: no answer")
    assert result.observations.gaps[0].code == "harness_not_run"


def test_a_failed_release_keeps_the_reward() -> None:
    result = run(Stage(fails={"release": [EngineFailure("no answer")]}))
    assert result.reward == 1.0
    assert result.failure is None
    assert result.cleanup_errors == ("release: no answer",)


def test_an_error_that_nobody_foresaw_is_a_failure_too() -> None:
    result = run(Stage(fails={"verify": [ZeroDivisionError("1/0")]}))
    assert result.failure is not None
    assert result.failure.kind == "verification_error"
    assert result.failure.terminal


def test_an_interrupt_releases_everything_and_goes_on() -> None:
    stage = Stage(fails={"activate": [KeyboardInterrupt()]})
    with pytest.raises(KeyboardInterrupt):
        run(stage)
    assert stage.calls[-2:] == ["close", "release"]


def test_cancelling_ends_the_activation_and_says_so() -> None:
    cancel, stage = threading.Event(), Stage()

    def work() -> None:
        cancel.set()
        assert stage.cancelled.wait(10)

    stage.while_active = work
    stage.answer = response("infrastructure_failure", status="failed")
    result = run(stage, cancel=cancel)
    assert result.failure is not None
    assert (result.failure.kind, result.failure.terminal) == ("cancelled", False)
    assert stage.calls.count("close") == 1
    assert stage.calls[-1] == "release"
    assert result.observations is OBSERVED


def test_a_cancelled_turn_is_never_graded() -> None:
    cancel, stage = threading.Event(), Stage()

    def work() -> None:
        cancel.set()
        assert stage.cancelled.wait(10)

    stage.while_active = work
    result = run(stage, cancel=cancel)
    assert result.reward is None
    assert result.failure is not None
    assert result.failure.kind == "cancelled"


@pytest.mark.parametrize(
    ("error", "kind", "terminal"),
    [
        (UnprocessableError("x"), "unsupported", True),
        (ConflictError("x"), "contract_error", True),
        (UsageError("x"), "configuration_error", True),
        (CacheUnusable("x"), "configuration_error", True),
        (IntegrityError("x"), "configuration_error", True),
        (ContainerGone("x"), "infrastructure_failure", False),
        (RuntimeError("x"), "agent_error", True),
    ],
)
def test_errors_are_sorted_by_whether_another_try_can_help(
    error: Exception, kind: str, terminal: bool
) -> None:
    failure = failure_of(error, stage="agent", step="seed")
    assert (failure.kind, failure.terminal, failure.error) == (kind, terminal, error)
