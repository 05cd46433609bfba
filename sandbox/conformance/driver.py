"""Who works on a cell's task: an adapter of ours served in this process, or a server at a URL.

Both are asked through the same HTTP client. Of an adapter in this process the cell also keeps what
the contract does not carry: receipts and the native evidence.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sandbox.agents.app import agent_app
from sandbox.agents.client import agent_at, agent_in_process
from sandbox.agents.contract import Interface, SandboxAccess, UnprocessableError, interface_of
from sandbox.agents.engineplaces import ordered
from sandbox.agents.episode import AgentClient, Resources, run_episode
from sandbox.agents.legacyagent import LegacyAgent
from sandbox.agents.legacyepisode import run_legacy_episode
from sandbox.agents.ports import OwnedPlace, Place
from sandbox.agents.session import Options, SupervisedAgent
from sandbox.agents.sessionstate import SessionEvidence
from sandbox.agents.stages import Episode, EpisodeResult
from sandbox.conformance.legacytask import LegacyTask
from sandbox.conformance.task import Task
from sandbox.conformance.ways import ImageRuntimes
from sandbox.conformance.world import RemoteAgent
from sandbox.engine.client import Engine
from sandbox.errors import NotFound
from sandbox.evidence.capture import MODEL_SERVER
from sandbox.evidence.cell import AgentRecord
from sandbox.harnesses.base import Harness
from sandbox.harnesses.source import source_sha256


class OwnDriver:
    """An adapter of ours, as a session agent in this process.

    Args:
        harness: the adapter.
        runtimes: where its bundle comes from.
        native_root: host folder for its native evidence.
        exclusive: nobody but this agent works in the sandbox.
    """

    def __init__(
        self,
        harness: Harness,
        *,
        runtimes: ImageRuntimes,
        native_root: Path,
        exclusive: bool = True,
    ) -> None:
        self._exclusive = exclusive
        self._harness = harness
        self._runtimes = runtimes
        self._native_root = native_root
        self._agent: SupervisedAgent | None = None

    @property
    def interface(self) -> Interface:
        """Tell how it is asked, from the adapter's class."""
        return interface_of(SupervisedAgent)

    @property
    def record(self) -> AgentRecord:
        """Say who it is."""
        return AgentRecord(
            name=self._harness.name,
            adapter_sha256=source_sha256(self._harness),
        )

    def make_agent(self, task: Task, options: Options) -> SupervisedAgent:
        """Make the adapter's agent, with the task's sandbox as the only one it may borrow."""
        return SupervisedAgent(
            self._harness, runtimes=self._runtimes, places=_Borrowed(task), options=options
        )

    def attempt(
        self,
        episode: Episode,
        task: Task,
        cancel: threading.Event,
        *,
        resources: Resources,
        around: Callable[[AgentClient], AgentClient],
    ) -> EpisodeResult:
        """Run the episode to its end; ``around`` may stand between it and the agent's client."""
        agent = self._agent = self.make_agent(
            task,
            Options(
                native_root=self._native_root,
                exclusive=self._exclusive,
                exchanges=lambda _: task.exchanges(),
                model_ref=MODEL_SERVER,
            ),
        )
        with agent_in_process(agent_app(agent)) as client:
            return run_episode(episode, agent=around(client), resources=resources, cancel=cancel)

    def evidence(self, agent_session_id: str) -> SessionEvidence | None:
        """Return receipts, outcome and the folder of native files, as far as there are any."""
        if self._agent is None:
            return None
        try:
            return self._agent.evidence(agent_session_id)
        except NotFound:
            return None


class LegacyDriver:
    """An adapter of ours behind ``/run`` in this process, in images that bring its runtime.

    Args:
        harness: the adapter.
        runtimes: where its pinned bundle is known from.
        native_root: host folder for its native evidence.
        engine: where its sandboxes are started.
    """

    interface: Interface = interface_of(LegacyAgent)

    def __init__(
        self, harness: Harness, *, runtimes: ImageRuntimes, native_root: Path, engine: Engine
    ) -> None:
        self._harness = harness
        self._runtimes = runtimes
        self._native_root = native_root
        self._engine = engine
        self._agent: LegacyAgent | None = None

    @property
    def record(self) -> AgentRecord:
        """Say who it is."""
        return AgentRecord(name=self._harness.name, adapter_sha256=source_sha256(self._harness))

    def attempt(
        self,
        episode: Episode,
        task: Task,
        cancel: threading.Event,
        *,
        resources: Resources,  # noqa: ARG002 - the task's own
        around: Callable[[AgentClient], AgentClient],  # noqa: ARG002 - there is no session
    ) -> EpisodeResult:
        """Run the episode to its end."""
        assert isinstance(task, LegacyTask)
        agent = self._agent = LegacyAgent(
            self._harness,
            runtimes=self._runtimes,
            order=partial(ordered, self._engine),
            options=Options(
                native_root=self._native_root,
                exchanges=lambda _: task.exchanges(),
                model_ref=MODEL_SERVER,
            ),
        )
        with agent_in_process(agent_app(agent)) as client:
            return run_legacy_episode(episode, agent=client, resources=task, cancel=cancel)

    def evidence(self, agent_session_id: str) -> SessionEvidence | None:  # noqa: ARG002
        """Return receipts, outcome and the folder of native files of the run."""
        return None if self._agent is None else self._agent.last


class RemoteDriver:
    """A server at a URL; what it does not say by the contract is not known."""

    def __init__(self, agent: RemoteAgent) -> None:
        self._agent = agent

    @property
    def interface(self) -> Interface:
        """Tell how it is asked."""
        return self._agent.interface

    @property
    def record(self) -> AgentRecord:
        """Say who it is, as far as it says so itself."""
        card = self._agent.card
        return AgentRecord(
            name=self._agent.name,
            url=self._agent.url,
            adapter_sha256=None if card is None else card.adapter_sha256,
            version=None if card is None else card.version,
        )

    def attempt(
        self,
        episode: Episode,
        task: Task,
        cancel: threading.Event,
        *,
        resources: Resources,
        around: Callable[[AgentClient], AgentClient],
    ) -> EpisodeResult:
        """Run the episode to its end, by the server's interface."""
        with agent_at(self._agent.url) as client:
            agent = client.under_prefix(prefixed=self._agent.prefixed)
            if isinstance(task, LegacyTask):
                return run_legacy_episode(episode, agent=agent, resources=task, cancel=cancel)
            return run_episode(episode, agent=around(agent), resources=resources, cancel=cancel)

    def evidence(self, agent_session_id: str) -> SessionEvidence | None:  # noqa: ARG002
        """Return nothing: receipts and native evidence are not part of the contract."""
        return None


Driver = OwnDriver | LegacyDriver | RemoteDriver


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
