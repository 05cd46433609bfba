"""The fields of NeMo Gym's rows, as its documented contract names them: types, values, absence.

A field marked optional may be absent or null, which both say that nobody could observe it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

FAILURE_PREFIX = "_ng_failure_"
_EPOCH_S = (1e9, 1e11)
"""Times are seconds since the epoch: milliseconds are above, seconds since a start are below."""


@dataclass(frozen=True)
class Field:
    """What one field may hold; ``says`` names it in a reason."""

    says: str
    fits: Callable[[Any], bool]
    optional: bool = False


Fields = Mapping[str, Field]


def wrong_fields(
    at: str, found: Mapping[str, Any], known: Fields, *, closed: bool = True
) -> Iterator[str]:
    """Yield what is wrong with the fields of an object; ``closed``: other keys are forbidden."""
    for key, field in known.items():
        value = found.get(key)
        if value is None:
            if not field.optional:
                yield f"{at}.{key} is missing"
        elif not field.fits(value):
            yield f"{at}.{key} is no {field.says}: {str(value)[:60]!r}"
    if closed:
        yield from (f"{at}.{key} is unknown" for key in found if key not in known)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _maybe(field: Field) -> Field:
    return Field(field.says, field.fits, optional=True)


def _one_of(*values: str) -> Field:
    return Field(f"one of {', '.join(values)}", lambda value: value in values)


_TEXT = Field("text", lambda value: isinstance(value, str))
_NAME = Field("name", lambda value: isinstance(value, str) and bool(value))
_YES_OR_NO = Field("boolean", lambda value: isinstance(value, bool))
_OBJECT = Field("object", lambda value: isinstance(value, dict))
_LIST = Field(
    "list of objects",
    lambda value: isinstance(value, list) and all(isinstance(one, dict) for one in value),
)
_ITEMS = Field(
    "list of items with a type",
    lambda value: (
        isinstance(value, list)
        and all(isinstance(one, dict) and isinstance(one.get("type"), str) for one in value)
    ),
)
_ANYTHING = Field("value", lambda _: True, optional=True)
_NUMBER = Field("finite number", _is_number)
_AMOUNT = Field("number of 0 or more", lambda value: _is_number(value) and value >= 0)
_COUNT = Field("count", lambda value: type(value) is int and value >= 0)
_POSITIVE = Field("count from 1", lambda value: type(value) is int and value >= 1)
_EXIT_CODE = Field("exit code", lambda value: type(value) is int)
_HTTP_STATUS = Field("HTTP status", lambda value: type(value) is int and 0 <= value <= 599)
_TIME = Field(
    "time in seconds since the epoch",
    lambda value: _is_number(value) and _EPOCH_S[0] <= value <= _EPOCH_S[1],
)
_SERVER = Field(
    "model server of type and name",
    lambda value: (
        isinstance(value, dict)
        and set(value) == {"type", "name"}
        and all(isinstance(one, str) for one in value.values())
    ),
)

GAP_CODES = (
    "model_call_reference_unmatched",
    "model_call_reference_ambiguous",
    "model_call_reference_conflict",
    "model_call_ownership_unavailable",
    "model_call_capture_no_records",
    "agent_artifact_unavailable",
    "agent_transcript_unavailable",
    "agent_artifact_record_unparseable",
    "agent_run_timeout",
    "sandbox_observation_unavailable",
    "harness_not_run",
    "invocation_outcome_unavailable",
    "subagent_hierarchy_unavailable",
    "subagent_parent_unavailable",
    "subagent_spawn_tool_unavailable",
    "tool_timing_unavailable",
    "tool_outcome_unavailable",
    "tool_result_unowned",
    "tool_call_identity_unavailable",
    "duplicate_tool_call",
    "usage_details_unavailable",
    "compaction_boundary_unavailable",
    "compaction_token_counts_unavailable",
)
ERROR_CATEGORIES = (
    "timeout",
    "rate_limit",
    "auth",
    "not_found",
    "client_error",
    "upstream_error",
    "stream_truncated",
    "incomplete",
    "connection",
)

_JOINED: Fields = {
    "task_id": _NAME,
    "rollout_id": _NAME,
    "ng_agent_observations": _OBJECT,
    "ng_trajectory": _OBJECT,
    "ng_model_call_capture": _OBJECT,
}
GRADED: Fields = {
    **_JOINED,
    "reward": _NUMBER,
    "evaluation_completed": _YES_OR_NO,
    "mask_sample": _YES_OR_NO,
    "response": _OBJECT,
    "failure_kind": _maybe(_NAME),
    "failure_reason": _maybe(_NAME),
}
FAILURE: Fields = {
    **_JOINED,
    f"{FAILURE_PREFIX}class": _NAME,
    f"{FAILURE_PREFIX}kind": _NAME,
    f"{FAILURE_PREFIX}stage": _one_of("seed", "agent", "cleanup", "verification"),
    f"{FAILURE_PREFIX}message": _NAME,
    f"{FAILURE_PREFIX}terminal": _YES_OR_NO,
    f"{FAILURE_PREFIX}partial_response": _maybe(_OBJECT),
}
BUNDLE: Fields = {"source": _NAME, "records": _LIST, "gaps": _LIST}
GAP: Fields = {
    "code": Field("documented gap code", lambda value: value in GAP_CODES),
    "invocation_id": _maybe(_NAME),
    "detail": _maybe(_TEXT),
}
REFERENCE: Fields = {
    "model_call_id": _maybe(_NAME),
    "model_ref": _maybe(_SERVER),
    "response_id": _maybe(_NAME),
}
_TOOL_CALL: Fields = {
    "invocation_id": _NAME,
    "tool_call_id": _NAME,
    "sandbox_id": _maybe(_NAME),
    "tool_name": _NAME,
    "started_at": _maybe(_TIME),
    "completed_at": _maybe(_TIME),
    "duration_ms": _maybe(_AMOUNT),
    "timing_source": _maybe(_one_of("executor", "artifact", "harness")),
    "status": _one_of("completed", "failed", "timeout", "cancelled", "incomplete", "unknown"),
    "error_type": _maybe(_NAME),
}
KINDS: Mapping[str, Fields] = {
    "agent_invocation": {
        "kind": _one_of("agent_invocation"),
        "invocation_id": _NAME,
        "parent_invocation_id": _maybe(_NAME),
        "spawned_by_tool_call_id": _maybe(_NAME),
        "status": _one_of("completed", "failed", "incomplete", "unknown"),
        "duration_ms": _maybe(_AMOUNT),
        "error_type": _maybe(_NAME),
        "model_calls": _LIST,
        "conversation": _ITEMS,
    },
    "tool_call": {"kind": _one_of("tool_call"), **_TOOL_CALL},
    "context_compaction": {
        "kind": _one_of("context_compaction"),
        "invocation_id": _NAME,
        "observed_at": _maybe(_TIME),
        "trigger": _maybe(_NAME),
        "tokens_before": _maybe(_COUNT),
        "tokens_after": _maybe(_COUNT),
        "outcome": _maybe(_NAME),
        "summary": _maybe(_TEXT),
        "first_kept_item_id": _maybe(_NAME),
        "before_model_call": _maybe(_OBJECT),
        "model_calls": _LIST,
        "after_model_call": _maybe(_OBJECT),
    },
    "sandbox": {
        "kind": _one_of("sandbox"),
        "role": _one_of("agent", "verifier", "environment"),
        "provider": _NAME,
        "sandbox_id": _NAME,
        "outcome": _one_of(
            "completed", "failed", "timeout", "oom", "sandbox_error", "cancelled", "unknown"
        ),
        "exit_code": _maybe(_EXIT_CODE),
        "wall_time_s": _maybe(_AMOUNT),
        "cpu_time_s": _maybe(_AMOUNT),
        "peak_memory_mib": _maybe(_AMOUNT),
        "resource_usage_source": _maybe(_NAME),
        "error_type": _maybe(_NAME),
    },
}
TOKENS: Fields = {
    f"{what}_tokens": _maybe(_COUNT) for what in ("input", "output", "total", "reasoning", "cached")
}
CAPTURED_CALL: Fields = {
    "model_call_id": _NAME,
    "model_ref": _SERVER,
    "dialect": _one_of("responses", "chat", "messages"),
    "started_at": _TIME,
    "completed_at": _TIME,
    "request": _ANYTHING,
    "response": _ANYTHING,
    "response_id": _maybe(_NAME),
    "status_code": _HTTP_STATUS,
    "response_status": _maybe(_NAME),
    "finish_reason": _maybe(_NAME),
    "error_category": _maybe(_one_of(*ERROR_CATEGORIES)),
    "tokens": _maybe(_OBJECT),
    "client_session_id": _maybe(_NAME),
}
CAPTURE: Fields = {"rollout_id": _NAME, "calls": _LIST}
TRAJECTORY: Fields = {
    "schema_version": _one_of("1.0"),
    "task_id": _NAME,
    "rollout_id": _NAME,
    "invocations": _LIST,
    "turns": _LIST,
    "model_calls": _LIST,
    "tool_calls": _LIST,
    "gaps": _LIST,
}
TURN: Fields = {
    "invocation_id": _NAME,
    "task_id": _NAME,
    "rollout_id": _NAME,
    "turn_no": _POSITIVE,
    "timestamp": _TIME,
    "question": _ANYTHING,
    "answer": _ANYTHING,
    "reasoning_content": _ANYTHING,
    "resolved": _YES_OR_NO,
    "step_count": _COUNT,
    "model_calls": _LIST,
}
TRAJECTORY_CALL: Fields = {
    "model_call_id": _NAME,
    "started_at": _TIME,
    "completed_at": _TIME,
    "duration_ms": _AMOUNT,
    "request": _ANYTHING,
    "response": _ANYTHING,
    "response_metadata": _OBJECT,
    "token_stats": _maybe(_OBJECT),
}
TRAJECTORY_TOOL: Fields = {**_TOOL_CALL, "output": _maybe(_TEXT)}
