"""Whatever breaks in a real container during an episode ends as the table says, with nothing left.

The table is in docs/agent-contract.md. Every episode goes through the contract's client; a request
that had no answer in time would say so in its message.
"""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from sandbox.agents.app import agent_app
from sandbox.agents.client import HttpAgent, Patience, agent_in_process
from sandbox.agents.contract import CloseRequest, EpisodeId, SandboxAccess, TaskId
from sandbox.agents.episode import run_episode
from sandbox.agents.lifecycle import AgentSessions
from sandbox.agents.places import LocalPlaces
from sandbox.agents.response import AgentResponse
from sandbox.agents.session import Options, SupervisedAgent
from sandbox.agents.sessionstate import Session
from sandbox.agents.stages import Episode, EpisodeResult, Seeded
from sandbox.engine.client import Engine
from sandbox.engine.host import ensure_engine
from sandbox.engine.images import ensure_image, image_definition
from sandbox.engine.limits import Limits
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.engine.sweep import sweep
from sandbox.errors import SandboxError
from sandbox.harnesses.base import LaunchContext, LaunchPlan
from sandbox.progress import PlainProgress
from tests.agents.test_session_sandbox import (
    ENDPOINT,
    FINISH,
    WORK,
    SandboxRuntimes,
    folders,
    when_running,
)
from tests.conftest import FaultClock
from tests.contract.second_engine import NEEDS, second_engine, stop
from tests.contract.severed import Severable
from tests.unit.agent_fakes import ScriptHarness

DEADLINE_S = 20.0
UNKNOWN = 'echo \'{"status": "unknown", "text": ""}\' >"$TRANSCRIPT"'
EPISODE = Episode(
    agent_session_id="s",
    episode_id=EpisodeId(rollout_id="r"),
    task_id=TaskId(task_source="faults", task_id="1"),
    prompt="go",
    deadline_s=DEADLINE_S,
)


@dataclass
class Task:
    """The task's side: owns the sandbox, and looks for what is left before it lets go of it."""

    box: Sandbox
    look: Sandbox | None = None
    left: list[str] = field(default_factory=list)
    before_look: Callable[[], object] = bool

    def seed(self) -> Seeded:
        lent = SandboxAccess.to_container(self.box.id, workdir=WORK)
        return Seeded(endpoint=ENDPOINT, sandbox_access=lent)

    def verify(self, response: AgentResponse) -> float:
        return float(self.box.read("/etc/os-release") != b"")

    def release(self) -> None:
        try:
            self.left += [" ".join(process.argv) for process in self.box.processes()]
            self.before_look()
            self.left += folders(self.box)
        except SandboxError:
            pass  # gone with everything in it
        self.box.close()


@dataclass
class Stage:
    """One episode in a sandbox of its own."""

    task: Task
    sessions: AgentSessions[Session]
    client: HttpAgent
    harness: ScriptHarness
    runtimes: SandboxRuntimes
    fault: FaultClock
    cancel: threading.Event = field(default_factory=threading.Event)

    def run(self, episode: Episode = EPISODE) -> EpisodeResult:
        """Run the episode; a fault that nobody let happen before comes with the launch."""
        plan = self.harness.plan

        def planned(ctx: LaunchContext) -> LaunchPlan:
            if self.fault.struck is None:
                self.fault.strikes()
            return plan(ctx)

        self.harness.plan = planned  # type: ignore[method-assign]
        result = run_episode(episode, agent=self.client, resources=self.task, cancel=self.cancel)
        failure = result.failure
        how = "graded" if failure is None else f"{failure.stage}, {failure.step}: {failure.kind}"
        self.fault.ended(how)
        return result

    def until_closing(self) -> None:
        """Wait until a close has arrived."""
        assert self.sessions._records["s"].cancel.wait(60)

    def when_running(self, words: str, react: Callable[[], object]) -> threading.Thread:
        """Let the fault happen once a process of that command line runs in the sandbox."""
        return when_running(self.task.box, words, lambda: self.fault.strikes(react))


@pytest.fixture
def stage(make: Callable[..., Sandbox], tmp_path: Path, fault: FaultClock) -> Iterator[Stage]:
    with ExitStack() as stack:
        box = stack.enter_context(make("alpine-3.23", workdir=WORK))
        yield staged(box, tmp_path, stack, fault)


