"""OpenClaw's recorded sessions: what each says, and what it cannot say."""

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
    ToolResultItem,
)
from sandbox.harnesses.base import NativeContext
from sandbox.harnesses.openclaw import OPENCLAW, RECEIPT
from tests.fixtures.native.recorded import cases
from tests.fixtures.native.recorded_openclaw import SESSIONS, lay_out_openclaw, session_files
from tests.unit.told import codes, invocations, tool_calls

COMPLETED, FAILED = InvocationStatus.COMPLETED, InvocationStatus.FAILED
INCOMPLETE, UNKNOWN = InvocationStatus.INCOMPLETE, InvocationStatus.UNKNOWN
SERVER = ModelRef(type="responses_api_models", name="scripted")

OUTCOMES = {
    "backgrounded": (COMPLETED, None),
    "bad_arguments": (COMPLETED, None),
    "compaction": (FAILED, "context_overflow"),
    "cut_stream": (FAILED, "error"),
    "empty_answer": (FAILED, "incomplete_turn"),
    "error_400": (FAILED, "invalid_request_error"),
    "error_500": (FAILED, "server_error"),
    "killed_by_kill": (UNKNOWN, None),
    "killed_by_term": (INCOMPLETE, "aborted"),
    "output_limit": (INCOMPLETE, "finish_length"),
    "polled": (COMPLETED, None),
    "retry_500": (COMPLETED, None),
    "subagent": (COMPLETED, None),
    "tool_exit_7": (COMPLETED, None),
    "tool_success": (COMPLETED, None),
    "tool_timeout": (COMPLETED, None),
    "two_in_one_reply": (COMPLETED, None),
}
# status, error type, exit code, start of the output of each tool call in order
TOOLS: dict[str, list[tuple[str, str | None, int | None, str | None]]] = {
    "backgrounded": [
        ("incomplete", None, None, "Command still running"),
        ("completed", None, None, ""),
    ],
    "bad_arguments": [("failed", "tool_error", None, "Validation failed")],
    "compaction": [("completed", None, 0, "")] * 4,
    "killed_by_kill": [("incomplete", None, None, None)],
    "killed_by_term": [("failed", "no_exit_code", None, "begin")],
    "polled": [
        ("failed", "exit_code", None, "Command still running"),
        ("completed", None, 5, "begin\nend\n"),
    ],
    "retry_500": [("completed", None, 0, "good")],
    "subagent": [("completed", None, None, '{\n  "status": "accepted"')],
    "tool_exit_7": [("failed", "exit_code", 7, "bad"), ("completed", None, 0, "good")],
    "tool_success": [("completed", None, 0, "begin\nend"), ("completed", None, 0, "aé\nerr")],
    "tool_timeout": [("timeout", "timeout", None, "begin")],
    "two_in_one_reply": [("failed", "exit_code", 3, "a"), ("completed", None, 0, "b")],
}
UNTIMED = "tool_timing_unavailable"
GAPS = {
    "backgrounded": ["tool_outcome_unavailable", UNTIMED],
    "bad_arguments": [UNTIMED],
    "compaction": ["compaction_token_counts_unavailable", *[UNTIMED] * 4],
    "killed_by_kill": ["invocation_outcome_unavailable", "tool_outcome_unavailable"],
    "polled": [UNTIMED] * 2,
    "subagent": ["invocation_outcome_unavailable", *["tool_result_unowned"] * 10, UNTIMED],
}


def parse(case: str, folder: Path) -> Observations:
    return OPENCLAW.parse(lay_out_openclaw(case, folder), NativeContext(model_ref=SERVER))


def results(told: Observations) -> dict[str, ToolResultItem]:
    return {
        item.tool_call_id: item
        for item in invocations(told)[0].conversation
        if isinstance(item, ToolResultItem)
    }


def test_every_recorded_case_is_expected() -> None:
    assert cases("openclaw") == sorted(OUTCOMES)


