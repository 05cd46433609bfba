"""Codex's recorded rollouts: what each says, and what it cannot say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.evidence.observations import (
    ContextCompaction,
    InvocationStatus,
    MessageItem,
    ModelRef,
    Observations,
    ToolRequestItem,
    ToolStatus,
)
from sandbox.harnesses.base import NativeContext
from sandbox.harnesses.codex import CODEX
from tests.fixtures.native.recorded import cases, lay_out, rollout
from tests.unit.told import invocations, results, tool_calls

COMPLETED, FAILED = InvocationStatus.COMPLETED, InvocationStatus.FAILED
INCOMPLETE, UNKNOWN = InvocationStatus.INCOMPLETE, InvocationStatus.UNKNOWN

OUTCOMES = {
    "bad_arguments": (COMPLETED, None),
    "compaction": (COMPLETED, None),
    "error_400": (FAILED, "other"),
    "killed_by_kill": (UNKNOWN, None),
    "killed_by_term": (UNKNOWN, None),
    "left_running": (COMPLETED, None),
    "output_limit": (INCOMPLETE, "max_output_tokens"),
    "polled": (COMPLETED, None),
    "retry_500": (COMPLETED, None),
    "subagent": (COMPLETED, None),
    "tool_exit_7": (COMPLETED, None),
    "tool_success": (COMPLETED, None),
    "two_in_one_reply": (COMPLETED, None),
}
# status, error type, exit code, output of each tool call in order
TOOLS: dict[str, list[tuple[str, str | None, int | None, str | None]]] = {
    "bad_arguments": [
        (
            "unknown",
            None,
            None,
            "failed to parse function arguments: EOF while parsing a value at line 1 column 8",
        )
    ],
    "compaction": [("completed", None, 0, "hi\n")],
    "error_400": [],
    "killed_by_kill": [("incomplete", None, None, None)],
    "killed_by_term": [("incomplete", None, None, None)],
    "left_running": [("cancelled", "killed_by_harness", None, "begin\n")],
    "output_limit": [],
    "polled": [("failed", "exit_code", 4, "begin\n"), ("failed", "exit_code", 4, "end\n")],
    "retry_500": [("completed", None, 0, "good\n")],
    "tool_exit_7": [("failed", "exit_code", 7, "bad\n"), ("completed", None, 0, "good\n")],
    "tool_success": [("completed", None, 0, "begin\nend\n"), ("completed", None, 0, "err\naé\n")],
    "two_in_one_reply": [("failed", "exit_code", 3, "a\n"), ("completed", None, 0, "b\n")],
}
RESPONSES = {
    "error_400": [],
    "killed_by_term": ["resp0001abc"],
    "retry_500": ["resp0002abc", "resp0003abc"],
    "tool_success": ["resp0001abc", "resp0002abc", "resp0003abc"],
}
GAPS = {
    "bad_arguments": ["tool_outcome_unavailable"],
    "compaction": ["compaction_token_counts_unavailable"],
    "killed_by_kill": ["invocation_outcome_unavailable", "tool_outcome_unavailable"],
    "killed_by_term": ["invocation_outcome_unavailable", "tool_outcome_unavailable"],
}


def parse(case: str, folder: Path, context: NativeContext | None = None) -> Observations:
    return CODEX.parse(lay_out("codex", case, folder), context or NativeContext())


def test_every_recorded_case_is_expected() -> None:
    assert cases("codex") == sorted(OUTCOMES)


@pytest.mark.parametrize("case", sorted(OUTCOMES))
def test_outcome(case: str, tmp_path: Path) -> None:
    root = invocations(parse(case, tmp_path))[0]
    assert (root.status, root.error_type) == OUTCOMES[case]
    assert root.parent_invocation_id is None


@pytest.mark.parametrize("case", sorted(TOOLS))
def test_tools(case: str, tmp_path: Path) -> None:
    told = parse(case, tmp_path)
    answers = results(told)
    seen = [
        (
            call.status.value,
            call.error_type,
            answers[call.tool_call_id].exit_code if call.tool_call_id in answers else None,
            answers[call.tool_call_id].output if call.tool_call_id in answers else None,
        )
        for call in tool_calls(told)
    ]
    assert seen == TOOLS[case]


@pytest.mark.parametrize("case", sorted(OUTCOMES))
def test_gaps(case: str, tmp_path: Path) -> None:
    assert sorted(gap.code for gap in parse(case, tmp_path).gaps) == GAPS.get(case, [])


@pytest.mark.parametrize("case", sorted(RESPONSES))
def test_model_calls_are_named_by_response_id(case: str, tmp_path: Path) -> None:
    root = invocations(parse(case, tmp_path))[0]
    assert [ref.response_id for ref in root.model_calls] == RESPONSES[case]


def test_a_named_model_server_is_in_every_reference(tmp_path: Path) -> None:
    server = ModelRef(type="responses_api_models", name="scripted_model")
    root = invocations(parse("tool_success", tmp_path, NativeContext(model_ref=server)))[0]
    assert {ref.model_ref for ref in root.model_calls} == {server}


def test_the_invocation_id_is_the_thread_that_the_header_names(tmp_path: Path) -> None:
    root = invocations(parse("tool_success", tmp_path))[0]
    assert root.invocation_id in rollout("tool_success").name
    assert CODEX.capabilities.session_header == "thread-id"


def test_the_conversation_is_in_order(tmp_path: Path) -> None:
    root = invocations(parse("tool_success", tmp_path))[0]
    kinds = [
        item.type
        for item in root.conversation
        if not (isinstance(item, MessageItem) and item.role == "developer")
    ]
    assert kinds == ["message"] * 2 + ["tool_request", "tool_result"] * 2 + ["message"]
    last = root.conversation[-1]
    assert isinstance(last, MessageItem)
    assert (last.role, last.text) == ("assistant", "All done.")
    asked = [item for item in root.conversation if isinstance(item, ToolRequestItem)]
    assert json.loads(asked[0].arguments)["cmd"] == "echo begin; sleep 1.5; echo end"


def test_a_command_has_its_times(tmp_path: Path) -> None:
    first = tool_calls(parse("tool_success", tmp_path))[0]
    assert first.timing_source == "artifact"
    assert first.duration_ms is not None
    assert 1300 < first.duration_ms < 1700
    assert first.started_at is not None
    assert first.completed_at == pytest.approx(first.started_at + first.duration_ms / 1000)


def test_a_subagent_names_its_parent_and_the_call_that_made_it(tmp_path: Path) -> None:
    told = parse("subagent", tmp_path)
    root, child = invocations(told)
    assert child.parent_invocation_id == root.invocation_id
    assert child.spawned_by_tool_call_id == "spawn0001"
    assert root.spawned_by_tool_call_id is None
    assert child.status is COMPLETED
    assert [ref.response_id for ref in child.model_calls] == ["resp0003abc"]
    assert [call.tool_name for call in tool_calls(told)] == ["spawn_agent", "wait_agent"]
    assert {call.status for call in tool_calls(told)} == {ToolStatus.COMPLETED}


def test_a_compaction_names_its_own_model_call(tmp_path: Path) -> None:
    told = parse("compaction", tmp_path)
    (compaction,) = [r for r in told.records if isinstance(r, ContextCompaction)]
    assert [ref.response_id for ref in compaction.model_calls] == ["resp0002abc"]
    assert compaction.summary is not None
    assert compaction.summary.endswith("The summary.")


def test_without_a_rollout_stdout_tells_the_outcome(tmp_path: Path) -> None:
    lay_out("codex", "error_400", tmp_path)
    for path in tmp_path.glob("rollout-*"):
        path.unlink()
    told = CODEX.parse(tmp_path, NativeContext())
    (root,) = invocations(told)
    assert root.invocation_id in rollout("error_400").name
    assert root.status is FAILED
    assert [gap.code for gap in told.gaps] == ["agent_transcript_unavailable"]


def test_a_rollout_without_its_end_takes_it_from_stdout(tmp_path: Path) -> None:
    lay_out("codex", "tool_success", tmp_path)
    (path,) = tmp_path.glob("rollout-*")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert invocations(CODEX.parse(tmp_path, NativeContext()))[0].status is COMPLETED
    (tmp_path / "stdout").unlink()
    told = CODEX.parse(tmp_path, NativeContext())
    assert invocations(told)[0].status is UNKNOWN
    assert "invocation_outcome_unavailable" in [gap.code for gap in told.gaps]


def test_stdout_of_another_thread_says_nothing(tmp_path: Path) -> None:
    lay_out("codex", "killed_by_term", tmp_path)
    other = (rollout("tool_success").parent / "stdout").read_text()
    (tmp_path / "stdout").write_text(other)
    assert invocations(CODEX.parse(tmp_path, NativeContext()))[0].status is UNKNOWN


def test_an_empty_folder_is_a_gap_and_no_invocation(tmp_path: Path) -> None:
    told = CODEX.parse(tmp_path, NativeContext())
    assert told.records == ()
    assert [gap.code for gap in told.gaps] == ["agent_transcript_unavailable"]
