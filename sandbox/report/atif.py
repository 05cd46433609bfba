"""Trajectories in the Agent Trajectory Interchange Format, version ATIF-v1.7.

Format: Harbor's RFC 0001 (``rfcs/0001-trajectory-format.md``) with the changes of version 1.7
(``trajectory_id``, embedded ``subagent_trajectories`` that references resolve by that id, and
``llm_call_count``). The models below are the format's objects with the fields we fill; their
validators are the rules that it states: step ids count from 1, results answer a call of their own
step, only agent steps have calls and metrics, references to subagents resolve.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, JsonValue, model_validator

from sandbox.evidence.records import Record

VERSION: Literal["ATIF-v1.7"] = "ATIF-v1.7"
Extra = dict[str, JsonValue]


class Agent(Record):
    """The agent system of a trajectory."""

    name: str
    version: str
    model_name: str | None = None
    extra: Extra | None = None


class ToolCall(Record):
    """One tool call; ``arguments`` is always an object."""

    tool_call_id: str
    function_name: str
    arguments: Extra


class SubagentTrajectoryRef(Record):
    """Points at an embedded trajectory."""

    trajectory_id: str
    session_id: str | None = None


class ObservationResult(Record):
    """What came back for one call."""

    source_call_id: str | None = None
    content: str | None = None
    subagent_trajectory_ref: tuple[SubagentTrajectoryRef, ...] | None = None


class Observation(Record):
    """What came back after a step."""

    results: tuple[ObservationResult, ...]


class Metrics(Record):
    """Token counts of one step; what was not sent is left out."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    extra: Extra | None = None


class Step(Record):
    """One message, or one turn of the agent."""

    step_id: int = Field(ge=1)
    timestamp: str | None = None
    source: Literal["system", "user", "agent"]
    model_name: str | None = None
    message: str
    reasoning_content: str | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    observation: Observation | None = None
    metrics: Metrics | None = None
    llm_call_count: int | None = Field(default=None, ge=0)
    extra: Extra | None = None

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        agents = (self.model_name, self.reasoning_content, self.tool_calls, self.metrics)
        if self.source != "agent" and any(value is not None for value in agents):
            raise ValueError(
                f"step {self.step_id} is of the {self.source} and has an agent's fields"
            )
        calls = {call.tool_call_id for call in self.tool_calls or ()}
        results = self.observation.results if self.observation is not None else ()
        for result in results:
            if result.source_call_id is not None and result.source_call_id not in calls:
                raise ValueError(f"step {self.step_id} answers the unknown {result.source_call_id}")
        return self


class FinalMetrics(Record):
    """Sums over the steps."""

    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_steps: int


class Trajectory(Record):
    """One agent's run, its subagents embedded."""

    schema_version: Literal["ATIF-v1.7"] = VERSION
    session_id: str
    trajectory_id: str
    agent: Agent
    steps: tuple[Step, ...] = Field(min_length=1)
    notes: str | None = None
    final_metrics: FinalMetrics | None = None
    subagent_trajectories: tuple[Trajectory, ...] | None = None
    extra: Extra | None = None

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if [step.step_id for step in self.steps] != list(range(1, len(self.steps) + 1)):
            raise ValueError("the step ids do not count from 1")
        embedded = {one.trajectory_id for one in self.subagent_trajectories or ()}
        for step in self.steps:
            for result in step.observation.results if step.observation is not None else ():
                for ref in result.subagent_trajectory_ref or ():
                    if ref.trajectory_id not in embedded:
                        raise ValueError(f"no embedded trajectory {ref.trajectory_id}")
        return self

    def text(self) -> str:
        """Return the file's text."""
        return self.model_dump_json(indent=2, exclude_none=True) + "\n"
