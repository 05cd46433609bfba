"""Damaged transcripts of Claude Code: whatever is cut, repeated or invented, nothing is guessed."""

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
from sandbox.harnesses.claude_code import CLAUDE_CODE
from tests.fixtures.native.recorded import HERE
from tests.unit.damage import JSON, put_anything_anywhere

CASE = HERE / "claude-code" / "tool_exit_7"
(FILE,) = CASE.glob("????????-*.jsonl")
WHOLE = FILE.read_bytes()
LINES = WHOLE.splitlines(keepends=True)
SHELLS = (CASE / "shells").read_bytes()
STDOUT = (CASE / "stdout").read_bytes()
Json = dict[str, Any]


def parse(data: bytes, stdout: bytes = b"") -> Observations:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / FILE.name).write_bytes(data)
        (Path(folder) / "shells").write_bytes(SHELLS)
        (Path(folder) / "stdout").write_bytes(stdout)
        return CLAUDE_CODE.parse(Path(folder), NativeContext())


def root(told: Observations) -> AgentInvocation:
    return next(record for record in told.records if isinstance(record, AgentInvocation))


def codes(told: Observations) -> set[str]:
    return {gap.code for gap in told.gaps}


def is_row(line: bytes) -> bool:
    return json.loads(line).get("type") in ("user", "assistant")


def blocks(row: Json, kind: str) -> list[Json]:
    content = row.get("message", {}).get("content", [])
    return [b for b in content if isinstance(b, dict) and b.get("type") == kind]


def changed(kind: str, change: Callable[[Json, Json], object]) -> bytes:
    """Return the transcript with a change made to every row with such a block, and the block."""
    out = []
    for line in LINES:
        row = json.loads(line)
        for block in blocks(row, kind):
            change(row, block)
        out.append(json.dumps(row).encode() + b"\n")
    return b"".join(out)


ORIGINAL = parse(WHOLE)


def test_the_original_is_whole() -> None:
    assert ORIGINAL.gaps == ()
    assert root(ORIGINAL).status is InvocationStatus.COMPLETED
    assert parse(WHOLE, STDOUT).records == ORIGINAL.records


@settings(deadline=None)
@given(end=st.integers(min_value=0, max_value=len(WHOLE)))
def test_cut_at_any_byte_it_tells_what_came_before(end: int) -> None:
    told = parse(WHOLE[:end])
    whole_lines = WHOLE[:end].endswith(b"\n") or end == 0
    assert ("agent_artifact_record_unparseable" in codes(told)) == (not whole_lines)
    assert root(told).invocation_id == root(ORIGINAL).invocation_id
    answered = WHOLE[:end].count(b'"stop_reason":"end_turn"') == 1 and whole_lines
    assert (root(told).status is InvocationStatus.COMPLETED) <= (b"end_turn" in WHOLE[:end])
    if answered:
        assert root(told).status is InvocationStatus.COMPLETED
    short, long = root(told).conversation, root(ORIGINAL).conversation
    assert short == long[: len(short)]
    assert root(told).model_calls == root(ORIGINAL).model_calls[: len(root(told).model_calls)]


@settings(deadline=None)
@given(repeated=st.lists(st.sampled_from(list(filter(is_row, LINES))), min_size=1, max_size=5))
def test_a_repeated_row_changes_nothing_and_is_a_gap(repeated: list[bytes]) -> None:
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


ROWS = [number for number, line in enumerate(LINES) if is_row(line)]


@settings(deadline=None)
@given(number=st.sampled_from(ROWS), data=st.data())
def test_any_value_in_any_place_is_survived(number: int, data: st.DataObject) -> None:
    record = json.loads(LINES[number])
    put_anything_anywhere(record, data)
    lines = [*LINES[:number], json.dumps(record).encode() + b"\n", *LINES[number + 1 :]]
    told = parse(b"".join(lines))
    assert told.model_validate_json(told.model_dump_json()) == told


EVENTS = STDOUT.splitlines()
RESULT = next(json.loads(line) for line in EVENTS if b'"type":"result"' in line)


@settings(deadline=None)
@given(key=st.sampled_from(sorted(RESULT)), value=JSON)
def test_any_value_in_the_result_is_survived(key: str, value: object) -> None:
    told = parse(WHOLE, json.dumps({**RESULT, key: value}).encode() + b"\n")
    assert told.model_validate_json(told.model_dump_json()) == told


def test_a_lone_surrogate_is_replaced() -> None:
    last = root(parse(WHOLE.replace(b"All done.", b"\\ud800 done."))).conversation[-1]
    assert getattr(last, "text", None) == "\ufffd done."


def test_a_row_of_an_unknown_type_is_a_gap() -> None:
    told = parse(WHOLE + b'{"type":"new","uuid":"1"}\n')
    assert told.records == ORIGINAL.records
    assert [gap.code for gap in told.gaps] == ["agent_artifact_record_unparseable"]
    assert "unknown row new" in told.gaps[0].detail


def test_a_call_that_is_asked_for_twice_is_a_gap() -> None:
    call = next(json.loads(line) for line in LINES if b'"tool_use"' in line and is_row(line))
    last = next(n for n, line in enumerate(LINES) if b'"end_turn"' in line and is_row(line))
    again = json.dumps({**call, "uuid": "another"}).encode() + b"\n"
    told = parse(b"".join([*LINES[:last], again, *LINES[last:]]))
    assert codes(told) == {"duplicate_tool_call"}
    assert root(told) == root(ORIGINAL)


