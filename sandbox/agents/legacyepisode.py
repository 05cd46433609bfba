"""One task attempt through ``/run``: the agent does the middle of it, in a sandbox of its own.

Stages and failures are those of an episode with sessions (``sandbox.agents.stages``); the reward is
the verifier's, and a row that claims another breaks the contract.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from sandbox.agents.contract import ContractError
from sandbox.agents.legacy import (
    ResourcesServer,
    ResponsesParams,
    RunRow,
    SandboxOrder,
    VerifyRow,
)
from sandbox.agents.stages import Episode, EpisodeResult, Failed, Ledger


class RunClient(Protocol):
    """An agent with ``/run`` (``sandbox.agents.client.HttpAgent``)."""

    def run(self, row: RunRow, *, cancel: threading.Event) -> VerifyRow:
        """Take a row through the agent and its verifier."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the agent is told of the task: its sandbox, its resources server, the model's name."""

    sandbox: SandboxOrder
    resources: ResourcesServer
    model: str


class LegacyResources(Protocol):
    """The task's side of a run."""

    def order(self) -> Order:
        """Make ready what does not need the sandbox, and say what the agent is to start."""

    @property
    def reward(self) -> float | None:
        """What the verifier said; None: it was not asked."""

    def release(self) -> None:
        """Let go of everything, and of a sandbox that the agent left; called once."""


def run_legacy_episode(
    episode: Episode,
    *,
    agent: RunClient,
    resources: LegacyResources,
    cancel: threading.Event | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> EpisodeResult:
    """Run one episode to its end; arguments as of ``episode.run_episode``."""
    ledger = Ledger(clock=clock)
    stop = cancel or threading.Event()
    try:
        with ledger.stage("seed", "resources"):
            order = resources.order()
        with ledger.stage("agent", "run"):
            row = agent.run(_row(episode, order), cancel=stop)
        ledger.observations = row.ng_agent_observations
        ledger.take(row.response, episode, step="run")
        with ledger.stage("verification", "verify"):
            ledger.reward = _reward(row, resources.reward)
    except Failed as failed:
        failure = failed.failure
        if stop.is_set():
            failure = replace(failure, kind="cancelled", terminal=False)
        ledger.failure = failure
    finally:
        ledger.beside("release", resources.release)
    return ledger.result()


def _row(episode: Episode, order: Order) -> RunRow:
    return RunRow(
        task_id=episode.task_id.task_id,
        rollout_id=episode.episode_id.rollout_id,
        attempt=episode.episode_id.attempt,
        responses_create_params=ResponsesParams(input=episode.prompt, model=order.model),
        deadline_s=episode.deadline_s,
        sandbox=order.sandbox,
        resources=order.resources,
    )


def _reward(row: VerifyRow, seen: float | None) -> float:
    if seen is None:
        raise ContractError(
            f"the agent's row has reward {row.reward}, and no verifier was asked",
            cure="POST /verify to the row's resources server before the sandbox is removed",
        )
    if row.reward != seen:
        raise ContractError(f"the agent's row has reward {row.reward}, the verifier gave {seen}")
    return seen
