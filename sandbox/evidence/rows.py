"""The row that an episode leaves: a rollout or a failure, in NeMo Gym's key names.

Key names and groups are NeMo Gym's (``ng_trajectory``, ``ng_agent_observations``,
``ng_model_call_capture``, ``_ng_failure_*``), so that its tools read our rows. A failure row has no
reward at all: a task zero is only ever a verifier's zero.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, JsonValue

from sandbox.evidence.exchanges import CapturedCall
from sandbox.evidence.expectations import Stage
from sandbox.evidence.observations import (
    AgentInvocation,
    ConversationItem,
    Gap,
    ModelCallRef,
    ModelRef,
    Observations,
    ToolStatus,
)
from sandbox.evidence.records import Record

REJECTED = "rejected"
"""``failure_kind`` of a graded row whose task the model refused at once."""


class ResponseMetadata(Record):
    """How a model call ended (TE-1)."""

    model_ref: ModelRef
    response_id: str | None
    status_code: int
    response_status: str | None
    finish_reason: str | None
    error_category: str | None
    client_session_id: str | None


class TokenStats(Record):
    """Token counts of a model call (TE-2); a count that was not sent stays None."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None


class TrajectoryModelCall(Record):
    """One captured model call inside the trajectory."""

    model_call_id: str
    started_at: float
    completed_at: float
    duration_ms: float
    request: JsonValue
    response: JsonValue
    response_metadata: ResponseMetadata
    token_stats: TokenStats | None


class TrajectoryToolCall(Record):
    """One tool call with the output that its transcript holds (None: no result recorded)."""

    invocation_id: str
    tool_call_id: str
    sandbox_id: str | None
    tool_name: str
    started_at: float | None
    completed_at: float | None
    duration_ms: float | None
    timing_source: str | None
    status: ToolStatus
    error_type: str | None
    output: str | None


class TrajectoryTurn(Record):
    """One step of an invocation: what the model was asked, every attempt, and the answer.

    Retries are attempts of one turn: ``model_calls`` holds all of them, in time order.
    ``question`` is the newest user text in the request, ``step_count`` the number of turns that
    the invocation has taken on that question, ``resolved`` whether an attempt was answered.
    """

    invocation_id: str
    task_id: str
    rollout_id: str
    turn_no: int = Field(ge=1)
    timestamp: float
    question: str
    answer: tuple[ConversationItem, ...]
    reasoning_content: str | None
    resolved: bool
    step_count: int = Field(ge=1)
    model_calls: tuple[ModelCallRef, ...]


class Trajectory(Record):
    """Invocations, turns, model calls and tool calls joined by exact identifiers (version 1.0)."""

    schema_version: Literal["1.0"] = "1.0"
    task_id: str
    rollout_id: str
    invocations: tuple[AgentInvocation, ...] = ()
    turns: tuple[TrajectoryTurn, ...] = ()
    model_calls: tuple[TrajectoryModelCall, ...] = ()
    tool_calls: tuple[TrajectoryToolCall, ...] = ()
    gaps: tuple[Gap, ...] = ()


class CaptureMetrics(Record):
    """Sums over the captured calls."""

    calls: int
    failed_calls: int


class ModelCallCapture(Record):
    """Every model call of the rollout, whatever its status."""

    rollout_id: str
    calls: tuple[CapturedCall, ...] = ()
    metrics: CaptureMetrics
    gaps: tuple[Gap, ...] = ()


class SuccessRow(Record):
    """The row of an episode that a verifier graded (``rollouts.jsonl``).

    ``failure_kind`` is ``REJECTED`` where the model refused the task at once, with its reason; such
    a row is masked, since there is nothing in it to train on.
    """

    task_id: str
    rollout_id: str
    reward: float
    evaluation_completed: bool
    mask_sample: bool
    response: JsonValue
    failure_kind: str | None = None
    failure_reason: str | None = None
    ng_agent_observations: Observations
    ng_trajectory: Trajectory
    ng_model_call_capture: ModelCallCapture


class FailureRow(Record):
    """The row of an episode without a grade (``failures.jsonl``); it has no reward.

    ``failure_terminal``: trying the same episode again cannot help.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True
    )

    task_id: str
    rollout_id: str
    failure_class: str = Field(alias="_ng_failure_class")
    failure_kind: str = Field(alias="_ng_failure_kind")
    failure_stage: Stage = Field(alias="_ng_failure_stage")
    failure_message: str = Field(alias="_ng_failure_message")
    failure_terminal: bool = Field(alias="_ng_failure_terminal")
    failure_partial_response: JsonValue = Field(default=None, alias="_ng_failure_partial_response")
    ng_agent_observations: Observations
    ng_trajectory: Trajectory
    ng_model_call_capture: ModelCallCapture


Row = SuccessRow | FailureRow
