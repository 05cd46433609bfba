"""A recorded cell as an ATIF trajectory: one step for each message and each turn of the agent.

A step of the agent is a turn of the joined trajectory, retries included, so its tokens, calls and
results are joined by exact identifiers. Nothing is made up: a turn that got no answer is a step
with an empty message that says so in ``extra``, and gaps travel in the root's ``extra``.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from itertools import count

from pydantic import JsonValue

from sandbox.evidence import payloads
from sandbox.evidence.cell import CellRecord
from sandbox.evidence.exchanges import CapturedCall
from sandbox.evidence.folder import CellFiles
from sandbox.evidence.observations import (
    AgentInvocation,
    ConversationItem,
    MessageItem,
    ToolRequestItem,
)
from sandbox.evidence.rows import FailureRow, Row, TrajectoryToolCall, TrajectoryTurn
from sandbox.report.atif import (
    Agent,
    Extra,
    FinalMetrics,
    Metrics,
    Observation,
    ObservationResult,
    Step,
    SubagentTrajectoryRef,
    ToolCall,
    Trajectory,
)


def atif(files: CellFiles) -> Trajectory | None:
    """Return the trajectory of a cell's root invocation; None when it has no row or no root."""
    row = files.row
    if row is None:
        return None
    roots = [i for i in row.ng_trajectory.invocations if i.parent_invocation_id is None]
    if len(roots) != 1:
        return None
    root = _Export(files.cell, row).trajectory(roots[0])
    return None if root is None else root.model_copy(update={"extra": _root_extra(files.cell, row)})


class _Export:
    def __init__(self, cell: CellRecord, row: Row) -> None:
        self._cell = cell
        self._row = row
        self._calls = {call.model_call_id: call for call in row.ng_model_call_capture.calls}

    def trajectory(self, invocation: AgentInvocation) -> Trajectory | None:
        """Return the trajectory of one invocation with its subagents; None without any step."""
        found = [self.trajectory(child) for child in self._children(invocation)]
        subagents = tuple(one for one in found if one is not None)
        steps = tuple(self._steps(invocation, {one.trajectory_id for one in subagents}))
        if not steps:
            return None
        return Trajectory(
            session_id=self._row.rollout_id,
            trajectory_id=invocation.invocation_id,
            agent=self._agent(steps),
            steps=steps,
            final_metrics=_totals(steps),
            subagent_trajectories=subagents or None,
            extra={"status": invocation.status.value},
        )

    def _children(self, parent: AgentInvocation) -> list[AgentInvocation]:
        every = self._row.ng_trajectory.invocations
        return [one for one in every if one.parent_invocation_id == parent.invocation_id]

    def _agent(self, steps: Sequence[Step]) -> Agent:
        pin = self._cell.pin
        return Agent(
            name=self._cell.harness,
            version=pin.version if pin is not None else "unknown",
            model_name=next((step.model_name for step in steps if step.model_name), None),
            extra={"platform": pin.platform} if pin is not None else None,
        )

    def _steps(self, invocation: AgentInvocation, embedded: set[str]) -> Iterator[Step]:
        numbers = count(1)
        seen: list[ConversationItem] = []
        turns = self._row.ng_trajectory.turns
        for turn in (one for one in turns if one.invocation_id == invocation.invocation_id):
            calls = self._of(turn)
            history = payloads.history(calls[0].dialect, calls[0].request) if calls else ()
            for item in history:
                if isinstance(item, MessageItem) and item.role != "assistant" and item not in seen:
                    source = "user" if item.role == "user" else "system"
                    yield Step(step_id=next(numbers), source=source, message=item.text)
                    seen.append(item)
            yield self._turn(next(numbers), turn, calls, embedded)

    def _of(self, turn: TrajectoryTurn) -> list[CapturedCall]:
        names = [ref.model_call_id for ref in turn.model_calls]
        return [self._calls[name] for name in names if name in self._calls]

    def _turn(
        self, number: int, turn: TrajectoryTurn, calls: Sequence[CapturedCall], embedded: set[str]
    ) -> Step:
        texts = [item.text for item in turn.answer if isinstance(item, MessageItem)]
        requests = [item for item in turn.answer if isinstance(item, ToolRequestItem)]
        odd: dict[str, JsonValue] = {
            item.tool_call_id: item.arguments for item in requests if _object(item) is None
        }
        extra: Extra = {"turn_no": turn.turn_no, "resolved": turn.resolved}
        extra |= {"statuses": [call.status_code for call in calls]}
        extra |= {"arguments_that_are_no_object": odd} if odd else {}
        return Step(
            step_id=number,
            timestamp=_timestamp(turn.timestamp),
            source="agent",
            model_name=_model(calls),
            message="\n".join(texts),
            reasoning_content=turn.reasoning_content,
            tool_calls=tuple(_tool_call(item) for item in requests) or None,
            observation=self._observation(turn, requests, embedded),
            metrics=_metrics(calls),
            llm_call_count=len(calls),
            extra=extra,
        )

    def _observation(
        self, turn: TrajectoryTurn, requests: Sequence[ToolRequestItem], embedded: set[str]
    ) -> Observation | None:
        done = {
            call.tool_call_id: call
            for call in self._row.ng_trajectory.tool_calls
            if call.invocation_id == turn.invocation_id
        }
        results = tuple(
            self._result(done[item.tool_call_id], embedded)
            for item in requests
            if item.tool_call_id in done
        )
        return Observation(results=results) if results else None

    def _result(self, call: TrajectoryToolCall, embedded: set[str]) -> ObservationResult:
        spawned = tuple(
            SubagentTrajectoryRef(trajectory_id=one.invocation_id, session_id=self._row.rollout_id)
            for one in self._row.ng_trajectory.invocations
            if one.spawned_by_tool_call_id == call.tool_call_id and one.invocation_id in embedded
        )
        return ObservationResult(
            source_call_id=call.tool_call_id,
            content=call.output,
            subagent_trajectory_ref=spawned or None,
        )