@pytest.fixture
def narrow(
    engine: Engine, make: Callable[..., Sandbox], tmp_path: Path, fault: FaultClock
) -> Iterator[Stage]:
    """A stage with little memory, disk and few processes; who looks for what is left may have more.

    The SDK knows no argument for the number of processes: the field is the engine API's own.
    """
    limits = Limits(memory_mib=256, tmp_mib=96, pids=40)
    with ExitStack() as stack:
        box = stack.enter_context(make("alpine-3.23", workdir=WORK, limits=limits))
        api = engine.sdk.api
        made = staged(box, tmp_path, stack, fault)
        made.task.before_look = lambda: api._result(
            api._post_json(api._url("/containers/{0}/update", box.id), data={"PidsLimit": 400})
        )
        yield made


def staged(box: Sandbox, tmp_path: Path, stack: ExitStack, fault: FaultClock) -> Stage:
    harness, runtimes = ScriptHarness(script=FINISH), SandboxRuntimes()
    agent = SupervisedAgent(
        harness,
        runtimes=runtimes,
        places=LocalPlaces({box.id: box}),
        options=Options(native_root=tmp_path / "native", grace_s=0.3),
    )
    patience = Patience(setup_s=60, grace_s=60, close_s=60)
    sessions = AgentSessions(agent)
    app = agent_app(agent, sessions=sessions)
    client = stack.enter_context(agent_in_process(app, patience=patience))
    return Stage(Task(box), sessions, client, harness, runtimes, fault)


def ended(result: EpisodeResult) -> tuple[str, str, str, bool]:
    """Stage, step, kind and finality of a failure, with what must hold for each of them."""
    failure = result.failure
    assert failure is not None
    assert result.reward is None
    assert "no answer within" not in failure.message
    assert all("no answer within" not in error for error in result.cleanup_errors)
    assert result.observations.records or result.observations.gaps
    return failure.stage, failure.step, failure.kind, failure.terminal


def test_a_turn_that_nothing_disturbs(stage: Stage) -> None:
    result = stage.run()
    assert (result.failure, result.reward, result.cleanup_errors) == (None, 1.0, ())
    assert stage.task.left == []


INFRASTRUCTURE = ("infrastructure_failure", False)


@pytest.mark.parametrize("phase", ["setup", "activation", "close"])
def test_the_container_is_removed(stage: Stage, engine: Engine, phase: str) -> None:
    container = stage.task.box.id

    def remove() -> None:
        engine.sdk.api.remove_container(container, force=True)

    steps = {
        "setup": ("agent", "seed"),
        "activation": ("agent", "activate"),
        "close": ("verification", "verify"),
    }
    if phase == "setup":
        stage.runtimes.while_installing = lambda: stage.fault.strikes(remove)
    elif phase == "activation":
        stage.harness.script = f"{FINISH}; sleep 501"
        stage.when_running("sleep 501", remove)
    else:
        parse = stage.harness.parse
        stage.harness.parse = lambda *args: (  # type: ignore[method-assign]
            stage.fault.strikes(remove),
            parse(*args),
        )[1]
    result = stage.run()
    assert ended(result) == (*steps[phase], *INFRASTRUCTURE)
    assert result.cleanup_errors == ()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_engine_goes_away_during_the_activation(
    engine: Engine, tmp_path: Path, make: Callable[..., Sandbox], fault: FaultClock
) -> None:
    assert cut_off(engine, tmp_path, make("alpine-3.23").image, fault) == (
        ("agent", "activate", *INFRASTRUCTURE),
        ["close", "release"],
    )
    gc.collect()  # the SDK leaves a socket open whose connecting failed


def cut_off(
    engine: Engine, tmp_path: Path, image: str, fault: FaultClock
) -> tuple[object, list[str]]:
    """Cut the road to the engine while the harness runs; how it ended, and what went wrong beside.

    The sandbox is removed by the engine's own road.
    """
    with Severable(engine.info.host) as road, ExitStack() as stack:
        owner = Ownership.current(run_id="faults", cell_id="engine-gone")
        far = stack.enter_context(Engine.connect(road.address))
        box = Sandbox(far, image, owner=owner, workdir=WORK)
        box.start()
        stack.callback(engine.sdk.api.remove_container, box.id, force=True)
        stage = staged(box, tmp_path, stack, fault)
        stage.harness.script = f"{FINISH}; sleep 502"
        watching = stage.when_running("sleep 502", road.sever)
        result = stage.run()
        watching.join()
        return ended(result), [error.partition(":")[0] for error in result.cleanup_errors]


