"""Pi's recorded sessions: what each says, and what it cannot say."""

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
from sandbox.harnesses.pi import PI
from tests.fixtures.native.recorded import HERE, cases, lay_out
from tests.unit.told import results, root, tool_calls

COMPLETED, FAILED = InvocationStatus.COMPLETED, InvocationStatus.FAILED
INCOMPLETE, UNKNOWN = InvocationStatus.INCOMPLETE, InvocationStatus.UNKNOWN

OUTCOMES = {
    "bad_arguments": (COMPLETED, None),
    "compaction": (COMPLETED, None),
    "cut_stream": (COMPLETED, None),
    "error_400": (FAILED, "http_400"),
    "killed_by_kill": (UNKNOWN, None),
    "killed_by_term": (INCOMPLETE, "aborted"),
    "killed_while_retrying": (UNKNOWN, None),
    "output_limit": (INCOMPLETE, "length"),
    "reasoning": (COMPLETED, None),
    "retry_500": (COMPLETED, None),
    "silent_exit_3": (COMPLETED, None),
    "tool_exit_7": (COMPLETED, None),
    "tool_success": (COMPLETED, None),
    "tool_timeout": (COMPLETED, None),
    "two_in_one_reply": (COMPLETED, None),
}
INVALID = (
    'Invalid arguments for tool "bash": Unterminated string in JSON at position 6 (line 1 '
    'column 7)\n\nReceived arguments:\n{"comm'
)
# status, error type, exit code, output of each tool call in order
TOOLS: dict[str, list[tuple[str, str | None, int | None, str | None]]] = {
    "bad_arguments": [
        ("failed", "invalid_arguments", None, INVALID),
        ("failed", "not_run", None, "Tool nosuch not found"),
    ],
    "compaction": [("completed", None, 0, "hi\n")] * 2,
    "cut_stream": [("completed", None, 0, "good\n")],
    "error_400": [],
    "killed_by_kill": [("incomplete", None, None, None)],
    "killed_by_term": [("cancelled", "aborted", None, "begin\n")],
    "killed_while_retrying": [],
    "output_limit": [],
    "reasoning": [("completed", None, 0, "hi\n")],
    "retry_500": [("completed", None, 0, "good\n")],
    "silent_exit_3": [("failed", "exit_code", 3, ""), ("completed", None, 0, "")],
    "tool_exit_7": [("failed", "exit_code", 7, "bad\n"), ("completed", None, 0, "good\n")],
    "tool_timeout": [("timeout", "timeout", None, "begin\n")],
    "two_in_one_reply": [("failed", "exit_code", 3, "a\n"), ("completed", None, 0, "b\n")],
}
GAPS = {
    "compaction": ["compaction_token_counts_unavailable"],
    "killed_by_kill": ["invocation_outcome_unavailable", "tool_outcome_unavailable"],
    "killed_while_retrying": ["invocation_outcome_unavailable"],
    "two_in_one_reply": ["tool_timing_unavailable"] * 2,
}


def parse(case: str, folder: Path, context: NativeContext | None = None) -> Observations:
    return PI.parse(lay_out("pi", case, folder), context or NativeContext())


def session_file(folder: Path) -> Path:
    (found,) = folder.glob("*.jsonl")
    return found