@pytest.mark.parametrize("case", sorted(OUTCOMES))
def test_outcome(case: str, tmp_path: Path) -> None:
    root = invocations(parse(case, tmp_path))[0]
    assert (root.status, root.error_type) == OUTCOMES[case]
    assert root.parent_invocation_id is None


@pytest.mark.parametrize("case", sorted(OUTCOMES))
def test_tools(case: str, tmp_path: Path) -> None:
    told = parse(case, tmp_path)
    answers = results(told)
    expected = TOOLS.get(case, [])
    for call, (status, error_type, code, output) in zip(tool_calls(told), expected, strict=True):
        answer = answers.get(call.tool_call_id)
        assert (call.status.value, call.error_type) == (status, error_type)
        assert (answer.exit_code if answer else None) == code
        assert (answer is None) == (output is None)
        assert answer is None or answer.output.startswith(str(output))


@pytest.mark.parametrize("case", sorted(OUTCOMES))
def test_gaps(case: str, tmp_path: Path) -> None:
    assert codes(parse(case, tmp_path)) == sorted(GAPS.get(case, []))


def test_model_calls_are_named_by_server_and_response(tmp_path: Path) -> None:
    (root,) = invocations(parse("tool_success", tmp_path))
    assert [ref.model_ref for ref in root.model_calls] == [SERVER] * 3
    assert len({ref.response_id for ref in root.model_calls}) == 3
    assert all(ref.response_id for ref in root.model_calls)


def test_a_failed_try_has_no_response_and_is_not_made_up(tmp_path: Path) -> None:
    (root,) = invocations(parse("retry_500", tmp_path))
    assert len(root.model_calls) == 2
    (failed,) = invocations(parse("error_400", tmp_path / "other"))
    assert failed.model_calls == ()


def test_how_long_a_command_took_is_the_harnesses_own_measure(tmp_path: Path) -> None:
    first, second = tool_calls(parse("tool_success", tmp_path))
    assert first.duration_ms is not None
    assert first.duration_ms > 1500  # it slept for 1.5 s
    assert first.started_at is None
    assert first.completed_at is not None
    assert second.completed_at is not None
    assert first.completed_at < second.completed_at


def test_of_a_background_command_only_the_start_is_known(tmp_path: Path) -> None:
    polled, poll = tool_calls(parse("polled", tmp_path))
    assert polled.started_at is not None
    assert (polled.completed_at, polled.duration_ms) == (None, None)
    assert poll.completed_at is not None


def test_the_arguments_are_as_the_model_sent_them(tmp_path: Path) -> None:
    (root,) = invocations(parse("bad_arguments", tmp_path))
    (asked,) = [item for item in root.conversation if isinstance(item, ToolRequestItem)]
    assert asked.arguments == '{"command": '


def test_all_calls_of_an_answer_come_before_their_results(tmp_path: Path) -> None:
    (root,) = invocations(parse("two_in_one_reply", tmp_path))
    assert [item.type for item in root.conversation] == [
        "message",
        "tool_request",
        "tool_request",
        "tool_result",
        "tool_result",
        "message",
    ]
    last = root.conversation[-1]
    assert isinstance(last, MessageItem)
    assert (last.role, last.text) == ("assistant", "All done.")


def test_a_subagent_names_its_parent_and_the_call_that_made_it(tmp_path: Path) -> None:
    told = parse("subagent", tmp_path)
    root, child = invocations(told)
    assert child.parent_invocation_id == root.invocation_id
    assert child.spawned_by_tool_call_id == tool_calls(told)[0].tool_call_id