@NEEDS[0]
@NEEDS[1]
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_engine_is_stopped_and_started_during_the_activation(
    tmp_path: Path, fault: FaultClock
) -> None:
    quiet = PlainProgress(quiet=True)
    with second_engine() as daemon, ExitStack() as stack:
        engine = stack.enter_context(ensure_engine(quiet, daemon=daemon))
        image = ensure_image(engine, image_definition("alpine-3.23"), quiet)
        owner = Ownership.current(run_id="faults", cell_id="engine-restarted")
        box = stack.enter_context(Sandbox(engine, image.ref, owner=owner, workdir=WORK))
        stage = staged(box, tmp_path, stack, fault)
        stage.harness.script = f"{FINISH}; sleep 507"

        def restart() -> None:
            stop(daemon, signal.SIGTERM)
            ensure_engine(quiet, daemon=daemon).close()

        watching = stage.when_running("sleep 507", restart)
        result = stage.run()
        watching.join()
        assert ended(result) == ("agent", "activate", *INFRASTRUCTURE)
        assert [error.partition(":")[0] for error in result.cleanup_errors] == ["release"]
        with Engine.connect(daemon.host) as again:
            swept = sweep(again, include_run=owner.run_id)
            assert [item.name for item in swept.removed] == [box.name]
            assert again.sdk.api.containers(all=True) == []
    gc.collect()  # the SDK leaves a socket open whose connecting failed


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (f"{UNKNOWN}; kill -9 $$; sleep 9", "infrastructure_failure"),
        (f"{FINISH}; kill -9 $PPID; sleep 503", "infrastructure_failure"),
        ("exit 7", "no_model_call"),
        ('cat /dev/zero >"$HOME/fill" 2>/dev/null; exit 1', "no_model_call"),
        (f"{FINISH}; cat /dev/zero >$HOME/fill 2>/dev/null; echo cut", "completed"),
    ],
    ids=["harness-killed", "supervisor-killed", "harness-fails", "disk-full", "disk-full-late"],
)
def test_what_runs_in_the_sandbox_breaks(stage: Stage, script: str, kind: str) -> None:
    stage.harness.script = script
    result = stage.run()
    if kind == "completed":
        assert (result.failure, result.reward) == (None, 1.0)
    else:
        final = kind != "infrastructure_failure"
        assert ended(result) == ("agent", "activate", kind, final)
    assert stage.task.left == []
    assert result.cleanup_errors == ()


def test_the_disk_fills_up_during_the_setup(stage: Stage) -> None:
    def fill() -> None:
        fill = 'cat /dev/zero >"$(ls -d /tmp/sandbox-*)/fill" 2>/dev/null; true'
        stage.task.box.exec(["sh", "-c", fill], deadline_s=60)

    stage.runtimes.while_installing = lambda: stage.fault.strikes(fill)
    result = stage.run()
    assert ended(result) == ("agent", "seed", *INFRASTRUCTURE)
    assert "space" in result.failure.message
    assert stage.task.left == []
    assert result.cleanup_errors == ()


FILL = "cd /tmp/sandbox-* && cat /dev/zero >fill 2>/dev/null; test -s fill"


def test_the_disk_is_full_when_the_harness_is_to_start(narrow: Stage) -> None:
    def fill() -> None:
        assert narrow.task.box.exec(["sh", "-c", FILL], deadline_s=60).exit_code == 0

    plan = narrow.harness.plan
    narrow.harness.plan = lambda ctx: (narrow.fault.strikes(fill), plan(ctx))[1]  # type: ignore[method-assign]
    result = narrow.run()
    stage, step, _, _ = ended(result)
    assert (stage, step) == ("agent", "activate")
    assert narrow.task.left == []
    assert result.cleanup_errors == ()


def test_the_disk_is_full_when_the_session_is_closed(narrow: Stage) -> None:
    def fill() -> None:
        assert narrow.task.box.exec(["sh", "-c", FILL], deadline_s=60).exit_code == 0

    parse = narrow.harness.parse
    narrow.harness.parse = lambda *args: (narrow.fault.strikes(fill), parse(*args))[1]  # type: ignore[method-assign]
    result = narrow.run()
    assert (result.failure, result.reward, result.cleanup_errors) == (None, 1.0, ())
    assert narrow.task.left == []


