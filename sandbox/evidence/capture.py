"""Exchanges in the row's form: one captured call for each model request, failed ones too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sandbox.evidence import payloads
from sandbox.evidence.exchanges import CapturedCall, ErrorCategory, Exchange
from sandbox.evidence.observations import ModelRef, ReasoningItem
from sandbox.evidence.rows import CaptureMetrics, ModelCallCapture

MODEL_SERVER = ModelRef(type="responses_api_models", name="scripted_model")
"""The model server of a cell, as references in observations name it."""

_BY_STATUS: dict[int, ErrorCategory] = {
    401: "auth",
    403: "auth",
    404: "not_found",
    408: "timeout",
    429: "rate_limit",
    504: "timeout",
}
_LENGTH_STOPS = {"length", "max_tokens", "max_output_tokens", "incomplete"}


def capture(
    exchanges: Iterable[Exchange], *, model_ref: ModelRef = MODEL_SERVER
) -> tuple[CapturedCall, ...]:
    """Return the model calls among the exchanges in order of their start.

    Requests of no dialect (a probe of another path) are no model calls and are left out; so are
    those of the verifier, which are none of the agent's.
    """
    calls = [
        _call(exchange, model_ref)
        for exchange in exchanges
        if exchange.dialect != "none" and exchange.caller == "agent"
    ]
    return tuple(sorted(calls, key=lambda call: (call.started_at, call.model_call_id)))


def capture_record(rollout_id: str, calls: tuple[CapturedCall, ...]) -> ModelCallCapture:
    """Return the row's ``ng_model_call_capture`` of these calls."""
    failed = sum(not is_completed(call) for call in calls)
    return ModelCallCapture(
        rollout_id=rollout_id,
        calls=calls,
        metrics=CaptureMetrics(calls=len(calls), failed_calls=failed),
    )


def is_completed(call: CapturedCall) -> bool:
    """Whether the model answered: a 2xx reply that arrived whole, a length stop included."""
    return 200 <= call.status_code < 300 and call.error_category in (None, "incomplete")


def says_something(call: CapturedCall) -> bool:
    """Whether an answered call holds a text or a tool call; reasoning alone says nothing."""
    return is_completed(call) and any(
        not isinstance(item, ReasoningItem) for item in payloads.answer(call.dialect, call.response)
    )


def is_rejection(calls: Sequence[CapturedCall]) -> bool:
    """Whether the model refused the task at once (HTTP 400), and never gave any output."""
    return bool(calls) and all(call.status_code == 400 for call in calls)


def error_category(exchange: Exchange) -> ErrorCategory | None:
    """Name what went wrong with an exchange, from its status and how its reply ended."""
    status = exchange.status_code
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 400:
        return "client_error" if status < 500 else "upstream_error"
    return _category_of_reply(exchange)


def _category_of_reply(exchange: Exchange) -> ErrorCategory | None:
    """Judge a reply without an error status: one that carries its own end arrived whole."""
    fault = exchange.fault or ""
    if exchange.finish_reason is not None:
        return "incomplete" if exchange.finish_reason in _LENGTH_STOPS else None
    if fault == "stream_error":
        return "upstream_error"
    if fault == "hold" or fault.startswith("stall"):
        return "timeout"
    if exchange.disconnected or not exchange.status_code:
        return "connection"
    return "stream_truncated" if fault else None


def _call(exchange: Exchange, model_ref: ModelRef) -> CapturedCall:
    assert exchange.dialect != "none"
    status = exchange.response.get("status") if isinstance(exchange.response, dict) else None
    return CapturedCall(
        model_call_id=exchange.exchange_id,
        model_ref=model_ref,
        dialect=exchange.dialect,
        started_at=exchange.started_at,
        completed_at=exchange.completed_at,
        request=exchange.request,
        response=exchange.response,
        response_id=exchange.response_id,
        status_code=exchange.status_code,
        response_status=status if isinstance(status, str) else None,
        finish_reason=exchange.finish_reason,
        error_category=error_category(exchange),
        tokens=exchange.usage,
        client_session_id=exchange.client_session_id,
    )
