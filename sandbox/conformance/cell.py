"""One cell: an episode in a real sandbox, recorded whole, judged by nobody."""

from __future__ import annotations

import shutil
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.agents.contract import EpisodeId, SandboxAccess, TaskId, UnprocessableError
from sandbox.agents.episode import AgentClient, Episode, EpisodeResult, Resources, run_episode
from sandbox.agents.lifecycle import AgentSessions
from sandbox.agents.ports import OwnedPlace, Place
from sandbox.agents.session import Options, SessionEvidence, SupervisedAgent
from sandbox.conformance.companion import CompanionSession
from sandbox.conformance.moments import ActivatesAgain, CancelAt
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.scenario import Scenario
from sandbox.conformance.scenarios import SCENARIOS
from sandbox.conformance.task import Task
from sandbox.conformance.world import CellRuntimes, World
from sandbox.engine.owner import Ownership
from sandbox.errors import EngineFailure, NotFound, SandboxError, Unsupported
from sandbox.evidence.assemble import assemble
from sandbox.evidence.capture import MODEL_SERVER
from sandbox.evidence.cell import (
    CellRecord,
    EngineRecord,
    HarnessPin,
    ImageRecord,
    Refusal,
    WitnessRecord,
)
from sandbox.evidence.folder import CellFiles, cell_folder, write_cell
from sandbox.evidence.rows import Row
from sandbox.runtimes.library import Bundle

TASK_SOURCE = "sandbox.scenarios"


def run_cell(spec: CellSpec, world: World) -> CellRecord:
    """Run one cell and write its folder; whatever goes wrong is written there too.

    Returns:
        The record that was written.

    Raises:
        CacheUnusable, OSError: the run's folder cannot be written.
    """
    cell = _Cell(spec, world)
    started = time.time()
    try:
        files = cell.files(started)
    except SandboxError as error:
        files = CellFiles(cell=cell.record(started, refusal=_refusal(error)))
    try:
        write_cell(cell_folder(world.folder, spec.cell_id), files, native=cell.native)
    finally:
        shutil.rmtree(cell.scratch, ignore_errors=True)
    return files.cell


