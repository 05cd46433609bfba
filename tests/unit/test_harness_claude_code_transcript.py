"""Claude Code's recorded transcripts: what each says, and what it cannot say."""

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
    ReasoningItem,
    ToolRequestItem,
)
from sandbox.harnesses.base import NativeContext
from sandbox.harnesses.claude_code import CLAUDE_CODE
from tests.fixtures.native.recorded import HERE, cases, lay_out
from tests.unit.told import invocations, results, tool_calls

COMPLETED, FAILED = InvocationStatus.COMPLETED, InvocationStatus.FAILED
INCOMPLETE, UNKNOWN = InvocationStatus.INCOMPLETE, InvocationStatus.UNKNOWN
SESSIONS = "????????-????-????-????-????????????.jsonl"

OUTCOMES = {
    "background": (COMPLETED, None),
    "bad_arguments": (COMPLETED, None),
    "compaction": (COMPLETED, None),
    "error_400": (FAILED, "http_400"),
    "harmless_exit": (COMPLETED, None),
    "killed_by_kill": (UNKNOWN, None),
    "killed_by_term": (UNKNOWN, None),
    "left_running": (COMPLETED, None),
    "output_limit": (INCOMPLETE, "max_output_tokens"),
    "reasoning": (COMPLETED, None),
    "retry_500": (COMPLETED, None),
    "subagent": (COMPLETED, None),
    "subagent_in_background": (COMPLETED, None),
    "tool_exit_7": (COMPLETED, None),
    "tool_success": (COMPLETED, None),
    "two_in_one_reply": (COMPLETED, None),
}
# status, error type, exit code, beginning of the output of each tool call in order
TOOLS: dict[str, list[tuple[str, str | None, int | None, str | None]]] = {
    "background": [("failed", "exit_code", 7, "begin\nCommand did not complete within its 1s")],
    "bad_arguments": [
        ("failed", "invalid_arguments", None, "<tool_use_error>InputValidationError"),
        ("failed", "not_run", None, "<tool_use_error>Error: No such tool available: nosuch"),
    ],
    "compaction": [("completed", None, 0, "hi")] * 2,
    "error_400": [],
    "harmless_exit": [("failed", "exit_code", None, "")],
    "killed_by_kill": [("incomplete", None, None, None)],
    "killed_by_term": [("failed", "exit_code", 137, "begin")],
    "left_running": [("incomplete", None, None, "begin\nCommand did not complete")],
    "output_limit": [],
    "reasoning": [("completed", None, 0, "hi")],
    "retry_500": [("completed", None, 0, "good")],
    "subagent": [
        ("completed", None, None, ""),
        ("completed", None, None, "from the subagent"),
    ],
    "tool_exit_7": [("failed", "exit_code", 7, "bad"), ("completed", None, 0, "good")],
    "tool_success": [("completed", None, 0, "begin\nend"), ("completed", None, 0, "err\naé")],
    "two_in_one_reply": [("failed", "exit_code", 3, "a"), ("completed", None, 0, "b")],
}
GAPS = {
    "killed_by_kill": ["invocation_outcome_unavailable", "tool_outcome_unavailable"],
    "killed_by_term": ["invocation_outcome_unavailable"],
    "left_running": ["tool_outcome_unavailable"],
    "two_in_one_reply": ["tool_timing_unavailable"] * 2,
}


def parse(case: str, folder: Path, context: NativeContext | None = None) -> Observations:
    return CLAUDE_CODE.parse(lay_out("claude-code", case, folder), context or NativeContext())


def session_file(folder: Path) -> Path:
    (found,) = folder.glob(SESSIONS)
    return found


def test_every_recorded_case_is_expected() -> None:
    assert cases("claude-code") == sorted(OUTCOMES)


@pytest.mark.parametrize("case", sorted(OUTCOMES))
def test_outcome(case: str, tmp_path: Path) -> None:
    root = invocations(parse(case, tmp_path))[0]
    assert (root.status, root.error_type) == OUTCOMES[case]
    assert root.parent_invocation_id is None
    assert root.invocation_id == session_file(tmp_path).stem
    assert (root.duration_ms is None) == (root.status is UNKNOWN)


