"""One cell: an episode in a real sandbox, recorded whole, judged by nobody."""

from __future__ import annotations

import shutil
import tempfile
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from tenacity import Retrying, retry_if_result, stop_after_attempt

from sandbox.agents.contract import EpisodeId, TaskId
from sandbox.agents.episode import AgentClient, Resources
from sandbox.agents.sessionstate import SessionEvidence
from sandbox.agents.stages import Episode, EpisodeResult
from sandbox.conformance.baked import bake
from sandbox.conformance.cellrecord import (
    engine_record,
    image_record,
    pin_of,
    refusal_by,
    refusal_of,
    rounded,
    row_of,
    with_errors,
)
from sandbox.conformance.companion import CompanionSession
from sandbox.conformance.driver import Driver, LegacyDriver, OwnDriver, RemoteDriver
from sandbox.conformance.legacytask import LegacyTask
from sandbox.conformance.metered import Metered
from sandbox.conformance.moments import ActivatesAgain, CancelAt
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.scenario import Scenario
from sandbox.conformance.scenarios import SCENARIOS
from sandbox.conformance.task import Task
from sandbox.conformance.ways import ImageRuntimes
from sandbox.conformance.world import World
from sandbox.engine.guarantees import guarantees
from sandbox.engine.owner import Ownership
from sandbox.errors import EngineFailure, SandboxError, Unsupported
from sandbox.evidence.cell import CellRecord, Refusal, WitnessRecord
from sandbox.evidence.celltexts import CellTexts
from sandbox.evidence.folder import CellFiles, cell_folder, write_cell
from sandbox.harnesses.base import Capabilities
from sandbox.runtimes.library import Bundle

TASK_SOURCE = "sandbox.scenarios"


def run_cell(spec: CellSpec, world: World) -> CellRecord:
    """Run one cell and write its folder; whatever goes wrong is written there too.

    Returns:
        The record that was written.

    Raises:
        CacheUnusable, OSError: the run's folder cannot be written.
    """
    attempts = Retrying(
        stop=stop_after_attempt(1 + world.retries),
        retry=retry_if_result(lambda tried: tried.broke and not world.cancel.is_set()),
        retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
    )
    earlier: list[Refusal] = []
    tried: _Tried = attempts(_attempt, spec, world, earlier)
    try:
        folder = cell_folder(world.folder, spec.cell_id)
        write_cell(folder, tried.files, native=tried.native, texts=tried.texts)
    finally:
        shutil.rmtree(tried.scratch, ignore_errors=True)
    return tried.files.cell


@dataclass(frozen=True)
class _Tried:
    """One attempt; ``broke``: the engine failed under us, so another may tell what this did not."""

    files: CellFiles
    native: Path | None
    texts: CellTexts
    scratch: Path
    broke: bool


def _attempt(spec: CellSpec, world: World, earlier: list[Refusal]) -> _Tried:
    """Try a cell once, with all that earlier attempts met; their scratch folders are gone."""
    cell = _Cell(spec, world)
    started = time.time()
    before = (*world.earlier, *earlier)
    try:
        files = cell.files(started)
    except SandboxError as error:
        files = CellFiles(cell=cell.record(started, refusal=refusal_by(error)))
    files = replace(files, cell=files.cell.model_copy(update={"earlier_attempts": before}))
    refusal = files.cell.refusal
    broke = cell.engine_failed and refusal is not None
    if broke and refusal is not None:
        earlier.append(refusal)
        if len(earlier) <= world.retries and not world.cancel.is_set():
            shutil.rmtree(cell.scratch, ignore_errors=True)
    return _Tried(files, cell.native, cell.texts, cell.scratch, broke)


