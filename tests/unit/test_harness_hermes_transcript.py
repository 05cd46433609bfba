"""Hermes' recorded databases and journals: what each says, and what it cannot say."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.evidence.observations import (
    InvocationStatus,
    MessageItem,
    Observations,
    ToolResultItem,
)
from sandbox.harnesses.base import NativeContext
from sandbox.harnesses.hermes import HERMES, JOURNAL, SHELLS
from tests.fixtures.native.recorded import cases, lay_out
from tests.unit.told import codes, root, tool_calls

COMPLETED, FAILED = InvocationStatus.COMPLETED, InvocationStatus.FAILED
INCOMPLETE, UNKNOWN = InvocationStatus.INCOMPLETE, InvocationStatus.UNKNOWN

OUTCOMES = {
    "bad_arguments": (UNKNOWN, None),  # it exits 0 and keeps neither the answers nor a reason
    "error_400": (FAILED, "BadRequestError"),
    "killed_by_term": (INCOMPLETE, "interrupted"),
    "killed_waiting": (INCOMPLETE, "interrupted"),
    "retry_500": (COMPLETED, None),
    "tool_exit_7": (COMPLETED, None),
    "tool_success": (COMPLETED, None),
    "two_in_one_reply": (COMPLETED, None),
    "unknown_tool": (COMPLETED, None),
}
# status, error type, exit code, start of the output of each tool call in order
TOOLS: dict[str, list[tuple[str, str | None, int | None, str | None]]] = {
    "bad_arguments": [],
    "error_400": [],
    "killed_by_term": [("cancelled", "interrupted", None, None)],
    "killed_waiting": [],
    "retry_500": [("completed", None, 0, "first line ")],
    "tool_exit_7": [("failed", "exit_code", 7, "first line "), ("completed", None, 0, "first")],
    "tool_success": [("completed", None, 0, "first line "), ("completed", None, 0, "first")],
    "two_in_one_reply": [("completed", None, 0, "first"), ("failed", "exit_code", 7, "first")],
    "unknown_tool": [("failed", "invalid_call", None, "Tool 'no_such_tool' does not exist")],
}
GAPS = {"bad_arguments": ["invocation_outcome_unavailable"]}


def parse(case: str, folder: Path) -> Observations:
    return HERMES.parse(lay_out("hermes", case, folder), NativeContext())


def test_every_case_is_looked_at() -> None:
    assert cases("hermes") == sorted(OUTCOMES) == sorted(TOOLS)


@pytest.mark.parametrize("case", OUTCOMES)
class TestEveryCase:
    def test_the_outcome_is_what_happened(self, case: str, tmp_path: Path) -> None:
        found = root(parse(case, tmp_path))
        assert (found.status, found.error_type) == OUTCOMES[case]

    def test_each_tool_call_is_what_happened(self, case: str, tmp_path: Path) -> None:
        told = parse(case, tmp_path)
        results = {
            item.tool_call_id: item
            for item in root(told).conversation
            if isinstance(item, ToolResultItem)
        }
        calls = tool_calls(told)
        assert len(calls) == len(TOOLS[case])
        for call, (status, error_type, exit_code, start) in zip(calls, TOOLS[case], strict=True):
            result = results.get(call.tool_call_id)
            assert (call.status.value, call.error_type) == (status, error_type)
            assert (result is None) == (start is None)
            if result is not None and start is not None:
                assert result.exit_code == exit_code
                assert result.output.startswith(start)

    def test_what_nothing_tells_is_a_gap(self, case: str, tmp_path: Path) -> None:
        assert codes(parse(case, tmp_path)) == GAPS.get(case, [])

    def test_calls_have_the_times_of_the_journal(self, case: str, tmp_path: Path) -> None:
        for call in tool_calls(parse(case, tmp_path)):
            if call.error_type != "invalid_call":
                assert call.started_at is not None
                assert call.completed_at is not None
                assert call.started_at <= call.completed_at
                assert call.timing_source == "harness"

    def test_the_evidence_is_left_as_it_was(self, case: str, tmp_path: Path) -> None:
        folder = lay_out("hermes", case, tmp_path)
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        HERMES.parse(folder, NativeContext())
        assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_conversation_is_in_the_models_order(tmp_path: Path) -> None:
    items = root(parse("two_in_one_reply", tmp_path)).conversation
    assert [item.type for item in items] == [
        "message",
        "tool_request",
        "tool_request",
        "tool_result",
        "tool_result",
        "message",
    ]
    assert isinstance(items[-1], MessageItem)
    assert items[-1].text == "The task is done."


def test_without_the_journal_times_and_the_failure_are_gaps(tmp_path: Path) -> None:
    folder = lay_out("hermes", "tool_exit_7", tmp_path / "tool")
    (folder / JOURNAL).unlink()
    told = HERMES.parse(folder, NativeContext())
    assert root(told).status is COMPLETED
    assert codes(told) == ["agent_artifact_unavailable", *["tool_timing_unavailable"] * 2]
    folder = lay_out("hermes", "error_400", tmp_path / "error")
    (folder / JOURNAL).unlink()
    told = HERMES.parse(folder, NativeContext())
    assert root(told).status is UNKNOWN


def test_a_shell_without_receipt_is_a_gap(tmp_path: Path) -> None:
    folder = lay_out("hermes", "tool_success", tmp_path)
    (folder / SHELLS).unlink()
    assert codes(HERMES.parse(folder, NativeContext())) == ["agent_artifact_unavailable"] * 2


def test_without_a_database_there_is_no_invocation(tmp_path: Path) -> None:
    folder = lay_out("hermes", "tool_success", tmp_path)
    for path in (folder / "hermes").iterdir():
        path.unlink()
    told = HERMES.parse(folder, NativeContext())
    assert told.records == ()
    assert codes(told) == ["agent_transcript_unavailable"]