@pytest.mark.parametrize("case", sorted(TOOLS))
def test_tools(case: str, tmp_path: Path) -> None:
    told = parse(case, tmp_path)
    answers = results(told)
    calls = tool_calls(told)
    assert len(calls) == len(TOOLS[case])
    for call, (status, error_type, code, output) in zip(calls, TOOLS[case], strict=True):
        answer = answers.get(call.tool_call_id)
        assert (call.status.value, call.error_type) == (status, error_type)
        assert (answer is None) == (output is None)
        if answer is not None and output is not None:
            assert answer.exit_code == code
            assert answer.output.startswith(output)


@pytest.mark.parametrize("case", sorted(OUTCOMES))
def test_gaps(case: str, tmp_path: Path) -> None:
    assert sorted(gap.code for gap in parse(case, tmp_path).gaps) == GAPS.get(case, [])


def test_model_calls_are_named_by_response_id(tmp_path: Path) -> None:
    for case, numbers in {"error_400": "", "retry_500": "23", "tool_success": "123"}.items():
        refs = invocations(parse(case, tmp_path / case))[0].model_calls
        assert [(ref.response_id or "")[:8] for ref in refs] == [
            f"msg0000{number}" for number in numbers
        ]


def test_a_named_model_server_is_in_every_reference(tmp_path: Path) -> None:
    server = ModelRef(type="responses_api_models", name="scripted_model")
    told = parse("tool_success", tmp_path, NativeContext(model_ref=server))
    assert {ref.model_ref for ref in invocations(told)[0].model_calls} == {server}


def test_the_conversation_is_in_order(tmp_path: Path) -> None:
    root = invocations(parse("tool_success", tmp_path))[0]
    kinds = [item.type for item in root.conversation]
    assert kinds == ["message"] + ["tool_request", "tool_result"] * 2 + ["message"]
    last = root.conversation[-1]
    assert isinstance(last, MessageItem)
    assert (last.role, last.text) == ("assistant", "All done.")
    asked = [item for item in root.conversation if isinstance(item, ToolRequestItem)]
    assert json.loads(asked[0].arguments)["command"].endswith("echo begin; sleep 1.5; echo end")


def test_what_claude_code_says_in_the_model_s_place_is_no_answer(tmp_path: Path) -> None:
    (question,) = invocations(parse("error_400", tmp_path))[0].conversation
    assert isinstance(question, MessageItem)
    assert question.role == "user"


def test_arguments_that_could_not_be_read_are_told_as_sent(tmp_path: Path) -> None:
    root = invocations(parse("bad_arguments", tmp_path))[0]
    asked = [item for item in root.conversation if isinstance(item, ToolRequestItem)]
    assert asked[0].arguments == '{"comm'


def test_reasoning_is_kept(tmp_path: Path) -> None:
    root = invocations(parse("reasoning", tmp_path))[0]
    assert [i.text for i in root.conversation if isinstance(i, ReasoningItem)] == ["I think."]


def test_a_command_has_its_times(tmp_path: Path) -> None:
    first = tool_calls(parse("tool_success", tmp_path))[0]
    assert first.timing_source == "artifact"
    assert first.duration_ms is not None
    assert first.duration_ms > 1450
    assert first.started_at is not None
    assert first.completed_at == pytest.approx(first.started_at + first.duration_ms / 1000)


def test_commands_of_one_answer_have_an_end_only(tmp_path: Path) -> None:
    """They may wait for each other."""
    for call in tool_calls(parse("two_in_one_reply", tmp_path)):
        assert call.started_at is None
        assert call.completed_at is not None
        assert call.duration_ms is None


def test_a_command_in_the_background_ends_with_its_notice(tmp_path: Path) -> None:
    (call,) = tool_calls(parse("background", tmp_path))
    assert call.duration_ms is not None
    assert call.duration_ms > 2900