def without_last_line(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def test_every_recorded_case_is_expected() -> None:
    assert cases("pi") == sorted(OUTCOMES)


@pytest.mark.parametrize("case", sorted(OUTCOMES))
def test_outcome(case: str, tmp_path: Path) -> None:
    told = root(parse(case, tmp_path))
    assert (told.status, told.error_type) == OUTCOMES[case]
    assert told.parent_invocation_id is None
    assert (told.duration_ms is None) == (told.status is UNKNOWN)


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


def test_model_calls_are_named_by_response_id(tmp_path: Path) -> None:
    for case, numbers in {"error_400": "", "retry_500": "23", "tool_success": "123"}.items():
        refs = root(parse(case, tmp_path / case)).model_calls
        assert [(ref.response_id or "")[:13] for ref in refs] == [
            f"chatcmpl0000{number}" for number in numbers
        ]


def test_an_answer_that_was_cut_is_named_too(tmp_path: Path) -> None:
    assert len(root(parse("cut_stream", tmp_path)).model_calls) == 3


def test_a_named_model_server_is_in_every_reference(tmp_path: Path) -> None:
    server = ModelRef(type="responses_api_models", name="scripted_model")
    told = root(parse("tool_success", tmp_path, NativeContext(model_ref=server)))
    assert {ref.model_ref for ref in told.model_calls} == {server}


def test_the_conversation_is_in_order(tmp_path: Path) -> None:
    told = root(parse("tool_success", tmp_path))
    kinds = [
        item.type
        for item in told.conversation
        if not (isinstance(item, MessageItem) and item.role == "system")
    ]
    assert kinds == ["message"] + ["tool_request", "tool_result"] * 2 + ["message"]
    last = told.conversation[-1]
    assert isinstance(last, MessageItem)
    assert (last.role, last.text) == ("assistant", "All done.")
    asked = [item for item in told.conversation if isinstance(item, ToolRequestItem)]
    assert json.loads(asked[0].arguments)["command"].endswith("echo begin; sleep 1.5; echo end")


def test_an_answer_that_another_replaced_is_no_part_of_the_conversation(tmp_path: Path) -> None:
    told = root(parse("cut_stream", tmp_path))
    assert sum(isinstance(item, ToolRequestItem) for item in told.conversation) == 1
    limited = root(parse("output_limit", tmp_path / "other")).conversation[-1]
    assert isinstance(limited, MessageItem)  # taken out of the context too, but the last
    assert limited.text == "All "


def test_arguments_that_could_not_be_read_are_told_as_sent(tmp_path: Path) -> None:
    told = root(parse("bad_arguments", tmp_path))
    asked = [item for item in told.conversation if isinstance(item, ToolRequestItem)]
    assert asked[0].arguments == '{"comm'


def test_reasoning_is_kept(tmp_path: Path) -> None:
    items = root(parse("reasoning", tmp_path)).conversation
    assert [item.text for item in items if isinstance(item, ReasoningItem)] == ["I think."]


def test_a_command_has_its_times(tmp_path: Path) -> None:
    first = tool_calls(parse("tool_success", tmp_path))[0]
    assert first.timing_source == "artifact"
    assert first.duration_ms is not None
    assert 1450 < first.duration_ms < 1800
    assert first.started_at is not None
    assert first.completed_at == pytest.approx(first.started_at + first.duration_ms / 1000)


def test_commands_of_one_answer_have_durations_only(tmp_path: Path) -> None:
    """Their results are recorded when the last has ended."""
    slow, quick = tool_calls(parse("two_in_one_reply", tmp_path))
    assert (slow.started_at, slow.completed_at) == (quick.started_at, quick.completed_at)
    assert slow.started_at is None
    assert (slow.duration_ms or 0) > 400 > (quick.duration_ms or 0)


def test_a_compaction_tells_what_it_kept(tmp_path: Path) -> None:
    told = parse("compaction", tmp_path)
    (compaction,) = [r for r in told.records if isinstance(r, ContextCompaction)]
    assert compaction.tokens_before == 101_021
    assert compaction.tokens_after is None
    assert compaction.first_kept_item_id
    assert "The summary." in (compaction.summary or "")


def test_without_a_session_file_stdout_tells_the_outcome(tmp_path: Path) -> None:
    lay_out("pi", "error_400", tmp_path)
    identity = session_file(tmp_path).stem.partition("_")[2]
    session_file(tmp_path).unlink()
    told = PI.parse(tmp_path, NativeContext())
    assert root(told).invocation_id == identity
    assert (root(told).status, root(told).error_type) == (FAILED, "http_400")
    assert [gap.code for gap in told.gaps] == ["agent_transcript_unavailable"]


def test_a_session_without_its_end_takes_it_from_stdout(tmp_path: Path) -> None:
    lay_out("pi", "tool_success", tmp_path)
    without_last_line(session_file(tmp_path))
    assert root(PI.parse(tmp_path, NativeContext())).status is COMPLETED
    (tmp_path / "stdout").unlink()
    told = PI.parse(tmp_path, NativeContext())
    assert root(told).status is UNKNOWN
    assert "invocation_outcome_unavailable" in [gap.code for gap in told.gaps]


def test_an_error_is_the_end_only_when_nothing_is_retried(tmp_path: Path) -> None:
    """Pi takes an answer out of its context before it asks again."""
    lay_out("pi", "killed_while_retrying", tmp_path)
    assert root(PI.parse(tmp_path, NativeContext())).status is UNKNOWN
    with (tmp_path / "stdout").open("a") as stdout:
        stdout.write('{"type":"agent_settled","aborted":false}\n')
    told = root(PI.parse(tmp_path, NativeContext()))
    assert (told.status, told.error_type) == (FAILED, "http_500")


def test_stdout_of_another_session_says_nothing(tmp_path: Path) -> None:
    lay_out("pi", "killed_by_kill", tmp_path)
    identity = session_file(tmp_path).stem.partition("_")[2]
    other = (HERE / "pi" / "tool_success" / "stdout").read_text()
    (tmp_path / "stdout").write_text(other.replace(identity, "another"))
    assert root(PI.parse(tmp_path, NativeContext())).status is UNKNOWN


def test_a_shell_without_a_receipt_is_a_gap(tmp_path: Path) -> None:
    lay_out("pi", "tool_success", tmp_path)
    without_last_line(tmp_path / "shells")
    assert [gap.code for gap in PI.parse(tmp_path, NativeContext()).gaps] == [
        "agent_artifact_unavailable"
    ]


def test_an_empty_folder_is_a_gap_and_no_invocation(tmp_path: Path) -> None:
    told = PI.parse(tmp_path, NativeContext())
    assert told.records == ()
    assert [gap.code for gap in told.gaps] == ["agent_transcript_unavailable"]
