"""The trajectory of an episode: invocations, turns, model calls and tool calls, joined exactly.

A turn is one step of an invocation. Model calls of one invocation that show the model the same
history are attempts of one turn: a retry repeats the history, an answer or a tool result changes
it. Calls that a compaction made are owned by the invocation but are no turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sandbox.evidence import payloads
from sandbox.evidence.capture import is_completed
from sandbox.evidence.exchanges import CapturedCall, TokenUsage
from sandbox.evidence.join import Join, invocations_of, join, reference
from sandbox.evidence.observations import (
    AgentInvocation,
    ContextCompaction,
    ConversationItem,
    Observations,
    ReasoningItem,
    ToolCall,
    ToolResultItem,
)
from sandbox.evidence.rows import (
    ResponseMetadata,
    TokenStats,
    Trajectory,
    TrajectoryModelCall,
    TrajectoryToolCall,
    TrajectoryTurn,
)


def trajectory(
    observations: Observations,
    calls: Sequence[CapturedCall],
    *,
    task_id: str,
    rollout_id: str,
) -> Trajectory:
    """Join and build the trajectory of one rollout."""
    return trajectory_of(join(observations, calls), calls, task_id=task_id, rollout_id=rollout_id)


def trajectory_of(
    joined: Join, calls: Sequence[CapturedCall], *, task_id: str, rollout_id: str
) -> Trajectory:
    """Build the trajectory from a join that was already made over the same calls."""
    ordered = sorted(calls, key=lambda call: (call.started_at, call.model_call_id))
    invocations = invocations_of(joined.observations)
    helpers = _helper_calls(joined.observations)
    turns = [
        turn
        for invocation in invocations
        for turn in _turns(
            invocation.invocation_id,
            [
                call
                for call in joined.calls_of(invocation.invocation_id, ordered)
                if call.model_call_id not in helpers
            ],
            task_id=task_id,
            rollout_id=rollout_id,
        )
    ]
    return Trajectory(
        task_id=task_id,
        rollout_id=rollout_id,
        invocations=tuple(invocations),
        turns=tuple(turns),
        model_calls=tuple(_model_call(call) for call in ordered),
        tool_calls=_tool_calls(joined.observations, invocations),
        gaps=joined.observations.gaps,
    )


def _helper_calls(observations: Observations) -> set[str]:
    return {
        ref.model_call_id
        for record in observations.records
        if isinstance(record, ContextCompaction)
        for ref in record.model_calls
        if ref.model_call_id is not None
    }


def _turns(
    invocation_id: str, calls: Iterable[CapturedCall], *, task_id: str, rollout_id: str
) -> list[TrajectoryTurn]:
    attempts: dict[tuple[ConversationItem, ...], list[CapturedCall]] = {}
    for call in calls:
        attempts.setdefault(payloads.history(call.dialect, call.request), []).append(call)
    turns: list[TrajectoryTurn] = []
    for number, (history, tries) in enumerate(attempts.items(), start=1):
        asked = payloads.question(history)
        answer = _answer(tries)
        turns.append(
            TrajectoryTurn(
                invocation_id=invocation_id,
                task_id=task_id,
                rollout_id=rollout_id,
                turn_no=number,
                timestamp=tries[0].started_at,
                question=asked,
                answer=tuple(item for item in answer if not isinstance(item, ReasoningItem)),
                reasoning_content=payloads.reasoning(answer),
                resolved=any(is_completed(call) for call in tries),
                step_count=1 + sum(turn.question == asked for turn in turns),
                model_calls=tuple(reference(call) for call in tries),
            )
        )
    return turns


def _answer(tries: Sequence[CapturedCall]) -> tuple[ConversationItem, ...]:
    """Return the answer of the last attempt that was answered."""
    answered = [call for call in tries if is_completed(call)]
    return payloads.answer(answered[-1].dialect, answered[-1].response) if answered else ()


def _model_call(call: CapturedCall) -> TrajectoryModelCall:
    return TrajectoryModelCall(
        model_call_id=call.model_call_id,
        started_at=call.started_at,
        completed_at=call.completed_at,
        duration_ms=(call.completed_at - call.started_at) * 1000,
        request=call.request,
        response=call.response,
        response_metadata=ResponseMetadata(
            model_ref=call.model_ref,
            response_id=call.response_id,
            status_code=call.status_code,
            response_status=call.response_status,
            finish_reason=call.finish_reason,
            error_category=call.error_category,
            client_session_id=call.client_session_id,
        ),
        token_stats=_token_stats(call.tokens),
    )


def _token_stats(tokens: TokenUsage | None) -> TokenStats | None:
    if tokens is None:
        return None
    return TokenStats(
        prompt_tokens=tokens.input_tokens,
        completion_tokens=tokens.output_tokens,
        total_tokens=tokens.total_tokens,
        reasoning_tokens=tokens.reasoning_tokens,
        cached_tokens=tokens.cached_tokens,
    )


def _tool_calls(
    observations: Observations, invocations: Iterable[AgentInvocation]
) -> tuple[TrajectoryToolCall, ...]:
    outputs = {
        (invocation.invocation_id, item.tool_call_id): item.output
        for invocation in invocations
        for item in invocation.conversation
        if isinstance(item, ToolResultItem)
    }
    return tuple(
        TrajectoryToolCall(
            **record.model_dump(exclude={"kind"}),
            output=outputs.get((record.invocation_id, record.tool_call_id)),
        )
        for record in observations.records
        if isinstance(record, ToolCall)
    )