@pytest.mark.parametrize("case", ["subagent", "subagent_in_background"])
def test_a_subagent_names_its_parent_and_the_call_that_made_it(case: str, tmp_path: Path) -> None:
    told = parse(case, tmp_path)
    root, child = invocations(told)
    assert child.parent_invocation_id == root.invocation_id
    assert child.spawned_by_tool_call_id == "spawn0001"
    assert root.spawned_by_tool_call_id is None
    assert child.status is COMPLETED
    assert len(child.model_calls) == 2
    assert [(call.tool_name, call.invocation_id) for call in tool_calls(told)] == [
        ("Agent", root.invocation_id),
        ("Bash", child.invocation_id),
    ]


def test_a_subagent_whose_call_is_not_named_has_no_parent(tmp_path: Path) -> None:
    lay_out("claude-code", "subagent", tmp_path)
    for path in tmp_path.glob("*.meta.json"):
        path.write_text("{")
    told = CLAUDE_CODE.parse(tmp_path, NativeContext())
    _, child = invocations(told)
    assert (child.parent_invocation_id, child.spawned_by_tool_call_id) == (None, None)
    assert [gap.code for gap in told.gaps] == ["subagent_parent_unavailable"]


def test_a_compaction_tells_its_sizes_and_its_summary(tmp_path: Path) -> None:
    told = parse("compaction", tmp_path)
    (compaction,) = [r for r in told.records if isinstance(r, ContextCompaction)]
    assert (compaction.trigger, compaction.outcome) == ("auto", "completed")
    assert compaction.tokens_before == 101_021
    assert compaction.tokens_after is not None
    assert compaction.tokens_after < compaction.tokens_before
    assert (compaction.summary or "").startswith("This session is being continued")


def test_without_a_transcript_stdout_tells_the_outcome(tmp_path: Path) -> None:
    lay_out("claude-code", "error_400", tmp_path)
    identity = session_file(tmp_path).stem
    session_file(tmp_path).unlink()
    told = CLAUDE_CODE.parse(tmp_path, NativeContext())
    (root,) = invocations(told)
    assert (root.invocation_id, root.status, root.error_type) == (identity, FAILED, "http_400")
    assert [gap.code for gap in told.gaps] == ["agent_transcript_unavailable"]


@pytest.mark.parametrize(
    ("case", "outcome"),
    [
        ("tool_success", (COMPLETED, None)),
        ("error_400", (FAILED, "http_400")),
        ("output_limit", (INCOMPLETE, "max_output_tokens")),
        ("killed_by_kill", (UNKNOWN, None)),
    ],
)
def test_without_stdout_the_last_answer_tells_the_outcome(
    case: str, outcome: tuple[InvocationStatus, str | None], tmp_path: Path
) -> None:
    lay_out("claude-code", case, tmp_path)
    (tmp_path / "stdout").unlink()
    root = invocations(CLAUDE_CODE.parse(tmp_path, NativeContext()))[0]
    assert (root.status, root.error_type) == outcome


def test_stdout_of_another_session_says_nothing(tmp_path: Path) -> None:
    lay_out("claude-code", "killed_by_kill", tmp_path)
    other = (HERE / "claude-code" / "tool_success" / "stdout").read_text()
    (tmp_path / "stdout").write_text(other)
    assert invocations(CLAUDE_CODE.parse(tmp_path, NativeContext()))[0].status is UNKNOWN


def test_a_shell_without_a_receipt_is_a_gap(tmp_path: Path) -> None:
    """Claude Code passes over a shell that it does not like, and takes the image's."""
    lay_out("claude-code", "tool_success", tmp_path)
    (tmp_path / "shells").unlink()
    told = CLAUDE_CODE.parse(tmp_path, NativeContext())
    assert [gap.code for gap in told.gaps] == ["agent_artifact_unavailable"]


def test_an_empty_folder_is_a_gap_and_no_invocation(tmp_path: Path) -> None:
    told = CLAUDE_CODE.parse(tmp_path, NativeContext())
    assert told.records == ()
    assert [gap.code for gap in told.gaps] == ["agent_transcript_unavailable"]