def test_an_answer_that_nobody_asked_for_is_a_gap() -> None:
    told = parse(changed("tool_result", lambda _, block: block.update(tool_use_id="other")))
    assert codes(told) == {"tool_result_unowned", "tool_outcome_unavailable"}
    assert not [i for i in root(told).conversation if isinstance(i, ToolResultItem)]


def test_a_question_after_the_last_answer_is_open() -> None:
    question = next(json.loads(line) for line in LINES if b'"role":"user"' in line)
    told = parse(WHOLE + json.dumps({**question, "uuid": "another"}).encode() + b"\n")
    assert root(told).status is InvocationStatus.UNKNOWN


@pytest.mark.parametrize(
    ("content", "error", "status", "code", "output"),
    [
        ("Exit code 7\na\nb", True, "failed", 7, "a\nb"),
        ("Exit code 7", True, "failed", 7, ""),
        ("Exit code 7", False, "completed", 0, "Exit code 7"),
        ("(Bash completed with no output)", False, "completed", 0, ""),
        ([{"type": "text", "text": "Exit code 2\nc"}], True, "failed", 2, "c"),
        ("The tool broke", True, "failed", None, "The tool broke"),
    ],
)
def test_the_exit_code_is_the_first_line_of_an_error(
    content: object, error: bool, status: str, code: int | None, output: str
) -> None:
    def tell(row: Json, block: Json) -> None:
        block.update(content=content, is_error=error)
        row.update(toolUseResult={"stdout": "", "stderr": "", "interrupted": False})

    told = parse(changed("tool_result", tell))
    call = next(record for record in told.records if isinstance(record, ToolCall))
    result = next(i for i in root(told).conversation if isinstance(i, ToolResultItem))
    assert (call.status.value, result.exit_code, result.output) == (status, code, output)


@pytest.mark.parametrize(
    ("returned", "status", "error_type"),
    [
        ({"interrupted": True}, "cancelled", "interrupted"),
        ({"returnCodeInterpretation": "No matches found"}, "failed", "exit_code"),
        ({"backgroundTaskId": "b1"}, "incomplete", None),
        ({"isAsync": True}, "incomplete", None),
        ("Error: told twice", "completed", None),
    ],
)
def test_the_tool_s_own_form_says_more(
    returned: object, status: str, error_type: str | None
) -> None:
    def tell(row: Json, block: Json) -> None:
        block.update(content="a", is_error=False)
        row.update(toolUseResult=returned)

    told = parse(changed("tool_result", tell))
    call = next(record for record in told.records if isinstance(record, ToolCall))
    assert (call.status.value, call.error_type) == (status, error_type)


@pytest.mark.parametrize(
    ("status", "summary", "outcome"),
    [
        ("completed", "completed (exit code 0)", ("completed", None, 0)),
        ("failed", "failed with exit code 7", ("failed", "exit_code", 7)),
        ("failed", "failed", ("failed", "failed", None)),
        ("killed", "was stopped", ("cancelled", "killed_by_harness", None)),
        ("vanished", "", ("unknown", "vanished", None)),
    ],
)
def test_a_notice_tells_how_a_command_in_the_background_ended(
    status: str, summary: str, outcome: tuple[str, str | None, int | None]
) -> None:
    data = changed(
        "tool_result", lambda row, _: row.update(toolUseResult={"backgroundTaskId": "b"})
    )
    data = data.replace(b"Exit code 7", b"Running").replace(
        b'"is_error": true', b'"is_error": false'
    )
    name = next(r.tool_call_id for r in ORIGINAL.records if isinstance(r, ToolCall))
    notice = {
        "type": "user",
        "uuid": "notice",
        "timestamp": "2030-01-01T00:00:00Z",
        "origin": {"kind": "task-notification"},
        "message": {
            "role": "user",
            "content": f"<task-notification><tool-use-id>{name}</tool-use-id>"
            f"<status>{status}</status><summary>{summary}</summary></task-notification>",
        },
    }
    told = parse(data + json.dumps(notice).encode() + b"\n")
    call = next(record for record in told.records if isinstance(record, ToolCall))
    result = next(i for i in root(told).conversation if isinstance(i, ToolResultItem))
    assert (call.status.value, call.error_type, result.exit_code) == outcome


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, ("completed", None)),
        ({"terminal_reason": "max_turns", "is_error": True}, ("incomplete", "max_turns")),
        ({"is_error": True, "api_error_status": 429}, ("failed", "http_429")),
        ({"is_error": True, "api_error": "max_output_tokens"}, ("incomplete", "max_output_tokens")),
        ({"is_error": True, "terminal_reason": "model_error"}, ("failed", "model_error")),
        ({"is_error": True, "terminal_reason": None}, ("failed", "error")),
        ({"terminal_reason": "prompt_too_long"}, ("failed", "prompt_too_long")),
    ],
)
def test_the_result_tells_how_the_run_ended(changes: Json, outcome: tuple[str, str | None]) -> None:
    told = root(parse(WHOLE, json.dumps({**RESULT, **changes}).encode() + b"\n"))
    assert (told.status.value, told.error_type) == outcome


def test_a_turn_that_began_after_the_result_is_open() -> None:
    """A notice from the background starts one."""
    (begun,) = [line for line in EVENTS if b'"subtype":"init"' in line]
    question = next(json.loads(line) for line in LINES if b'"role":"user"' in line)
    more = WHOLE + json.dumps({**question, "uuid": "another"}).encode() + b"\n"
    assert root(parse(more, STDOUT)).status is InvocationStatus.COMPLETED
    assert root(parse(more, STDOUT + begun + b"\n")).status is InvocationStatus.UNKNOWN