def _root_extra(cell: CellRecord, row: Row) -> Extra:
    extra: Extra = {"cell_id": cell.cell_id, "task_id": row.task_id}
    if isinstance(row, FailureRow):
        extra["failure"] = {"stage": row.failure_stage, "message": row.failure_message}
    else:
        extra["reward"] = row.reward
    gaps = row.ng_trajectory.gaps
    if gaps:
        extra["gaps"] = [gap.model_dump(mode="json") for gap in gaps]
    return extra


def _object(item: ToolRequestItem) -> dict[str, JsonValue] | None:
    try:
        value = json.loads(item.arguments)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _tool_call(item: ToolRequestItem) -> ToolCall:
    return ToolCall(
        tool_call_id=item.tool_call_id, function_name=item.tool_name, arguments=_object(item) or {}
    )


def _model(calls: Sequence[CapturedCall]) -> str | None:
    for call in calls:
        if isinstance(call.request, dict) and isinstance(call.request.get("model"), str):
            return str(call.request["model"])
    return None


def _metrics(calls: Sequence[CapturedCall]) -> Metrics | None:
    """Return the token counts of the attempt that was answered with some."""
    counted = [call.tokens for call in calls if call.tokens is not None]
    if not counted:
        return None
    tokens = counted[-1]
    reasoning = tokens.reasoning_tokens
    return Metrics(
        prompt_tokens=tokens.input_tokens,
        completion_tokens=tokens.output_tokens,
        cached_tokens=tokens.cached_tokens,
        extra=None if reasoning is None else {"reasoning_tokens": reasoning},
    )


def _totals(steps: Sequence[Step]) -> FinalMetrics:
    found = [step.metrics for step in steps if step.metrics is not None]
    return FinalMetrics(
        total_prompt_tokens=_sum([one.prompt_tokens for one in found]),
        total_completion_tokens=_sum([one.completion_tokens for one in found]),
        total_cached_tokens=_sum([one.cached_tokens for one in found]),
        total_steps=len(steps),
    )


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [number for number in counts if number is not None]
    return sum(known) if known else None


def _timestamp(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat().replace("+00:00", "Z")
