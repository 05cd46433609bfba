"""Exchanges as captured calls, and their digests."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.evidence.capture import capture, capture_record, error_category, is_completed
from sandbox.evidence.exchanges import Exchange
from sandbox.evidence.tally import canonical, digest, digest_of


def exchange(**changes: Any) -> Exchange:
    facts: dict[str, Any] = {
        "exchange_id": "e1",
        "rollout_id": "r",
        "dialect": "responses",
        "method": "POST",
        "path": "/rollout/r/v1/responses",
        "headers": {},
        "streamed": True,
        "started_at": 1.0,
        "completed_at": 2.0,
        "request": {"input": "x"},
        "status_code": 200,
        "response": {"status": "completed"},
        "response_id": "resp1",
        "finish_reason": "completed",
    }
    return Exchange(**{**facts, **changes})


@pytest.mark.parametrize(
    ("changes", "category"),
    [
        ({}, None),
        ({"finish_reason": None}, None),
        ({"disconnected": True}, None),
        ({"status_code": 400, "fault": "status_400"}, "client_error"),
        ({"status_code": 401}, "auth"),
        ({"status_code": 403}, "auth"),
        ({"status_code": 404}, "not_found"),
        ({"status_code": 408}, "timeout"),
        ({"status_code": 429}, "rate_limit"),
        ({"status_code": 500}, "upstream_error"),
        ({"status_code": 504}, "timeout"),
        ({"status_code": 0, "finish_reason": None, "fault": "hold"}, "timeout"),
        ({"status_code": 0, "finish_reason": None, "disconnected": True}, "connection"),
        ({"finish_reason": None, "disconnected": True}, "connection"),
        ({"finish_reason": None, "disconnected": True, "fault": "stall_stream"}, "timeout"),
        ({"finish_reason": None, "fault": "cut_stream"}, "stream_truncated"),
        ({"finish_reason": None, "fault": "malformed"}, "stream_truncated"),
        ({"finish_reason": None, "fault": "stream_error"}, "upstream_error"),
        ({"finish_reason": "length", "fault": "length"}, "incomplete"),
        ({"finish_reason": "max_output_tokens"}, "incomplete"),
        ({"finish_reason": "stop", "fault": "empty"}, None),
    ],
    ids=str,
)
def test_error_category(changes: dict[str, Any], category: str | None) -> None:
    assert error_category(exchange(**changes)) == category


def test_calls_are_in_order_of_their_start_and_probes_are_none() -> None:
    calls = capture(
        [
            exchange(exchange_id="late", started_at=5.0),
            exchange(exchange_id="probe", dialect="none", method="GET"),
            exchange(exchange_id="early", started_at=0.5),
        ]
    )
    assert [call.model_call_id for call in calls] == ["early", "late"]
    assert calls[0].response_status == "completed"


def test_what_counts_as_completed() -> None:
    calls = capture(
        [
            exchange(exchange_id="a"),
            exchange(exchange_id="b", status_code=500),
            exchange(exchange_id="c", finish_reason="length"),
            exchange(exchange_id="d", status_code=0, finish_reason=None),
        ]
    )
    assert [is_completed(call) for call in calls] == [True, False, True, False]
    assert capture_record("r", calls).metrics.failed_calls == 2


def test_the_digest_ignores_the_order_of_keys_and_nothing_else() -> None:
    one = exchange(request={"a": 1, "b": [1, 2]})
    assert digest_of(one) == digest_of(exchange(request={"b": [1, 2], "a": 1}, exchange_id="e2"))
    different = [
        exchange(request={"a": 1, "b": [2, 1]}),
        exchange(request={"a": 1, "b": [1, 2]}, path="/x"),
        exchange(request={"a": 1, "b": [1, 2]}, method="PUT"),
        exchange(request={"a": 1, "b": [1, 2]}, status_code=500),
    ]
    assert len({digest_of(one), *map(digest_of, different)}) == 5


def test_the_digest_takes_text_that_is_no_utf8() -> None:
    assert digest(method="post", path="/", request="\udc80", status_code=200)
    assert canonical({"ä": None}) == '{"ä":null}'
