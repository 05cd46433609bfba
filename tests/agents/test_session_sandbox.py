"""A whole agent session in real sandboxes: borrowed and owned, as root and as a plain user."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.agents.contract import (
    ActivateRequest,
    CloseRequest,
    EpisodeId,
    ModelEndpoint,
    SandboxAccess,
    SeedRequest,
    TaskId,
    UnprocessableError,
)
from sandbox.agents.episode import run_episode
from sandbox.agents.lifecycle import AgentSessions
from sandbox.agents.outcome import OutcomeKind
from sandbox.agents.places import LocalPlaces
from sandbox.agents.ports import Place
from sandbox.agents.response import AgentResponse
from sandbox.agents.session import Options, SupervisedAgent
from sandbox.agents.stages import Episode, Seeded
from sandbox.engine.client import Engine
from sandbox.engine.limits import Limits
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import ContainerGone, EngineFailure, SandboxError
from sandbox.evidence.observations import SandboxObservation
from sandbox.evidence.records import InstallReceipt
from sandbox.runtimes.library import Bundle
from tests.unit.agent_fakes import FakeRuntimes, ScriptHarness

FINISH = 'echo \'{"status": "completed", "text": "done"}\' >"$TRANSCRIPT"'
ENDPOINT = ModelEndpoint(base_url="http://127.0.0.1:9/v1", api_key="key", model="model")
WORK = "/workspace"


class SandboxRuntimes(FakeRuntimes):
    """Installs an empty folder in a sandbox."""

    def install(self, place: Place, bundle: Bundle, prefix: str) -> InstallReceipt:
        self.while_installing()
        assert place.exec(["mkdir", prefix], deadline_s=30).exit_code == 0
        return InstallReceipt(
            harness=bundle.harness,
            version=bundle.version,
            platform=bundle.platform,
            bundle_sha256=bundle.sha256,
            prefix=prefix,
            version_output=self.says,
            already_installed=False,
        )


class Desk:
    """An agent beside one lent sandbox, or with sandboxes of its own."""

    def __init__(self, native: Path, box: Sandbox | None, make: Callable[[], Sandbox]) -> None:
        self.box = box
        self.made: list[Sandbox] = []
        self.harness = ScriptHarness(script=FINISH)
        self.runtimes = SandboxRuntimes()

        def own() -> Sandbox:
            self.made.append(make())
            return self.made[-1]

        self.agent = SupervisedAgent(
            self.harness,
            runtimes=self.runtimes,
            places=LocalPlaces({} if box is None else {box.id: box}, make=own),
            options=Options(native_root=native, grace_s=0.3),
        )
        self.sessions = AgentSessions(self.agent)

    def seed(self, *, workdir: str = WORK) -> None:
        lent = (
            None if self.box is None else SandboxAccess.to_container(self.box.id, workdir=workdir)
        )
        self.sessions.seed(
            SeedRequest(
                agent_session_id="s",
                episode_id=EpisodeId(rollout_id="r"),
                task_id=TaskId(task_source="docker", task_id="1"),
                sandbox_access=lent,
            )
        )

    def activate(self, *, deadline_s: float = 30) -> AgentResponse:
        return self.sessions.activate(
            ActivateRequest(
                agent_session_id="s", input="go", deadline_s=deadline_s, endpoint=ENDPOINT
            )
        )

    def close(self) -> SandboxObservation | None:
        closed = self.sessions.close(
            CloseRequest(agent_session_id="s", episode_id=EpisodeId(rollout_id="r"))
        )
        assert closed.agent_observations is not None
        last = closed.agent_observations.records[-1:]
        return last[0] if last and isinstance(last[0], SandboxObservation) else None


@pytest.fixture(params=[("debian-12", "0:0"), ("alpine-3.23", "1000:1000")], ids=lambda p: p[0])
def desk(
    request: pytest.FixtureRequest, boxes: Callable[[str, str], Sandbox], tmp_path: Path
) -> Desk:
    box = boxes(*request.param)
    return Desk(tmp_path / "native", box, lambda: box)


@pytest.fixture
def own_desk(make: Callable[..., Sandbox], tmp_path: Path) -> Desk:
    return Desk(tmp_path / "native", None, lambda: make("alpine-3.23", workdir=WORK))


def folders(box: Sandbox) -> list[str]:
    """Our session folders in a sandbox."""
    script = "ls -d /tmp/sandbox-* /var/tmp/sandbox-* 2>/dev/null; true"
    done = box.exec(["sh", "-c", script], deadline_s=10)
    assert done.exit_code == 0, done.stdout.text + done.stderr.text
    return done.stdout.text.split()


def when_running(box: Sandbox, words: str, react: Callable[[], object]) -> threading.Thread:
    """React once a process of that command line runs in the sandbox."""

    def watch() -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if words in [" ".join(process.argv) for process in box.processes()]:
                react()
                return
            time.sleep(0.05)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def test_a_turn_in_a_lent_sandbox_leaves_it_as_it_was(desk: Desk) -> None:
    assert desk.box is not None
    before = desk.box.diff()
    desk.harness.script = f'{FINISH}; pwd; id -u; cat "$HOME/config.json"'
    desk.seed()
    assert len(folders(desk.box)) == 1
    response = desk.activate()
    assert response.outcome is not None
    assert response.outcome.kind is OutcomeKind.COMPLETED
    seen = desk.close()
    assert seen is not None
    assert (seen.outcome, seen.exit_code, seen.sandbox_id) == ("completed", 0, desk.box.id)
    evidence = desk.agent.evidence("s")
    uid = str(desk.box.facts().uid)
    assert (evidence.native / "stdout").read_text().split() == [WORK, uid, '"go"']
    assert folders(desk.box) == []
    assert desk.box.processes() == ()
    assert desk.box.diff() == before


def test_the_folder_is_private(desk: Desk) -> None:
    assert desk.box is not None
    desk.seed()
    (folder,) = folders(desk.box)
    said = desk.box.exec(["stat", "-c", "%a %u", folder], deadline_s=10).stdout.text
    assert said.split() == ["700", str(desk.box.facts().uid)]
    desk.close()


def test_the_deadline_stops_everything(desk: Desk) -> None:
    assert desk.box is not None
    desk.harness.script = (
        f"{FINISH}; setsid sleep 401 & env -i setsid sleep 402 & trap '' TERM; "
        "while :; do sleep 0.1; done"
    )
    desk.seed()
    response = desk.activate(deadline_s=1)
    assert response.outcome is not None
    assert response.outcome.kind is OutcomeKind.INCOMPLETE
    assert desk.box.processes() == ()
    seen = desk.close()
    assert seen is not None
    assert seen.outcome == "timeout"


def test_a_close_while_it_runs_stops_it(desk: Desk) -> None:
    assert desk.box is not None
    desk.harness.script = f"{FINISH}; setsid sleep 403 & sleep 404"
    desk.seed()
    results: list[AgentResponse] = []
    running = threading.Thread(target=lambda: results.append(desk.activate()))
    running.start()
    while not [p for p in desk.box.processes() if p.argv == ("sleep", "404")]:
        time.sleep(0.05)
    seen = desk.close()
    running.join(30)
    assert seen is not None
    assert seen.outcome == "cancelled"
    assert results[0].status == "failed"
    assert desk.box.processes() == ()
    assert folders(desk.box) == []


@pytest.mark.parametrize(
    ("channel", "killing"),
    [(True, "kill -9 -1"), (True, "pkill -9 -f 'sandbox-channe[l]'"), (False, "kill -9 -1")],
    ids=["all", "kept shell", "all, without a kept shell"],
)
def test_a_harness_that_kills_more_than_its_own_leaves_a_receipt(
    make: Callable[..., Sandbox], tmp_path: Path, channel: bool, killing: str
) -> None:
    with make("alpine-3.23", user="1000:1000", workdir=WORK, channel=channel) as box:
        desk = Desk(tmp_path, box, lambda: box)
        desk.harness.script = f"{FINISH}; (sleep 406 &); {killing}; sleep 407"
        desk.seed()
        response = desk.activate()
        assert response.outcome is not None
        assert response.outcome.kind is OutcomeKind.INFRASTRUCTURE_FAILURE
        receipt = desk.agent.evidence("s").receipt
        assert receipt is not None
        assert (receipt.error, receipt.cleanup_confirmed, receipt.survivors) == (
            "the supervisor died and left no receipt",
            True,
            (),
        )
        assert box.processes() == ()
        desk.close()
        assert folders(box) == []


@pytest.mark.parametrize("workdir", ["/tmp", "/", "/alias", "/missing"])
def test_a_workdir_that_overlaps_or_is_missing_is_refused(
    make: Callable[..., Sandbox], tmp_path: Path, workdir: str
) -> None:
    with make("alpine-3.23", workdir=WORK) as box:
        box.exec(["ln", "-s", "/tmp", "/alias"], deadline_s=10)
        box.exec(
            ["sh", "-c", "mount -t tmpfs none /var/tmp; chmod 0555 /var/tmp /run"], deadline_s=9
        )
        desk = Desk(tmp_path, box, lambda: box)
        if workdir in {"/tmp", "/alias"}:  # only /tmp is left to choose
            box.exec(["rm", "-rf", "/var/tmp", "/run"], deadline_s=10)
        with pytest.raises(UnprocessableError):
            desk.seed(workdir=workdir)
        assert folders(box) == []
        assert desk.runtimes.fetched == []


def test_an_own_sandbox_is_gone_after_the_close(own_desk: Desk) -> None:
    own_desk.seed()
    (box,) = own_desk.made
    assert own_desk.activate().status == "completed"
    own_desk.close()
    with pytest.raises(SandboxError):
        box.exec(["true"], deadline_s=5)


def test_an_own_sandbox_is_gone_after_a_failed_setup(own_desk: Desk) -> None:
    own_desk.harness.needs_bash = True
    with pytest.raises(UnprocessableError, match="bash"):
        own_desk.seed()
    own_desk.close()
    with pytest.raises(SandboxError):
        own_desk.made[0].exec(["true"], deadline_s=5)


@pytest.mark.parametrize("by", ["its owner", "somebody"])
@pytest.mark.parametrize("phase", ["setup", "activation", "close"])
def test_a_container_that_is_removed_meanwhile(
    make: Callable[..., Sandbox], engine: Engine, tmp_path: Path, phase: str, by: str
) -> None:
    with make("alpine-3.23", workdir=WORK) as box:
        desk = Desk(tmp_path, box, lambda: box)
        container = box.id

        def remove() -> None:
            if by == "its owner":
                box.close()
            else:
                engine.sdk.api.remove_container(container, force=True)

        if phase == "setup":
            desk.runtimes.while_installing = remove
            with pytest.raises(SandboxError):
                desk.seed()
        elif phase == "activation":
            desk.harness.script = f"{FINISH}; sleep 405"
            desk.seed()
            removing = when_running(box, "sleep 405", remove)
            with pytest.raises((ContainerGone, EngineFailure)):
                desk.activate()
            removing.join()
        else:
            desk.seed()
            desk.activate()
            remove()
        desk.close()
        assert desk.close() == desk.close()


def test_a_bundle_too_big_for_tmp_goes_elsewhere(
    make: Callable[..., Sandbox], tmp_path: Path
) -> None:
    with make("debian-12", workdir=WORK, limits=Limits(tmp_mib=64)) as box:
        desk = Desk(tmp_path, box, lambda: box)
        desk.runtimes.size = 32 * 2**20
        desk.seed()
        (folder,) = folders(box)
        assert folder.startswith("/var/tmp/")
        desk.activate()
        desk.close()
        assert folders(box) == []


class Task:
    """The task's side of an episode in a real sandbox."""

    def __init__(self, box: Sandbox) -> None:
        self.box = box
        self.released = 0

    def seed(self) -> Seeded:
        self.box.exec(["sh", "-c", f"echo input >{WORK}/task.txt"], deadline_s=10)
        lent = SandboxAccess.to_container(self.box.id, workdir=WORK)
        return Seeded(endpoint=ENDPOINT, sandbox_access=lent)

    def verify(self, response: AgentResponse) -> float:
        return float(self.box.read(f"{WORK}/answer.txt") == b"input\n")

    def release(self) -> None:
        self.box.close()
        self.released += 1


def test_an_episode_from_task_to_reward(make: Callable[..., Sandbox], tmp_path: Path) -> None:
    with make("alpine-3.23", workdir=WORK) as box:
        desk = Desk(tmp_path, box, lambda: box)
        desk.harness.script = f"cp task.txt answer.txt; {FINISH}"
        task = Task(box)
        result = run_episode(
            Episode(
                agent_session_id="s",
                episode_id=EpisodeId(rollout_id="r"),
                task_id=TaskId(task_source="docker", task_id="1"),
                prompt="copy it",
                deadline_s=30,
            ),
            agent=desk.sessions,
            resources=task,
        )
    assert result.failure is None
    assert result.reward == 1.0
    assert result.cleanup_errors == ()
    assert result.response is not None
    assert result.response.output_text == "done"
    assert task.released == 1