@pytest.mark.parametrize(
    ("script", "left"),
    [
        ("exec tail -c 500000000 /dev/zero", set()),
        ("while sleep 600 & do :; done", {"sleep 600"}),  # an end by itself leaves what it began
        ("echo 1 >/proc/sys/vm/swappiness && exit 9; exit 8", set()),
    ],
    ids=["more-memory-than-there-is", "more-processes-than-there-may-be", "proc-sys-is-written"],
)
def test_a_limit_is_met(narrow: Stage, script: str, left: set[str]) -> None:
    narrow.harness.script = script
    result = narrow.run()
    assert ended(result) == ("agent", "activate", "no_model_call", True)
    assert "exit code 9" not in result.failure.message  # type: ignore[union-attr]
    assert set(narrow.task.left) == left
    assert result.cleanup_errors == ()


def test_an_engine_that_is_slow_for_a_while_costs_time_and_nothing_else(
    engine: Engine, tmp_path: Path, make: Callable[..., Sandbox], fault: FaultClock
) -> None:
    with Severable(engine.info.host) as road, ExitStack() as stack:
        owner = Ownership.current(run_id="faults", cell_id="engine-slow")
        far = stack.enter_context(Engine.connect(road.address))
        image = make("alpine-3.23").image
        box = stack.enter_context(Sandbox(far, image, owner=owner, workdir=WORK))
        stage = staged(box, tmp_path, stack, fault)
        stage.harness.script = f"{FINISH}; until [ -e {WORK}/go ]; do sleep 0.51; done"

        def hold() -> None:
            """Let the harness end while nothing comes through."""
            api = engine.sdk.api
            api.exec_start(api.exec_create(box.id, ["touch", f"{WORK}/go"])["Id"])
            road.hold(3.0)

        watching = stage.when_running("sleep 0.51", hold)
        result = stage.run()
        watching.join()
        assert (result.failure, result.reward, result.cleanup_errors) == (None, 1.0, ())


def test_a_frozen_sandbox_is_ended_at_the_deadline(
    stage: Stage, engine: Engine, request: pytest.FixtureRequest
) -> None:
    if not request.config.getoption("slow_faults"):
        pytest.skip("its end takes half a minute: --slow-faults")
    stage.harness.script = f"{FINISH}; sleep 508"
    container = stage.task.box.id
    watching = stage.when_running("sleep 508", lambda: engine.sdk.api.pause(container))
    result = stage.run(replace(EPISODE, deadline_s=5.0))
    watching.join()
    assert ended(result) == ("agent", "activate", *INFRASTRUCTURE)


@pytest.mark.parametrize("phase", ["setup", "activation"])
@pytest.mark.parametrize("closes", [1, 3], ids=["once", "thrice-at-once"])
def test_it_is_closed_meanwhile(stage: Stage, phase: str, closes: int) -> None:
    request = CloseRequest(agent_session_id="s", episode_id=EPISODE.episode_id)
    pool = ThreadPoolExecutor(closes)
    answers = []

    def close() -> None:
        answers.extend(pool.submit(stage.client.close, request) for _ in range(closes))

    def installing() -> None:
        close()
        stage.until_closing()

    watching = None
    if phase == "setup":
        stage.runtimes.while_installing = installing
    else:
        stage.harness.script = f"{FINISH}; setsid sleep 504 & sleep 505"
        watching = stage.when_running("sleep 505", close)
    result = stage.run()
    if watching is not None:
        watching.join()
    step, kind, final = {
        "setup": ("seed", "contract_error", True),
        "activation": ("activate", "infrastructure_failure", False),
    }[phase]
    assert ended(result) == ("agent", step, kind, final)
    said = [answer.result(60) for answer in answers]
    assert all(answer == said[0] for answer in said)
    assert said[0].agent_observations == result.observations
    assert stage.task.left == []


@pytest.mark.parametrize("phase", ["setup", "activation"])
def test_the_episode_is_cancelled(stage: Stage, phase: str) -> None:
    if phase == "setup":
        stage.runtimes.while_installing = lambda: (stage.cancel.set(), stage.until_closing())[1]
    else:
        stage.harness.script = f"{FINISH}; sleep 506"
        stage.when_running("sleep 506", stage.cancel.set)
    result = stage.run()
    step = {"setup": "seed", "activation": "activate"}[phase]
    assert ended(result) == ("agent", step, "cancelled", False)
    assert stage.task.left == []