class _Cell:
    """The life of one cell, from its ids to the facts of its folder."""

    def __init__(self, spec: CellSpec, world: World) -> None:
        self._spec = spec
        self._world = world
        self._scenario: Scenario = SCENARIOS[spec.scenario]
        self._image = world.images[spec.image]
        self._capabilities = self._declared()
        self._runtimes = ImageRuntimes(
            world.engine, world.library, self._image, way=world.way, volumes=world.volumes
        )
        self._rollout_id = f"r{uuid.uuid4().hex}"
        self._session_id = f"s{uuid.uuid4().hex}"
        self.scratch = Path(tempfile.mkdtemp(prefix=".cell-", dir=world.folder))
        self.native: Path | None = None
        self.texts = CellTexts()
        self._bundle: Bundle | None = None
        self._driver = self._make_driver()
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
        files = CellFiles(
            cell=self.record(
                started, refusal=refusal_of(result, interrupted=self._world.cancel.is_set())
            ),
            row=row_of(
                result,
                task_id=self._scenario.name,
                rollout_id=self._rollout_id,
                exchanges=task.exchanges(),
            ),
            witness=self._seen(task, result),
            exchanges=task.exchanges(),
            receipt=None if session is None else session.receipt,
            install=None if session is None else session.install,
            footprint=task.footprint,
            egress=task.egress(),
        )
        found = task.secrets.all_seen(files, self.native, self.texts)
        assert files.witness is not None
        return replace(files, witness=files.witness.model_copy(update={"secrets": found}))

    @property
    def engine_failed(self) -> bool:
        """Whether the engine, and not the agent, ended the episode."""
        failure = None if self._result is None else self._result.failure
        return failure is not None and isinstance(failure.error, EngineFailure)

    def record(self, started: float, *, refusal: Refusal | None) -> CellRecord:
        """Return identity and circumstances, as far as they are known by now."""
        session = self._session()
        task = self._task
        facts = None if task is None else task.facts
        link = None if task is None else task.link
        declared = self._capabilities
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
            interface=self._driver.interface,
            agent=self._driver.record,
            conditions=self._world.conditions,
            isolation=None if link is None else link.isolation,
            egress_seen=None if link is None else link.egress_seen,
            settings=self._world.settings,
            guarantees=() if link is None else guarantees(self._world.engine.info, link.isolation),
            pin=pin_of(self._bundle),
            image_record=image_record(self._image, facts),
            engine=engine_record(self._world.engine.info),
            session_dir=None if session is None else session.folder,
            workdir=None if facts is None else facts.workdir,
            task_home=None if facts is None else facts.home,
            deadline_s=self._deadline_s,
            phases={} if self._result is None else rounded(self._result.phases),
            capabilities={}
            if declared is None
            else declared.model_dump(mode="json", exclude={"exceptions"}),
            refusal=refusal,
        )

    @property
    def _slow_start_s(self) -> float:
        return 0.0 if self._capabilities is None else self._capabilities.slow_start_s

    @property
    def _deadline_s(self) -> float:
        return self._scenario.deadline_s + self._slow_start_s

    def _make_driver(self) -> Driver:
        if self._world.remote is not None:
            return RemoteDriver(self._world.remote)
        harness = self._world.harnesses[self._spec.adapter]
        if self._spec.legacy:
            return LegacyDriver(
                harness,
                runtimes=self._runtimes,
                native_root=self.scratch,
                engine=self._world.engine,
            )
        return OwnDriver(
            harness,
            runtimes=self._runtimes,
            native_root=self.scratch,
            exclusive=self._scenario.companion is None,
        )

    def _declared(self) -> Capabilities | None:
        """Return what the agent declares for the image's platform; None: nothing."""
        remote = self._world.remote
        if remote is None:
            found: Capabilities | None = self._world.harnesses[self._spec.adapter].capabilities
        else:
            found = remote.capabilities
        return None if found is None else found.on(self._image.platform)

    def _pinned_bundle(self) -> Bundle | None:
        """Return the bundle to mount; None when there is no pin: the agent's setup refuses then."""
        if self._world.remote is not None:
            return None  # what a server installs is its own affair
        try:
            return self._world.library.ensure_bundle(self._spec.adapter, self._image.platform)
        except Unsupported:
            return None

    def _make_task(self) -> Task:
        owner = Ownership.current(run_id=self._world.run_id, cell_id=self._spec.cell_id)
        legacy = self._driver.interface == "legacy"
        kind, image_ref = (LegacyTask, self._baked()) if legacy else (Task, self._image.ref)
        return kind(
            self._world,
            self._scenario,
            image_ref=image_ref,
            owner=owner,
            rollout_id=self._rollout_id,
            mounts=() if legacy or not self._bundle else self._runtimes.mounts(self._bundle),
            session_dir=self._session_dir,
        )

    def _baked(self) -> str:
        """Return the image that a legacy agent is given: with the runtime, when it is ours."""
        if self._bundle is None:
            return self._image.ref
        library, engine = self._world.library, self._world.engine
        return bake(engine, library, harness=self._spec.adapter, image=self._image).ref

    def _run(self, task: Task) -> EpisodeResult:
        episode = Episode(
            agent_session_id=self._session_id,
            episode_id=EpisodeId(rollout_id=self._rollout_id),
            task_id=TaskId(task_source=TASK_SOURCE, task_id=self._scenario.name),
            prompt=self._scenario.prompt,
            deadline_s=self._deadline_s,
            rejection=task.rejection,
        )
        return self._driver.attempt(
            episode,
            task,
            CancelAt(self._world.cancel, task.moment_has_come),
            resources=self._resources(task),
            around=lambda agent: Metered(self._around(agent), task.measure),
        )

    def _resources(self, task: Task) -> Resources:
        """Return the task's side, with another session of the same harness beside it if wanted."""
        companion, driver = self._scenario.companion, self._driver
        if companion is None:
            return task
        if not isinstance(driver, OwnDriver):
            raise Unsupported(
                f"{self._spec.scenario} needs two sessions of one adapter in one sandbox",
                cure="run it with an adapter of this package, as a session agent",
            )
        self._companion = CompanionSession(
            task,
            companion,
            make_agent=lambda options: driver.make_agent(task, options),
            native_root=self.scratch / "companion",
            deadline_s=self._deadline_s,
        )
        return self._companion

    def _around(self, agent: AgentClient) -> AgentClient:
        if not self._scenario.expectation.reactivated:
            return agent
        self._again = ActivatesAgain(agent)
        return self._again

    def _seen(self, task: Task, result: EpisodeResult) -> WitnessRecord:
        beside = {
            "companion": None if self._companion is None else self._companion.record,
            "reactivation": None if self._again is None else self._again.answer,
        }
        return with_errors(task.seen.model_copy(update=beside), result.cleanup_errors)

    def _session(self) -> SessionEvidence | None:
        return self._driver.evidence(self._session_id)

    def _session_dir(self) -> str | None:
        session = self._session()
        return None if session is None else session.folder