class _Cell:
    """The life of one cell, from its ids to the facts of its folder."""

    def __init__(self, spec: CellSpec, world: World) -> None:
        self._spec = spec
        self._world = world
        self._scenario: Scenario = SCENARIOS[spec.scenario]
        self._image = world.images[spec.image]
        self._harness = world.harnesses[spec.harness]
        self._capabilities = self._harness.capabilities.on(self._image.platform)
        self._runtimes = CellRuntimes(world, self._image)
        self._rollout_id = f"r{uuid.uuid4().hex}"
        self._session_id = f"s{uuid.uuid4().hex}"
        self.scratch = Path(tempfile.mkdtemp(prefix=".cell-", dir=world.folder))
        self.native: Path | None = None
        self._bundle: Bundle | None = None
        self._agent: SupervisedAgent | None = None
        self._task: Task | None = None
        self._result: EpisodeResult | None = None
        self._companion: CompanionSession | None = None
        self._again: ActivatesAgain | None = None

    def files(self, started: float) -> CellFiles:
        """Run the episode and return everything that was seen of it."""
        self._bundle = self._pinned_bundle()
        task = self._task = self._make_task()
        result = self._result = self._run(task)
        session = self._session()
        if session is not None:
            self.native = session.native
        return CellFiles(
            cell=self.record(started, refusal=self._refusal_of(result)),
            row=self._row(result, task),
            witness=self._seen(task, result),
            exchanges=task.exchanges(),
            receipt=None if session is None else session.receipt,
            install=None if session is None else session.install,
            footprint=task.footprint,
            egress=task.egress(),
        )

    def record(self, started: float, *, refusal: Refusal | None) -> CellRecord:
        """Return identity and circumstances, as far as they are known by now."""
        session = self._session()
        task = self._task
        facts = None if task is None else task.facts
        info = self._world.engine.info
        return CellRecord(
            cell_id=self._spec.cell_id,
            harness=self._spec.harness,
            image=self._spec.image,
            scenario=self._spec.scenario,
            run_id=self._world.run_id,
            rollout_id=self._rollout_id,
            task_id=self._scenario.name,
            expectation=self._scenario.expectation,
            started_at=started,
            completed_at=time.time(),
            interface="agent-session",
            conditions=self._world.conditions,
            isolation=None if task is None or task.link is None else task.link.isolation,
            pin=self._pin(),
            image_record=ImageRecord(
                name=self._image.name,
                image_id=self._image.image_id,
                libc=f"{self._image.libc} {self._image.libc_version}",
                arch=self._image.arch,
                uid=None if facts is None else facts.uid,
            ),
            engine=EngineRecord(
                version=info.version,
                api_version=info.api_version,
                cgroup_version=str(info.cgroup_version),
                storage_driver=info.storage_driver,
            ),
            session_dir=None if session is None else session.folder,
            workdir=None if facts is None else facts.workdir,
            task_home=None if facts is None else facts.home,
            phases={} if self._result is None else _rounded(self._result.phases),
            capabilities=self._capabilities.model_dump(mode="json", exclude={"exceptions"}),
            refusal=refusal,
        )

    def _pinned_bundle(self) -> Bundle | None:
        """Return the bundle to mount; None when there is no pin: the agent's setup refuses then."""
        try:
            return self._world.library.ensure_bundle(self._spec.harness, self._image.platform)
        except Unsupported:
            return None

    def _make_task(self) -> Task:
        owner = Ownership.current(run_id=self._world.run_id, cell_id=self._spec.cell_id)
        return Task(
            self._world,
            self._scenario,
            image_ref=self._image.ref,
            owner=owner,
            rollout_id=self._rollout_id,
            mounts=() if self._bundle is None else self._runtimes.mounts(self._bundle),
            session_dir=self._session_dir,
        )

    def _make_agent(self, task: Task, options: Options) -> SupervisedAgent:
        return SupervisedAgent(
            self._harness,
            runtimes=self._runtimes,
            places=_Borrowed(task),
            options=options,
        )

    def _run(self, task: Task) -> EpisodeResult:
        scenario = self._scenario
        agent = self._agent = self._make_agent(
            task,
            Options(
                native_root=self.scratch,
                exclusive=scenario.companion is None,
                exchanges=lambda _: task.exchanges(),
                model_ref=MODEL_SERVER,
            ),
        )
        sessions: AgentClient = AgentSessions(agent)
        if scenario.expectation.reactivated:
            sessions = self._again = ActivatesAgain(sessions)
        resources: Resources = task
        if scenario.companion is not None:
            resources = self._companion = CompanionSession(
                task,
                scenario.companion,
                make_agent=lambda options: self._make_agent(task, options),
                native_root=self.scratch / "companion",
                deadline_s=scenario.deadline_s + self._harness.capabilities.slow_start_s,
            )
        return run_episode(
            Episode(
                agent_session_id=self._session_id,
                episode_id=EpisodeId(rollout_id=self._rollout_id),
                task_id=TaskId(task_source=TASK_SOURCE, task_id=self._scenario.name),
                prompt=self._scenario.prompt,
                deadline_s=self._scenario.deadline_s + self._capabilities.slow_start_s,
            ),
            agent=sessions,
            resources=resources,
            cancel=CancelAt(self._world.cancel, task.moment_has_come),
        )

    def _seen(self, task: Task, result: EpisodeResult) -> WitnessRecord:
        beside = {
            "companion": None if self._companion is None else self._companion.record,
            "reactivation": None if self._again is None else self._again.answer,
        }
        return _with_errors(task.seen.model_copy(update=beside), result.cleanup_errors)

    def _refusal_of(self, result: EpisodeResult) -> Refusal | None:
        """Return why there is nothing to judge: it cannot work, or it broke under us."""
        failure = result.failure
        if failure is None:
            return None
        if self._world.cancel.is_set() and failure.kind == "cancelled":
            return Refusal(
                kind="error", reason="the run was interrupted", cure="run the cell again"
            )
        error = failure.error
        if isinstance(error, Unsupported | UnprocessableError | EngineFailure):
            return _refusal(error)
        return None

    def _row(self, result: EpisodeResult, task: Task) -> Row:
        joined = assemble(
            task_id=self._scenario.name,
            rollout_id=self._rollout_id,
            observations=result.observations,
            exchanges=task.exchanges(),
        )
        response = None if result.response is None else result.response.model_dump(mode="json")
        failure = result.failure
        if failure is None:
            assert result.reward is not None
            return joined.success(reward=result.reward, response=response)
        return joined.failure(
            kind=failure.kind,
            stage=failure.stage,
            message=failure.message,
            terminal=failure.terminal,
            partial_response=response,
        )

    def _session(self) -> SessionEvidence | None:
        if self._agent is None:
            return None
        try:
            return self._agent.evidence(self._session_id)
        except NotFound:
            return None

    def _session_dir(self) -> str | None:
        session = self._session()
        return None if session is None else session.folder

    def _pin(self) -> HarnessPin | None:
        bundle = self._bundle
        if bundle is None:
            return None
        return HarnessPin(
            harness=bundle.harness,
            version=bundle.version,
            platform=bundle.platform,
            bundle_sha256=bundle.sha256,
        )


@dataclass(frozen=True)
class _Borrowed:
    """The agent's sandbox is the task's; there is no other."""

    task: Task

    def borrow(self, access: SandboxAccess) -> Place:
        sandbox = self.task.sandbox
        wanted = access.connection.descriptor.get("container_id")
        if sandbox is None or wanted != sandbox.id:
            raise UnprocessableError(f"no direct access to the container {wanted}")
        return sandbox

    def own(self) -> OwnedPlace:
        raise UnprocessableError("this agent works in borrowed sandboxes only")


def _refusal(error: SandboxError) -> Refusal:
    kind = "unsupported" if isinstance(error, Unsupported | UnprocessableError) else "error"
    return Refusal(kind=kind, reason=error.message, cure=error.cure)


def _with_errors(seen: WitnessRecord, errors: Sequence[str]) -> WitnessRecord:
    return seen.model_copy(update={"errors": (*seen.errors, *errors)})


def _rounded(phases: dict[str, float]) -> dict[str, float]:
    return {name: round(seconds, 4) for name, seconds in phases.items()}
