"""The supervised agent: a folder of this machine as its sandbox, a script as its harness."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandbox.agents.contract import (
    ActivateRequest,
    CloseRequest,
    CloseResponse,
    ConflictError,
    ContractError,
    EpisodeId,
    ModelEndpoint,
    SandboxAccess,
    SeedRequest,
    SeedResponse,
    TaskId,
    UnprocessableError,
)
from sandbox.agents.lifecycle import AgentSessions
from sandbox.agents.outcome import OutcomeKind
from sandbox.agents.places import LocalPlaces
from sandbox.agents.response import AgentResponse
from sandbox.agents.session import Options, SupervisedAgent
from sandbox.errors import ContainerGone, CouldNotFindOut, EngineFailure, InstallError, NotFound
from sandbox.evidence.observations import AgentInvocation, SandboxObservation, ToolCall
from sandbox.runtimes.needs import Needs
from tests.unit.agent_fakes import (
    FakeRuntimes,
    FolderPlace,
    OwnedFolderPlace,
    ScriptHarness,
    install_error,
    when,
)

STUBBORN = "trap '' TERM; while :; do sleep 0.1; done"
FINISH = 'echo \'{"status": "completed", "text": "done"}\' >"$TRANSCRIPT"'


@dataclass
class Desk:
    """An agent with its sessions, its sandbox and its fakes."""

    root: Path
    place: FolderPlace
    harness: ScriptHarness = field(default_factory=ScriptHarness)
    runtimes: FakeRuntimes = field(default_factory=FakeRuntimes)
    grace_s: float = 0.2

    def __post_init__(self) -> None:
        owned = isinstance(self.place, OwnedFolderPlace)
        self.places = LocalPlaces(
            {} if owned else {self.place.id: self.place},
            make=(lambda: self.place) if owned else None,  # type: ignore[arg-type,return-value]
        )
        self.agent = SupervisedAgent(
            self.harness,
            runtimes=self.runtimes,
            places=self.places,
            options=Options(
                native_root=self.root / "native",
                exclusive=False,  # this machine is not the agent's alone
                grace_s=self.grace_s,
                roots=(str(self.place.root / "tmp"),),
            ),
        )
        self.sessions = AgentSessions(self.agent, stop_wait_s=20)

    def request(self, **changes: object) -> SeedRequest:
        access = None
        if not isinstance(self.place, OwnedFolderPlace):
            workdir = str(self.place.root / "work")
            access = SandboxAccess.to_container(self.place.id, workdir=workdir)
        said: dict[str, object] = {
            "agent_session_id": "s",
            "episode_id": EpisodeId(rollout_id="r1"),
            "task_id": TaskId(task_source="unit", task_id="1"),
            "sandbox_access": access,
        }
        return SeedRequest.model_validate(said | changes)

    def seed(self, **changes: object) -> SeedResponse:
        return self.sessions.seed(self.request(**changes))

    def activate(self, *, deadline_s: float = 20) -> AgentResponse:
        endpoint = ModelEndpoint(base_url="http://127.0.0.1:9/v1", api_key="key", model="model")
        return self.sessions.activate(
            ActivateRequest(
                agent_session_id="s", input="do it", deadline_s=deadline_s, endpoint=endpoint
            )
        )

    def close(self) -> CloseResponse:
        return self.sessions.close(
            CloseRequest(agent_session_id="s", episode_id=EpisodeId(rollout_id="r1"))
        )


@pytest.fixture
def place(tmp_path: Path) -> FolderPlace:
    return FolderPlace(tmp_path / "box")


@pytest.fixture
def desk(tmp_path: Path, place: FolderPlace) -> Desk:
    return Desk(tmp_path, place)


def test_one_turn_leaves_evidence_and_nothing_else(desk: Desk) -> None:
    assert desk.seed().agent_session_id == "s"
    (folder,) = desk.place.sessions
    assert folder.stat().st_mode & 0o777 == 0o700
    response = desk.activate()
    assert response.status == "completed"
    assert response.output_text == "done"
    assert response.usage is None
    assert response.metadata["harness_version"] == "1.0"
    assert int(response.metadata["supervisor_pid"]) > 1
    assert response.metadata["supervisor_hostname"]
    assert response.outcome is not None
    assert response.outcome.kind is OutcomeKind.COMPLETED

    closed = desk.close()
    assert desk.place.sessions == []
    assert desk.harness.parsed == [["home/transcript.json", "stderr", "stdout"]]
    assert closed.agent_observations is not None
    root, tool, box = closed.agent_observations.records
    assert isinstance(root, AgentInvocation)
    assert isinstance(tool, ToolCall)
    assert tool.sandbox_id == "c0ffee"
    assert isinstance(box, SandboxObservation)
    assert (box.outcome, box.exit_code, box.peak_memory_mib) == ("completed", 0, 1.0)

    evidence = desk.agent.evidence("s")
    assert evidence.receipt is not None
    assert evidence.receipt.cleanup_confirmed
    assert (evidence.native / "stdout").read_text() == "working\n"
    assert evidence.install is not None
    assert evidence.task_home == str(desk.place.root / "home")


def test_the_harness_gets_its_own_home_and_is_told_the_tasks(desk: Desk) -> None:
    desk.harness.script = f'{FINISH}; pwd; echo "$HOME"; echo "$TASK_HOME"; cat "$HOME/config.json"'
    desk.seed()
    desk.activate()
    folder = desk.agent.evidence("s").folder
    work, home, task_home, config = (
        (desk.agent.evidence("s").native / "stdout").read_text().splitlines()
    )
    assert (work, task_home) == (str(desk.place.root / "work"), str(desk.place.root / "home"))
    assert home == f"{folder}/harness/home"
    assert config == '"do it"'
    (context,) = desk.harness.planned
    assert context.task_env["LANG"] == "C.UTF-8"
    assert context.prefix == f"{folder}/runtime"


def test_a_seed_again_installs_nothing_again(desk: Desk) -> None:
    desk.seed()
    desk.seed()
    assert desk.runtimes.fetched == ["linux-x64-gnu"]
    assert len(desk.place.sessions) == 1


# --- refused before anything is fetched or written ---------------------------------------------


@pytest.mark.parametrize(
    ("image", "needs_bash", "word"),
    [
        ({"platform": None, "libc": "none"}, False, "no platform fits"),
        ({"platform": "linux-arm64-gnu"}, False, "no pin for linux-arm64-gnu"),
        ({"tools": {"env": "/bin/env"}}, False, "no setsid"),
        ({"tools": dict.fromkeys(["env", "setsid", "sleep", "tr", "sed"], "/x")}, True, "no bash"),
    ],
    ids=["no-platform", "no-pin", "no-setsid", "no-bash"],
)
def test_an_image_that_cannot_work_is_refused(
    desk: Desk, image: dict[str, object], needs_bash: bool, word: str
) -> None:
    desk.place.image = image
    desk.harness.needs_bash = needs_bash
    with pytest.raises(UnprocessableError, match=word) as caught:
        desk.seed()
    assert caught.value.status == 422
    assert caught.value.cure
    assert desk.runtimes.fetched == []
    assert desk.place.sessions == []
    assert "put" not in desk.place.calls


@pytest.mark.parametrize(
    ("asks", "word"),
    [
        ({"glibc": "2.99"}, "needs GLIBC_2.99, image has 2.36"),
        ({"interpreter": "/lib/ld-x.so.1"}, "needs the loader /lib/ld-x.so.1, image has no"),
        ({"libraries": ("libstdc++.so.6",)}, "needs libstdc[+][+].so.6, image has none"),
        ({"cpu": "x86-64-v4"}, "needs a CPU of level x86-64-v4, this machine's is x86-64-v3"),
    ],
    ids=["glibc", "loader", "library", "cpu"],
)
def test_an_image_that_lacks_what_the_lock_names_is_refused(
    desk: Desk, asks: dict[str, object], word: str
) -> None:
    desk.runtimes.asks = Needs.model_validate(asks)
    with pytest.raises(UnprocessableError, match=word) as caught:
        desk.seed()
    assert caught.value.cure
    assert desk.runtimes.fetched == []
    assert desk.place.sessions == []
    assert "exec" not in desk.place.calls


def test_required_tools_are_refused_and_optional_ones_left_out(desk: Desk) -> None:
    tool = {"kind": "direct_http", "name": "search", "base_url": "http://x"}
    with pytest.raises(UnprocessableError, match="search"):
        desk.seed(tool_accesses=({**tool, "required": True},))
    desk.close()
    other = Desk(desk.root, desk.place)
    other.seed(tool_accesses=({**tool, "required": False},))
    other.close()


def test_a_sandbox_that_was_not_lent_is_refused(desk: Desk) -> None:
    with pytest.raises(UnprocessableError, match="was lent"):
        desk.seed(sandbox_access=SandboxAccess.to_container("other", workdir="/"))
    with pytest.raises(UnprocessableError, match="of its own"):
        desk.seed(sandbox_access=None)


@pytest.mark.parametrize("link", [False, True], ids=["plain", "symlink"])
@pytest.mark.parametrize("inside", ["the task workdir", "the task's HOME"])
def test_a_session_folder_inside_the_tasks_files_is_refused(
    tmp_path: Path, place: FolderPlace, link: bool, inside: str
) -> None:
    target = place.root / ("work" if "workdir" in inside else "home")
    root = target
    if link:
        root = place.root / "alias"
        root.symlink_to(target)
    (place.root / "tmp").rmdir()
    (place.root / "tmp").symlink_to(root)
    desk = Desk(tmp_path, place)
    with pytest.raises(UnprocessableError, match=f"not apart from {inside}"):
        desk.seed()
    assert list(target.iterdir()) == []


def test_a_bundle_that_does_not_fit_is_refused_before_it_is_installed(desk: Desk) -> None:
    desk.runtimes.size = 2**50
    with pytest.raises(UnprocessableError, match="MiB needed"):
        desk.seed()
    assert desk.place.sessions == []


# --- failures ----------------------------------------------------------------------------------


def test_a_failed_setup_can_only_be_closed(desk: Desk) -> None:
    desk.runtimes.fails = install_error()
    with pytest.raises(InstallError):
        desk.seed()
    assert len(desk.place.sessions) == 1
    with pytest.raises(ConflictError):
        desk.activate()
    closed = desk.close()
    assert desk.place.sessions == []
    assert closed.agent_observations is not None
    (gap,) = closed.agent_observations.gaps
    assert (gap.code, gap.detail) == ("harness_not_run", "the installer refused")


def test_a_runtime_that_says_another_version_is_refused(desk: Desk) -> None:
    desk.runtimes.says = "fake 1.1"
    with pytest.raises(InstallError, match="fake 1.1"):
        desk.seed()
    desk.close()
    assert desk.place.sessions == []


def test_a_close_during_the_installation_stops_the_setup(desk: Desk) -> None:
    begun, let_go = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        assert let_go.wait(60)

    desk.runtimes.while_installing = slow
    errors: list[Exception] = []

    def seed() -> None:
        try:
            desk.seed()
            desk.activate()
        except Exception as error:
            errors.append(error)

    seeding = threading.Thread(target=seed)
    seeding.start()
    assert begun.wait(60)
    closing = threading.Thread(target=desk.close)
    closing.start()
    assert desk.sessions._records["s"].cancel.wait(60)
    let_go.set()
    seeding.join()
    closing.join()
    assert isinstance(errors[0], ConflictError)
    assert desk.place.sessions == []


@pytest.mark.parametrize(
    ("script", "kind", "reason"),
    [
        (f"{FINISH}; exit 3", OutcomeKind.COMPLETED, "exit status 3"),
        ("exit 3", OutcomeKind.NO_MODEL_CALL, "no model call"),
        (
            'echo \'{"status": "unknown", "text": ""}\' >"$TRANSCRIPT"; kill -9 $$',
            OutcomeKind.INFRASTRUCTURE_FAILURE,
            "exited with 137",
        ),
        (
            'echo \'{"status": "failed", "text": ""}\' >"$TRANSCRIPT"',
            OutcomeKind.FAILED,
            "reports a failure",
        ),
    ],
    ids=["finished-but-3", "never-asked", "crashed", "says-failed"],
)
def test_the_outcome_comes_from_the_evidence(
    desk: Desk, script: str, kind: OutcomeKind, reason: str
) -> None:
    desk.harness.script = script
    desk.seed()
    outcome = desk.activate().outcome
    assert outcome is not None
    assert outcome.kind is kind
    assert reason in outcome.reason
    desk.close()


def test_a_missing_proof_fails_the_turn(desk: Desk) -> None:
    desk.harness.proof = True
    desk.seed()
    outcome = desk.activate().outcome
    assert outcome is not None
    assert outcome.kind is OutcomeKind.FAILED
    assert "home/proof" in outcome.reason
    desk.close()


def started_until_its_deadline(root: Path, script: str) -> tuple[Desk, AgentResponse]:
    """Run a script and go on for ever, under the first deadline long enough for its start."""
    for deadline_s in (0.4, 4, 40):
        folder = root / f"{deadline_s}"
        desk = Desk(folder, FolderPlace(folder / "box"))
        desk.harness.script = f"{script}; : >{root}/started; {STUBBORN}"
        desk.seed()
        response = desk.activate(deadline_s=deadline_s)
        if (root / "started").exists():
            return desk, response
        desk.close()
    raise AssertionError("it does not start")


def test_the_deadline_makes_a_started_turn_incomplete(tmp_path: Path) -> None:
    desk, response = started_until_its_deadline(tmp_path, FINISH)
    assert response.status == "incomplete"
    closed = desk.close()
    assert closed.agent_observations is not None
    assert [gap.code for gap in closed.agent_observations.gaps] == ["agent_run_timeout"]
    box = closed.agent_observations.records[-1]
    assert isinstance(box, SandboxObservation)
    assert box.outcome == "timeout"


def test_an_early_deadline_tells_the_end_of_the_log(tmp_path: Path) -> None:
    script = "echo connecting; echo refused >&2"
    desk, response = started_until_its_deadline(tmp_path, script)
    outcome = response.outcome
    assert outcome is not None
    assert outcome.kind is OutcomeKind.NO_MODEL_CALL
    assert outcome.log_tail == "connecting\nrefused"
    desk.close()


def test_a_close_during_the_run_stops_the_harness(desk: Desk) -> None:
    marker = f"61.{os.getpid()}"  # others may run these tests on this machine
    desk.harness.script = f"{FINISH}; sleep {marker}"
    desk.seed()
    results: list[AgentResponse] = []
    running = threading.Thread(target=lambda: results.append(desk.activate()))
    running.start()
    while not list(desk.place.root.glob("tmp/*/harness/home/transcript.json")):
        time.sleep(0.01)
    closed = desk.close()
    running.join()
    assert closed.agent_observations is not None
    box = closed.agent_observations.records[-1]
    assert isinstance(box, SandboxObservation)
    assert box.outcome == "cancelled"
    (response,) = results
    assert response.outcome is not None
    assert response.outcome.kind is OutcomeKind.INFRASTRUCTURE_FAILURE
    assert desk.place.sessions == []
    assert f"sleep\0{marker}\0".encode() not in command_lines()


def command_lines() -> set[bytes]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.add(path.read_bytes())
    return found


def test_an_interrupted_setup_can_still_be_closed(desk: Desk) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    desk.runtimes.while_installing = interrupt
    with pytest.raises(KeyboardInterrupt):
        desk.seed()
    assert len(desk.place.sessions) == 1
    desk.close()
    assert desk.place.sessions == []


def test_an_adapter_that_plans_files_elsewhere_is_stopped(desk: Desk) -> None:
    desk.harness.stray = "/etc/agent.conf"
    desk.seed()
    with pytest.raises(ContractError, match=r"/etc/agent\.conf"):
        desk.activate()
    desk.close()
    assert desk.place.sessions == []


def test_a_container_that_goes_away_is_an_error_and_the_close_still_answers(desk: Desk) -> None:
    desk.seed()

    def vanish(verb: str, words: Sequence[str]) -> None:
        if verb == "exec" and "--deadline" in words:
            desk.place.gone = True

    desk.place.before = vanish
    with pytest.raises(ContainerGone):
        desk.activate()
    closed = desk.close()
    assert closed.agent_observations is not None
    (gap,) = closed.agent_observations.gaps
    assert gap.code == "harness_not_run"
    assert "gone" in gap.detail


def test_an_engine_that_fails_once_is_asked_again_at_close(desk: Desk) -> None:
    desk.seed()
    failures = [EngineFailure("the engine did not answer")]

    def fail(verb: str, words: Sequence[str]) -> None:
        if verb == "get" and failures:
            raise failures.pop()

    desk.place.before = fail
    with pytest.raises(EngineFailure):
        desk.activate()
    closed = desk.close()
    assert closed.agent_observations is not None
    assert isinstance(closed.agent_observations.records[0], AgentInvocation)


def test_a_lost_receipt_is_an_infrastructure_failure(desk: Desk) -> None:
    desk.harness.script = f"{FINISH}; rm -rf ../../tmp/*/run ../tmp/*/run; cd /; sleep 0.1"
    desk.seed()
    response = desk.activate()
    assert response.outcome is not None
    assert response.outcome.kind is OutcomeKind.INFRASTRUCTURE_FAILURE
    assert "no receipt" in response.outcome.reason
    desk.close()
    assert desk.place.sessions == []


def test_a_close_that_fails_keeps_the_session_for_another(desk: Desk) -> None:
    desk.seed()
    desk.activate()
    broken = [CouldNotFindOut("busy"), CouldNotFindOut("busy")]

    def fail(verb: str, words: Sequence[str]) -> None:
        if verb == "exec" and broken:
            raise broken.pop()

    desk.place.before = fail
    for _ in range(2):
        with pytest.raises(CouldNotFindOut):
            desk.close()
    assert len(desk.place.sessions) == 1
    assert desk.close() == desk.close()
    assert desk.place.sessions == []
    assert len(desk.harness.parsed) == 1


def test_unwritable_folders_of_the_harness_are_removed_too(desk: Desk) -> None:
    desk.harness.script = f'{FINISH}; mkdir -p "$HOME/ro/deep"; chmod 0500 "$HOME/ro"'
    desk.seed()
    desk.activate()
    desk.close()
    assert desk.place.sessions == []


# --- an own sandbox -----------------------------------------------------------------------------


def test_an_own_sandbox_is_started_and_removed(tmp_path: Path) -> None:
    place = OwnedFolderPlace(tmp_path / "box")
    desk = Desk(tmp_path, place)
    desk.seed()
    assert place.started == 1
    assert desk.activate().status == "completed"
    desk.close()
    assert place.closed == 1


def test_an_own_sandbox_that_cannot_start_is_removed_by_the_close(tmp_path: Path) -> None:
    place = OwnedFolderPlace(tmp_path / "box", fails_to_start=EngineFailure("no space"))
    desk = Desk(tmp_path, place)
    with pytest.raises(EngineFailure):
        desk.seed()
    desk.close()
    assert place.closed == 1


def test_facts_are_asked_once(desk: Desk) -> None:
    desk.seed()
    desk.activate()
    desk.close()
    assert desk.place.calls.count("facts") == 1


def test_evidence_of_an_unknown_session_is_not_found(desk: Desk) -> None:
    with pytest.raises(NotFound):
        desk.agent.evidence("other")


def test_a_stop_before_the_launch_starts_nothing(desk: Desk) -> None:
    desk.harness.script = f"{FINISH}; touch ran"
    desk.seed()
    planned = threading.Event()
    desk.place.before = when(planned, "put")
    record = desk.sessions._records["s"]
    record.cancel.set()
    response = desk.activate()
    assert planned.is_set()
    assert response.outcome is not None
    assert response.outcome.kind is OutcomeKind.INFRASTRUCTURE_FAILURE
    desk.close()


def test_an_activation_that_no_harness_could_take_is_refused(desk: Desk) -> None:
    desk.seed()
    endpoint = ModelEndpoint(base_url="http://127.0.0.1:9/v1", api_key="two words", model="model")
    with pytest.raises(UnprocessableError, match="api_key") as caught:
        desk.sessions.activate(
            ActivateRequest(agent_session_id="s", input="go", deadline_s=5, endpoint=endpoint)
        )
    assert "two words" not in str(caught.value)
    desk.close()
    assert desk.place.sessions == []
