"""Damaged sessions of Qwen Code: cut, repeated, mixed or invented, nothing is guessed."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.evidence.observations import (
    AgentInvocation,
    InvocationStatus,
    Observations,
    ToolCall,
    ToolResultItem,
)
from sandbox.harnesses.base import NativeContext
from sandbox.harnesses.qwen_code import QWEN_CODE
from tests.fixtures.native.recorded import HERE
from tests.unit.damage import JSON

CASE = HERE / "qwen-code" / "tool_exit_7"
(FILE,) = CASE.glob("*.jsonl")
WHOLE = FILE.read_bytes()
LINES = WHOLE.splitlines(keepends=True)
STDOUT = (CASE / "stdout").read_bytes()
SHELLS = (CASE / "shells").read_bytes()
UNPARSEABLE = "agent_artifact_record_unparseable"


def parse(data: bytes, stdout: bytes = STDOUT) -> Observations:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / FILE.name).write_bytes(data)
        (Path(folder) / "stdout").write_bytes(stdout)
        (Path(folder) / "shells").write_bytes(SHELLS)
        return QWEN_CODE.parse(Path(folder), NativeContext())


def root(told: Observations) -> AgentInvocation:
    return next(record for record in told.records if isinstance(record, AgentInvocation))


def codes(told: Observations) -> set[str]:
    return {gap.code for gap in told.gaps}


def tool(told: Observations) -> ToolCall:
    return next(record for record in told.records if isinstance(record, ToolCall))


ORIGINAL = parse(WHOLE)


def test_the_original_is_whole() -> None:
    assert ORIGINAL.gaps == ()
    assert root(ORIGINAL).status is InvocationStatus.COMPLETED


@settings(deadline=None)
@given(end=st.integers(min_value=0, max_value=len(WHOLE)))
def test_cut_at_any_byte_it_tells_what_came_before(end: int) -> None:
    told = parse(WHOLE[:end])
    assert root(told).invocation_id == root(ORIGINAL).invocation_id
    short, long = root(told).conversation, root(ORIGINAL).conversation
    assert short == long[: len(short)]
    assert root(told).model_calls == root(ORIGINAL).model_calls[: len(root(told).model_calls)]
    for call in (record for record in told.records if isinstance(record, ToolCall)):
        assert call in ORIGINAL.records or call.status.value == "incomplete" or codes(told)


@settings(deadline=None)
@given(end=st.integers(min_value=0, max_value=len(STDOUT) - 1))
def test_a_stdout_that_is_cut_tells_no_end(end: int) -> None:
    told = parse(WHOLE, STDOUT[:end])
    assert root(told).status is InvocationStatus.UNKNOWN
    assert codes(told) == {"invocation_outcome_unavailable"}


@settings(deadline=None)
@given(repeated=st.lists(st.sampled_from(LINES), min_size=1, max_size=5))
def test_a_repeated_line_changes_nothing_and_is_a_gap(repeated: list[bytes]) -> None:
    told = parse(b"".join([*LINES, *repeated]))
    assert told.records == ORIGINAL.records
    assert [gap.code for gap in told.gaps] == [UNPARSEABLE] * len(repeated)


@settings(deadline=None)
@given(lost=st.sets(st.integers(min_value=0, max_value=len(LINES) - 1)))
def test_lost_lines_never_invent_a_result(lost: set[int]) -> None:
    told = parse(b"".join(line for n, line in enumerate(LINES) if n not in lost))
    asked = {r.tool_call_id for r in told.records if isinstance(r, ToolCall)}
    answered = {i.tool_call_id for i in root(told).conversation if isinstance(i, ToolResultItem)}
    assert answered <= asked
    facts = {(r.tool_call_id, r.status) for r in ORIGINAL.records if isinstance(r, ToolCall)}
    for call in (record for record in told.records if isinstance(record, ToolCall)):
        assert (call.tool_call_id, call.status) in facts or call.status.value == "incomplete"


@settings(deadline=None)
@given(noise=st.binary(max_size=80), at=st.integers(min_value=0, max_value=len(LINES)))
def test_noise_between_lines_is_a_gap(noise: bytes, at: int) -> None:
    line = noise.replace(b"\n", b" ") + b"\n"
    told = parse(b"".join([*LINES[:at], line, *LINES[at:]]))
    assert told.records == ORIGINAL.records
    assert bool(told.gaps) == bool(line.strip())


PLACES = [
    (number, key)
    for number, line in enumerate(LINES)
    for key in json.loads(line)
    if key not in ("parentUuid", "cwd", "version", "provenance", "model")
]


@settings(deadline=None)
@given(place=st.sampled_from(PLACES), value=JSON)
def test_any_value_anywhere_never_raises(place: tuple[int, str], value: Any) -> None:
    number, key = place
    record = json.loads(LINES[number]) | {key: value}
    told = parse(
        b"".join([*LINES[:number], json.dumps(record).encode() + b"\n", *LINES[number + 1 :]])
    )
    assert root(told).status in (InvocationStatus.COMPLETED, InvocationStatus.UNKNOWN)


def changed(**display: object) -> Observations:
    """Parse the session with the first command's recorded end changed."""
    out, done = [], False
    for line in LINES:
        record = json.loads(line)
        if record["type"] == "tool_result" and not done:
            record["toolCallResult"]["resultDisplay"] |= display
            done = True
        out.append(json.dumps(record).encode() + b"\n")
    return parse(b"".join(out))


@pytest.mark.parametrize(
    ("code", "outcome", "status"),
    [
        (0, "completed", "completed"),
        (1, "completed", "failed"),  # grep found nothing: no error for Qwen Code
        (None, "timed_out", "timeout"),
        (None, "cancelled", "cancelled"),
        (None, "failed", "failed"),
        (None, "something else", "unknown"),
    ],
)
def test_a_commands_end_is_its_exit_code_then_its_outcome(
    code: int | None, outcome: str, status: str
) -> None:
    told = changed(exitCode=code, outcome=outcome)
    assert tool(told).status.value == status
    assert ("tool_outcome_unavailable" in codes(told)) == (status == "unknown")


@pytest.mark.parametrize("display", [{"truncated": True}, {"output": "not what was told"}])
def test_of_a_result_that_was_shortened_the_model_s_text_is_kept(
    display: dict[str, object],
) -> None:
    result = next(i for i in root(changed(**display)).conversation if isinstance(i, ToolResultItem))
    assert result.output.startswith("Command: printf")
    assert result.exit_code == 7


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"is_error": True}, "failed"),
        ({"is_error": False, "subtype": "error_max_turns"}, "unknown"),
        ({"is_error": None}, "unknown"),
        ({"session_id": "another"}, "unknown"),
    ],
)
def test_only_a_whole_success_is_one(change: dict[str, object], status: str) -> None:
    lines = STDOUT.splitlines(keepends=True)
    last = json.dumps(json.loads(lines[-1]) | change).encode() + b"\n"
    assert root(parse(WHOLE, b"".join([*lines[:-1], last]))).status.value == status
