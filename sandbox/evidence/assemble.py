"""Rows from what was observed: the join and the trajectory are made here, once, for both kinds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import JsonValue

from sandbox.evidence.capture import capture, capture_record
from sandbox.evidence.exchanges import Exchange
from sandbox.evidence.expectations import Stage
from sandbox.evidence.join import join
from sandbox.evidence.observations import Observations
from sandbox.evidence.rows import REJECTED, FailureRow, ModelCallCapture, SuccessRow, Trajectory
from sandbox.evidence.trajectory import trajectory_of


@dataclass(frozen=True, kw_only=True)
class Assembled:
    """The evidence that both kinds of row carry, joined."""

    task_id: str
    rollout_id: str
    observations: Observations
    trajectory: Trajectory
    capture: ModelCallCapture

    def success(
        self, *, reward: float, response: JsonValue, rejection: str | None = None
    ) -> SuccessRow:
        """Return the row of an episode that its verifier graded.

        ``rejection``: why the model refused the task at once, where it did.
        """
        return SuccessRow(
            task_id=self.task_id,
            rollout_id=self.rollout_id,
            reward=reward,
            evaluation_completed=True,
            mask_sample=rejection is not None,
            response=response,
            failure_kind=None if rejection is None else REJECTED,
            failure_reason=rejection,
            ng_agent_observations=self.observations,
            ng_trajectory=self.trajectory,
            ng_model_call_capture=self.capture,
        )

    def failure(
        self,
        *,
        kind: str,
        failure_class: str = "episode_failed",
        stage: Stage,
        message: str,
        terminal: bool = False,
        partial_response: JsonValue = None,
    ) -> FailureRow:
        """Return the row of an episode without a grade."""
        return FailureRow(
            task_id=self.task_id,
            rollout_id=self.rollout_id,
            failure_class=failure_class,
            failure_kind=kind,
            failure_stage=stage,
            failure_message=message,
            failure_terminal=terminal,
            failure_partial_response=partial_response,
            ng_agent_observations=self.observations,
            ng_trajectory=self.trajectory,
            ng_model_call_capture=self.capture,
        )


def assemble(
    *, task_id: str, rollout_id: str, observations: Observations, exchanges: Iterable[Exchange]
) -> Assembled:
    """Join what the adapter observed with the exchanges that the model server saw."""
    calls = capture(exchanges)
    joined = join(observations, calls)
    return Assembled(
        task_id=task_id,
        rollout_id=rollout_id,
        observations=joined.observations,
        trajectory=trajectory_of(joined, calls, task_id=task_id, rollout_id=rollout_id),
        capture=capture_record(rollout_id, calls),
    )
