"""A companion: another agent session of the same harness, in the same sandbox meanwhile."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from sandbox.agents.app import agent_app
from sandbox.agents.client import agent_in_process
from sandbox.agents.contract import EpisodeId, ModelEndpoint, SandboxAccess, TaskId
from sandbox.agents.episode import run_episode
from sandbox.agents.response import AgentResponse
from sandbox.agents.session import Options, SupervisedAgent
from sandbox.agents.stages import Episode, EpisodeResult, Seeded
from sandbox.conformance.scenario import PROMPT
from sandbox.conformance.task import MODEL, Task
from sandbox.errors import SandboxError
from sandbox.evidence.capture import MODEL_SERVER, capture
from sandbox.evidence.cell import Companion
from sandbox.evidence.exchanges import Exchange
from sandbox.model.script import Script
from sandbox.model.server import ModelServer

_LATE_S = 60.0
_SOURCE = "sandbox.companion"


class CompanionSession:
    """The resources of a cell's episode, with another episode beside it in the same sandbox.

    Args:
        task: the cell's own resources.
        script: makes the other session's script.
        make_agent: makes an agent that borrows the task's sandbox.
        native_root: host folder for the other session's native evidence.
        deadline_s: the other session's own deadline, in seconds.
    """

    def __init__(
        self,
        task: Task,
        script: Callable[[str], Script],
        *,
        make_agent: Callable[[Options], SupervisedAgent],
        native_root: Path,
        deadline_s: float,
    ) -> None:
        self._task = task
        self._make_agent = make_agent
        self._native_root = native_root
        self._deadline_s = deadline_s
        self._rollout_id = f"r{uuid.uuid4().hex}"
        self._session_id = f"s{uuid.uuid4().hex}"
        self._script = script(self._rollout_id)
        self._server: ModelServer | None = None
        self._agent: SupervisedAgent | None = None
        self._thread: threading.Thread | None = None
        self._result: EpisodeResult | None = None
        self.record: Companion | None = None

    def seed(self) -> Seeded:
        """Make the task's resources, and let the other session begin."""
        seeded = self._task.seed()
        self._thread = threading.Thread(target=self._run, name="companion", daemon=True)
        self._thread.start()
        return seeded

    def verify(self, response: AgentResponse) -> float:
        """Grade the cell's own work."""
        return self._task.verify(response)

    def release(self) -> None:
        """Wait for the other session, note how it ended, and release the task's resources."""
        if self._thread is not None:
            self._thread.join(self._deadline_s + _LATE_S)
            self.record = self._recorded()
        self._task.release()

    def _run(self) -> None:
        agent = self._agent = self._make_agent(
            Options(
                native_root=self._native_root,
                exclusive=False,
                exchanges=lambda _: self._exchanges(),
                model_ref=MODEL_SERVER,
            )
        )
        episode = Episode(
            agent_session_id=self._session_id,
            episode_id=EpisodeId(rollout_id=self._rollout_id),
            task_id=TaskId(task_source=_SOURCE, task_id="companion"),
            prompt=PROMPT,
            deadline_s=self._deadline_s,
        )
        with agent_in_process(agent_app(agent)) as client:
            self._result = run_episode(episode, agent=client, resources=_Beside(self))

    def begin(self) -> Seeded:
        """Start the other session's own model in the task's sandbox."""
        task = self._task
        assert task.link is not None
        assert task.sandbox is not None
        assert task.witness is not None
        assert task.facts is not None
        server = ModelServer(
            self._script,
            rollout_id=self._rollout_id,
            listener=task.link.listen(),
            marker=task.witness.file_text,
            models=(MODEL,),
        )
        server.start()
        self._server = server
        return Seeded(
            endpoint=ModelEndpoint(
                base_url=f"http://{task.link.host}:{task.link.port}{server.base_path}",
                api_key=f"sk-local-{self._rollout_id}",
                model=MODEL,
            ),
            sandbox_access=SandboxAccess.to_container(task.sandbox.id, workdir=task.facts.workdir),
        )

    def grade(self) -> float:
        """Return 1.0 when the other session's commands left what they must."""
        assert self._task.witness is not None
        wanted = {step.marker: step.marker_text for step in self._script.expectations()}
        return self._task.witness.grade(wanted).reward

    def end(self) -> None:
        """Stop the other session's model."""
        if self._server is not None:
            self._server.stop()

    def _exchanges(self) -> tuple[Exchange, ...]:
        return () if self._server is None else self._server.exchanges()

    def _recorded(self) -> Companion:
        result, mine, own = self._result, self._exchanges(), self._task.exchanges()
        failure = None if result is None else result.failure
        outcome = None if result is None else result.outcome
        return Companion(
            rollout_id=self._rollout_id,
            outcome="unknown" if outcome is None else outcome.kind.value,
            reward=None if result is None else result.reward,
            calls=len(capture(mine)),
            foreign_calls=_foreign(mine, self._rollout_id, own),
            overlapped=_overlap(mine, own),
            session_dir_gone=self._folder_gone(),
            error="it did not end" if result is None else failure and failure.message,
        )

    def _folder_gone(self) -> bool | None:
        sandbox, agent = self._task.sandbox, self._agent
        if sandbox is None or agent is None:
            return None
        try:
            folder = agent.evidence(self._session_id).folder
            if folder is None:
                return None
            return sandbox.exec(["test", "-e", folder], deadline_s=10.0).exit_code == 1
        except SandboxError:
            return None


class _Beside:
    """The other episode's resources: everything but the model is somebody else's."""

    def __init__(self, companion: CompanionSession) -> None:
        self._companion = companion

    def seed(self) -> Seeded:
        return self._companion.begin()

    def verify(self, response: AgentResponse) -> float:
        del response
        return self._companion.grade()

    def release(self) -> None:
        self._companion.end()


def _foreign(mine: Sequence[Exchange], rollout_id: str, own: Sequence[Exchange]) -> int:
    """Count calls under the wrong prefix, and those with a session id of both."""
    wrong = [e for e in mine if e.rollout_id != rollout_id and e.dialect != "none"]
    wrong += [e for e in own if e.rollout_id == rollout_id]
    shared = {e.client_session_id for e in mine} & {e.client_session_id for e in own} - {None}
    return len(wrong) + sum(e.client_session_id in shared for e in mine)


def _overlap(mine: Sequence[Exchange], own: Sequence[Exchange]) -> bool:
    """Whether each of the two made its first call before the other's last was answered."""
    if not mine or not own:
        return False
    first, last = min(e.started_at for e in mine), max(e.completed_at for e in mine)
    return first < max(e.completed_at for e in own) and min(e.started_at for e in own) < last
