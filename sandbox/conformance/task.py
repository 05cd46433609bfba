"""The task's side of an episode: sandbox, model link, model server, workspace and verifier."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

from sandbox.agents.contract import ModelEndpoint, SandboxAccess
from sandbox.agents.response import AgentResponse
from sandbox.agents.stages import Seeded
from sandbox.conformance.conditions import (
    ahead_of_the_sandbox,
    is_bare,
    limits_under,
    make_workdir,
    shift_times,
)
from sandbox.conformance.metered import phase_use
from sandbox.conformance.scenario import KEY_PREFIX, Scenario, home_note
from sandbox.conformance.secrets import SecretWatch
from sandbox.conformance.verifier import Verifier
from sandbox.conformance.witness import Witness
from sandbox.conformance.world import World
from sandbox.engine.archive import PutFile
from sandbox.engine.facts import ImageFacts
from sandbox.engine.limits import Mounted
from sandbox.engine.link import ModelLink, open_link
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import SandboxError
from sandbox.evidence.capture import capture, is_rejection
from sandbox.evidence.cell import PhaseUse, Teardown, VerifierResult, WitnessRecord
from sandbox.evidence.egress import counted, moments_of
from sandbox.evidence.exchanges import Exchange
from sandbox.evidence.records import EgressEvent, FileChange
from sandbox.model.server import ModelServer
from sandbox.progress import PlainProgress

MODEL = "scripted-model"
VERIFIER_HOST = "127.0.0.2"
"""Where a verifier on this host reaches the model: an address that no sandbox has."""


class Task:
    """Resources of one cell's episode (``sandbox.agents.episode.Resources``).

    What ``release`` saw stays readable afterwards.

    Args:
        world: what all cells share.
        scenario: what is attempted.
        image_ref: the loaded image.
        owner: whose the sandbox is.
        rollout_id: names the rollout in the model's path.
        mounts: what the sandbox sees of this machine, read-only.
        session_dir: tells the agent's folder in the sandbox, as far as it is known.
    """

    def __init__(
        self,
        world: World,
        scenario: Scenario,
        *,
        image_ref: str,
        owner: Ownership,
        rollout_id: str,
        mounts: Sequence[Mounted],
        session_dir: Callable[[], str | None],
    ) -> None:
        self._world = world
        self._scenario = scenario
        self._image_ref = image_ref
        self._owner = owner
        self._rollout_id = rollout_id
        self._mounts = tuple(mounts)
        self._session_dir = session_dir
        self._script = scenario.script(rollout_id)
        self._key = f"{KEY_PREFIX}{rollout_id}"
        self._use: dict[str, PhaseUse] = {}
        self._ends: dict[str, float] = {}
        self.secrets = SecretWatch(self._key)
        self._stack = ExitStack()
        self._verifier: Verifier | None = None
        self._verified: VerifierResult | None = None
        self.sandbox: Sandbox | None = None
        self.witness: Witness | None = None
        self.link: ModelLink | None = None
        self.server: ModelServer | None = None
        self.facts: ImageFacts | None = None
        self.seen = WitnessRecord()
        self.footprint: tuple[FileChange, ...] | None = None

    def seed(self) -> Seeded:
        """Start the sandbox and the model; the agent borrows the sandbox."""
        link = self._open_link()
        self.sandbox = Sandbox(
            self._world.engine,
            self._image_ref,
            owner=self._owner,
            link=link,
            mounts=self._mounts,
            limits=limits_under(self._world.conditions, self._scenario.limits),
            bare=is_bare(self._world.conditions),
        )
        self._stack.callback(self.sandbox.close)
        self.sandbox.start()
        endpoint, workdir = self._connect(self.sandbox, link)
        self.measure("sandbox")
        lent = SandboxAccess.to_container(self.sandbox.id, workdir=workdir)
        return Seeded(endpoint=endpoint, sandbox_access=lent)

    def _open_link(self) -> ModelLink:
        self.link = self._stack.enter_context(
            open_link(
                self._world.engine,
                self._owner,
                isolation=self._world.isolation,
                egress=self._world.egress,
                progress=PlainProgress(quiet=True),  # the run says it once
            )
        )
        return self.link

    def _connect(self, sandbox: Sandbox, link: ModelLink) -> tuple[ModelEndpoint, str]:
        """Watch a started sandbox and serve it the model; return where, and the workdir."""
        facts = sandbox.facts()
        workdir = make_workdir(sandbox, facts.workdir, self._world.conditions)
        facts = self.facts = facts.model_copy(update={"workdir": workdir})
        conditions = self._world.conditions
        self._put_workspace(sandbox, facts.workdir)
        files = tuple(self._scenario.workspace)
        shift_times(sandbox, facts.workdir, files, conditions, now=time.time())
        witness = self.witness = Witness(
            sandbox, self._script, workdir=facts.workdir, home=facts.home, home_note=home_note
        )
        listener = link.listen()
        judge = self._judge_listener()
        server = ModelServer(
            self._script,
            rollout_id=self._rollout_id,
            listener=listener,
            clock=self._moment,
            marker=witness.file_text,
            models=(MODEL,),
            verifier_listener=judge,
            ahead_s=ahead_of_the_sandbox(conditions),
        )
        self.server = self._stack.enter_context(server)
        self._verifier = Verifier(
            self._scenario.verifier,
            witness,
            model_address=None
            if judge is None
            else (VERIFIER_HOST, judge.getsockname()[1], server.base_path),
        )
        endpoint = ModelEndpoint(
            base_url=f"http://{link.host}:{link.port}{server.base_path}",
            api_key=self._key,
            model=MODEL,
        )
        return endpoint, facts.workdir

    def verify(self, response: AgentResponse) -> float:  # noqa: ARG002 - it is not to be believed
        """Grade what the tools left in the sandbox."""
        assert self._verifier is not None
        texts = {step.marker: step.marker_text for step in self._script.expectations()}
        wanted = {name: texts.get(name, f"{name} of {self._rollout_id}") for name in self._graded}
        self._verified = self._verifier.grade(wanted)
        return self._verified.reward

    def measure(self, phase: str) -> None:
        """Note the end of a phase, and the sandbox's figures where it can be seen into."""
        self.ended(phase)
        if self.sandbox is None:
            return
        seen = phase_use(self.sandbox, phase)
        if seen is not None:
            self._use[phase] = seen

    def ended(self, phase: str) -> None:
        """Note when a phase ended."""
        self._ends[phase] = self._moment()

    def glance(self) -> None:
        """Look for secrets in the processes of this moment."""
        if self.sandbox is not None:
            with suppress(SandboxError):
                self.secrets.glance(self.sandbox)

    def moment_has_come(self) -> bool:
        """Whether what the scenario wants to cancel is under way; asked while the agent works."""
        self.glance()
        if self.server is None or self.witness is None:
            return False
        if self._scenario.cancel == "model":
            report = self.server.report()
            return report.steps_done == report.steps
        if self._scenario.cancel == "tool":
            last = self._script.expectations()[-1]
            return self.witness.file_text(last.marker) == last.marker_text
        return False

    @property
    def _graded(self) -> tuple[str, ...]:
        return self._scenario.graded

    def release(self) -> None:
        """Look once more, stop the model server, remove the sandbox; note what was left."""
        errors: list[str] = []
        if self.witness is not None:
            self._observe(errors)
        self._end(errors)

    def _end(self, errors: list[str]) -> None:
        gone = self._close(errors)
        if self.server is not None:
            self.seen = self.seen.model_copy(update={"exchange_tally": self.server.tally()})
        self.seen = self.seen.model_copy(
            update={"teardown": Teardown(container_gone=gone, errors=tuple(errors))}
        )

    def exchanges(self) -> tuple[Exchange, ...]:
        """Return what the model server saw so far."""
        return () if self.server is None else self.server.exchanges()

    def rejection(self) -> str | None:
        """Return why a task that is graded then was refused at once; None when it was not."""
        calls = capture(self.exchanges())
        if not (self._scenario.expectation.grades_rejection and is_rejection(calls)):
            return None
        return f"the model refused the task: {len(calls)} request(s) answered with HTTP 400"

    def egress(self) -> tuple[EgressEvent, ...] | None:
        """Return what was tried, counted by phase; None when nobody could see it."""
        if self.link is None or self.link.egress_seen is None:
            return None
        moments = moments_of(
            self.exchanges(), seeded=self._ends.get("seed"), over=self._ends.get("activate")
        )
        return counted(self.link.egress(), moments)

    def _moment(self) -> float:
        """Tell the time, at which a phase may change: what found no route until now was before."""
        if self.link is not None:
            self.link.count_unrouted()
        return time.time()

    def _observe(self, errors: list[str]) -> None:
        assert self.witness is not None
        assert self.sandbox is not None
        self.seen = self.witness.observe(
            self.server, session_dir=self._session_dir(), verifier=self._verified
        )
        self.seen = self.seen.model_copy(update={"use": tuple(self._use.values())})
        try:
            self.secrets.look_at_container(self.sandbox)
            self.footprint = self.sandbox.diff()
        except SandboxError as error:
            errors.append(f"footprint: {error.message}")

    def _close(self, errors: list[str]) -> bool:
        try:
            self._stack.close()
        except SandboxError as error:
            errors.append(error.message)
            return False
        return True

    def _put_workspace(self, sandbox: Sandbox, workdir: str) -> None:
        files = [PutFile(path=n, data=t.encode()) for n, t in self._scenario.workspace.items()]
        if files:
            sandbox.put(files, workdir)

    def _judge_listener(self) -> socket.socket | None:
        if self._scenario.verifier != "judge":
            return None
        return socket.create_server((VERIFIER_HOST, 0))
