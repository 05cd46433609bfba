"""Damaged rollouts: whatever is cut, repeated, mixed or invented, nothing is guessed."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.evidence.observations import (
    AgentInvocation,
    InvocationStatus,
    Observations,
    ToolCall,
    ToolResultItem,
)
from sandbox.harnesses.base import NativeContext
from sandbox.harnesses.codex import CODEX
from tests.fixtures.native.recorded import rollout
from tests.unit.damage import put_anything_anywhere

NAME = rollout("tool_success").name
WHOLE = rollout("tool_success").read_bytes()
LINES = WHOLE.splitlines(keepends=True)
Json = dict[str, Any]


def parse(data: bytes) -> Observations:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / NAME).write_bytes(data)
        return CODEX.parse(Path(folder), NativeContext())


def root(told: Observations) -> AgentInvocation:
    return next(record for record in told.records if isinstance(record, AgentInvocation))


def codes(told: Observations) -> set[str]:
    return {gap.code for gap in told.gaps}


def changed(where: Callable[[Json], bool], change: Callable[[Json], object]) -> bytes:
    """Return the rollout with one change made to every record that fits."""
    out = []
    for line in LINES:
        record = json.loads(line)
        if where(record):
            change(record)
        out.append(json.dumps(record).encode() + b"\n")
    return b"".join(out)


def of(kind: str) -> Callable[[Json], bool]:
    return lambda record: record["payload"].get("type") == kind


ORIGINAL = parse(WHOLE)


@given(end=st.integers(min_value=0, max_value=len(WHOLE)))
def test_cut_at_any_byte_it_tells_what_came_before_and_no_end(end: int) -> None:
    told = parse(WHOLE[:end])
    whole_lines = WHOLE[:end].endswith(b"\n") or end == 0
    assert ("agent_artifact_record_unparseable" in codes(told)) == (not whole_lines)
    ended = end == len(WHOLE)
    assert (root(told).status is InvocationStatus.COMPLETED) == ended
    assert ("invocation_outcome_unavailable" in codes(told)) == (not ended)
    assert root(told).invocation_id == root(ORIGINAL).invocation_id
    short, long = root(told).conversation, root(ORIGINAL).conversation
    assert [item.type for item in short] == [item.type for item in long[: len(short)]]
    assert root(told).model_calls == root(ORIGINAL).model_calls[: len(root(told).model_calls)]


@given(lines=st.permutations(LINES))
def test_the_order_of_the_lines_does_not_matter(lines: list[bytes]) -> None:
    assert parse(b"".join(lines)) == ORIGINAL


@given(repeated=st.lists(st.sampled_from(LINES), min_size=1, max_size=5), data=st.data())
def test_a_repeated_line_changes_nothing_and_is_a_gap(
    repeated: list[bytes], data: st.DataObject
) -> None:
    told = parse(b"".join(data.draw(st.permutations([*LINES, *repeated]))))
    assert told.records == ORIGINAL.records
    assert codes(told) == {"agent_artifact_record_unparseable"}
    assert len(told.gaps) == len(repeated)


@given(lost=st.sets(st.integers(min_value=0, max_value=len(LINES) - 1)))
def test_lost_lines_never_invent_a_fact(lost: set[int]) -> None:
    told = parse(b"".join(line for n, line in enumerate(LINES) if n not in lost))
    facts = {record.model_dump_json() for record in ORIGINAL.records}
    for record in told.records:
        if isinstance(record, ToolCall) and record.model_dump_json() not in facts:
            assert record.status.value in ("unknown", "incomplete", "completed")
    if len(LINES) - 1 in lost:
        assert root(told).status is InvocationStatus.UNKNOWN
    asked = {r.tool_call_id for r in told.records if isinstance(r, ToolCall)}
    answered = {i.tool_call_id for i in root(told).conversation if isinstance(i, ToolResultItem)}
    assert answered <= asked


@given(noise=st.binary(max_size=80), at=st.integers(min_value=0, max_value=len(LINES)))
def test_noise_between_lines_is_a_gap(noise: bytes, at: int) -> None:
    line = noise.replace(b"\n", b" ") + b"\n"
    told = parse(b"".join([*LINES[:at], line, *LINES[at:]]))
    assert told.records == ORIGINAL.records
    assert bool(told.gaps) == bool(line.strip())


@given(number=st.integers(min_value=0, max_value=len(LINES) - 1), data=st.data())
def test_any_value_in_any_place_is_survived(number: int, data: st.DataObject) -> None:
    record = json.loads(LINES[number])
    put_anything_anywhere(record, data)
    lines = [*LINES[:number], json.dumps(record).encode() + b"\n", *LINES[number + 1 :]]
    told = parse(b"".join(lines))
    assert told.model_validate_json(told.model_dump_json()) == told


def test_a_lone_surrogate_is_replaced() -> None:
    told = parse(changed(of("task_complete"), lambda r: r["payload"].update(last_agent_message="")))
    assert told.records == ORIGINAL.records
    data = WHOLE.replace(b"All done.", b"\\ud800 done.")
    last = root(parse(data)).conversation[-1]
    assert getattr(last, "text", None) == "\ufffd done."


def test_a_record_of_an_unknown_type_is_a_gap() -> None:
    for extra in (
        {"timestamp": "2026-01-01T00:00:00Z", "ordinal": 99, "type": "new", "payload": {}},
        {
            "timestamp": "2026-01-01T00:00:00Z",
            "ordinal": 99,
            "type": "event_msg",
            "payload": {"type": "never_seen"},
        },
    ):
        told = parse(WHOLE + json.dumps(extra).encode() + b"\n")
        assert told.records == ORIGINAL.records
        assert codes(told) == {"agent_artifact_record_unparseable"}
        assert "never_seen" in told.gaps[0].detail or "new" in told.gaps[0].detail


def test_a_call_that_is_asked_for_twice_is_a_gap() -> None:
    call = next(json.loads(line) for line in LINES if b'"function_call"' in line)
    call["ordinal"] = 99
    told = parse(WHOLE + json.dumps(call).encode() + b"\n")
    assert told.records == ORIGINAL.records
    assert codes(told) == {"duplicate_tool_call"}


def test_an_answer_that_nobody_asked_for_is_a_gap() -> None:
    data = changed(
        of("function_call_output"), lambda r: r["payload"].update(call_id="somebodyelse")
    )
    told = parse(data)
    assert "tool_result_unowned" in codes(told)
    assert not [i for i in root(told).conversation if isinstance(i, ToolResultItem)]


def test_a_later_turn_that_did_not_end_is_unknown() -> None:
    started = next(json.loads(line) for line in LINES if b'"task_started"' in line)
    started["ordinal"] = 99
    told = parse(WHOLE + json.dumps(started).encode() + b"\n")
    assert root(told).status is InvocationStatus.UNKNOWN


def test_an_aborted_turn_is_incomplete() -> None:
    data = changed(
        of("task_complete"),
        lambda r: r.update(payload={"type": "turn_aborted", "reason": "interrupted"}),
    )
    assert root(parse(data)).status is InvocationStatus.INCOMPLETE
    assert root(parse(data)).error_type == "turn_aborted_interrupted"


@pytest.mark.parametrize(
    ("info", "error_type"),
    [
        ("internal_server_error", "internal_server_error"),
        (
            {"response_too_many_failed_attempts": {"http_status_code": 429}},
            "response_too_many_failed_attempts_429",
        ),
        ({"http_connection_failed": {"http_status_code": None}}, "http_connection_failed"),
        (None, "other"),
    ],
)
def test_an_error_is_named_by_codex(info: object, error_type: str) -> None:
    error = {"message": "said", "codex_error_info": info}
    told = parse(changed(of("task_complete"), lambda r: r["payload"].update(error=error)))
    assert (root(told).status, root(told).error_type) == (InvocationStatus.FAILED, error_type)