def test_without_the_index_a_subagent_is_still_no_root(tmp_path: Path) -> None:
    lay_out_openclaw("subagent", tmp_path)
    (tmp_path / SESSIONS / "sessions.json").unlink()
    told = OPENCLAW.parse(tmp_path, NativeContext())
    root, child = invocations(told)
    assert root.conversation[0] == MessageItem(
        role="user", text="Run the commands, then say that you are done."
    )
    assert child.parent_invocation_id is None
    lost = [gap for gap in told.gaps if gap.code == "subagent_parent_unavailable"]
    assert [gap.invocation_id for gap in lost] == [child.invocation_id]


def test_a_shortened_history_tells_each_call_and_answer_once(tmp_path: Path) -> None:
    told = parse("compaction", tmp_path)
    (root,) = invocations(told)
    assert len({ref.response_id for ref in root.model_calls}) == len(root.model_calls) == 4
    requests = [item for item in root.conversation if isinstance(item, ToolRequestItem)]
    assert len({item.tool_call_id for item in requests}) == len(requests) == 4
    compactions = [r for r in told.records if isinstance(r, ContextCompaction)]
    assert [c.tokens_before for c in compactions] == [29606, 80530]
    assert {c.summary for c in compactions} == {"Scripted helper answer"}


def test_what_the_harness_says_in_the_models_place_is_no_answer(tmp_path: Path) -> None:
    lay_out_openclaw("compaction", tmp_path)
    (tmp_path / "stdout").unlink()
    (root,) = invocations(OPENCLAW.parse(tmp_path, NativeContext()))
    assert root.status is FAILED


@pytest.mark.parametrize(
    ("meta", "outcome"),
    [
        ({"aborted": True}, (INCOMPLETE, "aborted")),
        ({"livenessState": "abandoned"}, (FAILED, "abandoned")),
        ({"livenessState": "working"}, (COMPLETED, None)),
        ({"error": {"kind": "timeout"}}, (FAILED, "timeout")),
        ({"error": {"message": "no kind"}}, (FAILED, "error")),
    ],
    ids=["aborted", "abandoned", "working", "error", "unnamed"],
)
def test_the_last_words_outweigh_an_answer_that_looks_well(
    meta: dict[str, object], outcome: tuple[InvocationStatus, str | None], tmp_path: Path
) -> None:
    lay_out_openclaw("tool_success", tmp_path)
    words = json.loads((tmp_path / "stdout").read_text())
    words["meta"].update(meta)
    (tmp_path / "stdout").write_text(json.dumps(words))
    (root,) = invocations(OPENCLAW.parse(tmp_path, NativeContext()))
    assert (root.status, root.error_type) == outcome


def test_words_about_another_session_change_nothing(tmp_path: Path) -> None:
    lay_out_openclaw("tool_success", tmp_path)
    words = {"meta": {"aborted": True, "agentMeta": {"sessionId": "another"}}}
    (tmp_path / "stdout").write_text(json.dumps(words))
    assert invocations(OPENCLAW.parse(tmp_path, NativeContext()))[0].status is COMPLETED


def test_a_shell_without_a_receipt_is_a_gap(tmp_path: Path) -> None:
    lay_out_openclaw("tool_success", tmp_path)
    (tmp_path / RECEIPT).write_text("71\n")
    told = OPENCLAW.parse(tmp_path, NativeContext())
    assert codes(told) == ["agent_artifact_unavailable"]
    assert "2 shells ran and 1 have a receipt" in told.gaps[0].detail


def test_without_a_session_file_stdout_is_the_source(tmp_path: Path) -> None:
    lay_out_openclaw("killed_by_term", tmp_path)
    for path in session_files(tmp_path):
        path.unlink()
    told = OPENCLAW.parse(tmp_path, NativeContext())
    assert [(i.status, i.error_type) for i in invocations(told)] == [(INCOMPLETE, "aborted")]
    assert codes(told) == ["agent_transcript_unavailable"]


def test_nothing_at_all_is_a_gap(tmp_path: Path) -> None:
    told = OPENCLAW.parse(tmp_path, NativeContext())
    assert told.records == ()
    assert codes(told) == ["agent_transcript_unavailable"]
