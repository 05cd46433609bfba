"""Damaged sessions of Pi: whatever is cut, repeated, mixed or invented, nothing is guessed."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
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
from sandbox.harnesses.pi import PI
from tests.fixtures.native.recorded import HERE
from tests.unit.damage import put_anything_anywhere

CASE = HERE / "pi" / "tool_exit_7"
(FILE,) = CASE.glob("*.jsonl")
WHOLE = FILE.read_bytes()
LINES = WHOLE.splitlines(keepends=True)
SHELLS = (CASE / "shells").read_bytes()
Json = dict[str, Any]


def parse(data: bytes) -> Observations:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / FILE.name).write_bytes(data)
        (Path(folder) / "shells").write_bytes(SHELLS)
        return PI.parse(Path(folder), NativeContext())


def root(told: Observations) -> AgentInvocation:
    return next(record for record in told.records if isinstance(record, AgentInvocation))


def codes(told: Observations) -> set[str]:
    return {gap.code for gap in told.gaps}


def changed(role: str, change: Callable[[Json], object]) -> bytes:
    """Return the session with one change made to every message of a role."""
    out = []
    for line in LINES:
        entry = json.loads(line)
        if entry.get("message", {}).get("role") == role:
            change(entry["message"])
        out.append(json.dumps(entry).encode() + b"\n")
    return b"".join(out)


ORIGINAL = parse(WHOLE)


def test_the_original_is_whole() -> None:
    assert ORIGINAL.gaps == ()
    assert root(ORIGINAL).status is InvocationStatus.COMPLETED


@settings(deadline=None)
@given(end=st.integers(min_value=0, max_value=len(WHOLE)))
def test_cut_at_any_byte_it_tells_what_came_before_and_no_end(end: int) -> None:
    told = parse(WHOLE[:end])
    assert root(told).invocation_id == root(ORIGINAL).invocation_id
    ended = end == len(WHOLE)
    assert (root(told).status is InvocationStatus.COMPLETED) == ended
    assert ("invocation_outcome_unavailable" in codes(told)) == (not ended)
    short, long = root(told).conversation, root(ORIGINAL).conversation
    assert short == long[: len(short)]
    assert root(told).model_calls == root(ORIGINAL).model_calls[: len(root(told).model_calls)]


@settings(deadline=None)
@given(repeated=st.lists(st.sampled_from(LINES), min_size=1, max_size=5))
def test_a_repeated_line_changes_nothing_and_is_a_gap(repeated: list[bytes]) -> None:
    told = parse(b"".join([*LINES, *repeated]))
    assert told.records == ORIGINAL.records
    assert codes(told) == {"agent_artifact_record_unparseable"}
    assert len(told.gaps) == len(repeated)


@settings(deadline=None)
@given(lost=st.sets(st.integers(min_value=0, max_value=len(LINES) - 1)))
def test_lost_lines_never_invent_a_fact(lost: set[int]) -> None:
    told = parse(b"".join(line for n, line in enumerate(LINES) if n not in lost))
    facts = {record.model_dump_json() for record in ORIGINAL.records}
    for record in told.records:
        if isinstance(record, ToolCall) and record.model_dump_json() not in facts:
            assert record.status.value == "incomplete"
    if len(LINES) - 1 in lost:
        assert root(told).status is InvocationStatus.UNKNOWN
    asked = {r.tool_call_id for r in told.records if isinstance(r, ToolCall)}
    answered = {i.tool_call_id for i in root(told).conversation if isinstance(i, ToolResultItem)}
    assert answered <= asked


@settings(deadline=None)
@given(noise=st.binary(max_size=80), at=st.integers(min_value=0, max_value=len(LINES)))
def test_noise_between_lines_is_a_gap(noise: bytes, at: int) -> None:
    line = noise.replace(b"\n", b" ") + b"\n"
    told = parse(b"".join([*LINES[:at], line, *LINES[at:]]))
    assert told.records == ORIGINAL.records
    assert bool(told.gaps) == bool(line.strip())


@settings(deadline=None)
@given(number=st.integers(min_value=0, max_value=len(LINES) - 1), data=st.data())
def test_any_value_in_any_place_is_survived(number: int, data: st.DataObject) -> None:
    record = json.loads(LINES[number])
    put_anything_anywhere(record, data)
    lines = [*LINES[:number], json.dumps(record).encode() + b"\n", *LINES[number + 1 :]]
    told = parse(b"".join(lines))
    assert told.model_validate_json(told.model_dump_json()) == told


def test_a_lone_surrogate_is_replaced() -> None:
    last = root(parse(WHOLE.replace(b"All done.", b"\\ud800 done."))).conversation[-1]
    assert getattr(last, "text", None) == "\ufffd done."


def test_an_entry_of_an_unknown_type_is_a_gap() -> None:
    extra = {"type": "new", "id": "1", "parentId": None, "timestamp": "2026-01-01T00:00:00Z"}
    told = parse(WHOLE + json.dumps(extra).encode() + b"\n")
    assert told.records == ORIGINAL.records
    assert [gap.code for gap in told.gaps] == ["agent_artifact_record_unparseable"]
    assert "unknown entry new" in told.gaps[0].detail


def test_a_message_of_an_unknown_role_is_a_gap() -> None:
    told = parse(changed("user", lambda message: message.update(role="judge")))
    assert codes(told) == {"agent_artifact_record_unparseable"}
    assert "unknown role judge" in told.gaps[0].detail


def test_a_call_that_is_asked_for_twice_is_a_gap() -> None:
    call = next(json.loads(line) for line in LINES if b'"toolCall"' in line)
    lines = [*LINES[:-1], json.dumps({**call, "id": "another"}).encode() + b"\n", LINES[-1]]
    told = parse(b"".join(lines))
    assert told.records == ORIGINAL.records
    assert codes(told) == {"duplicate_tool_call"}


def test_an_answer_that_nobody_asked_for_is_a_gap() -> None:
    told = parse(changed("toolResult", lambda message: message.update(toolCallId="other")))
    assert codes(told) == {"tool_result_unowned", "tool_outcome_unavailable"}
    assert not [i for i in root(told).conversation if isinstance(i, ToolResultItem)]


def test_a_question_after_the_last_answer_is_open() -> None:
    question = next(json.loads(line) for line in LINES if b'"role":"user"' in line)
    told = parse(WHOLE + json.dumps({**question, "id": "another"}).encode() + b"\n")
    assert root(told).status is InvocationStatus.UNKNOWN


def test_the_identity_is_in_the_name_too() -> None:
    told = parse(b"".join(LINES[1:]))
    assert root(told).invocation_id == root(ORIGINAL).invocation_id
    assert codes(told) == {"agent_artifact_record_unparseable"}


LATE = (
    "Command timed out after 1.5 seconds. The shell exited with code 0 after 0.1 seconds, but "
    "background processes it started kept writing output until the timeout."
)


@pytest.mark.parametrize(
    ("text", "status", "code", "body"),
    [
        ("a\n\n\nCommand exited with code 7", "failed", 7, "a\n"),
        ("Command exited with code 3\n\nCommand exited with code 7", "failed", 7, None),
        ("(no output)\n\nCommand exited with code 1", "failed", 1, ""),
        ("Command timed out after 1 seconds", "timeout", None, ""),
        (f"a\n\n{LATE}", "timeout", None, "a"),
        ("a\n\nCommand aborted", "cancelled", None, "a"),
        ("a\n\nCommand terminated without an exit code", "unknown", None, "a"),
        ("Command exited with code 7 and more", "failed", None, None),
        ("Working directory does not exist: /task", "failed", None, None),
    ],
)
def test_the_end_of_a_command_is_the_last_line_of_its_result(
    text: str, status: str, code: int | None, body: str | None
) -> None:
    def fail(message: Json) -> None:
        message.update(isError=True, content=[{"type": "text", "text": text}])

    told = parse(changed("toolResult", fail))
    call = next(record for record in told.records if isinstance(record, ToolCall))
    result = next(i for i in root(told).conversation if isinstance(i, ToolResultItem))
    assert (call.status.value, result.exit_code) == (status, code)
    if body is not None:
        assert result.output == body
    assert ("tool_outcome_unavailable" in codes(told)) == (status == "unknown")


def test_a_command_that_only_talks_about_codes_succeeded() -> None:
    text = [{"type": "text", "text": "a\n\nCommand exited with code 7"}]
    told = parse(changed("toolResult", lambda m: m.update(isError=False, content=text)))
    call = next(record for record in told.records if isinstance(record, ToolCall))
    assert call.status.value == "completed"


@pytest.mark.parametrize(
    ("message", "error_type"),
    [
        ('429: {"message":"slow down"}', "http_429"),
        ("terminated: other side closed (UND_ERR_SOCKET)", "UND_ERR_SOCKET"),
        ("Connection error.", "error"),
        (None, "error"),
    ],
)
def test_an_error_is_named_by_its_message(message: str | None, error_type: str) -> None:
    data = changed("assistant", lambda m: m.update(stopReason="error", errorMessage=message))
    told = root(parse(data))
    assert (told.status, told.error_type) == (InvocationStatus.FAILED, error_type)
