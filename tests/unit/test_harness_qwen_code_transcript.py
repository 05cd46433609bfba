"""Qwen Code's recorded sessions: what each says, and what it cannot say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.evidence.observations import (
    AgentInvocation,
    ContextCompaction,
    InvocationStatus,
    MessageItem,
    ModelCallRef,
    ModelRef,
    Observations,
    ReasoningItem,
    ToolCall,
    ToolRequestItem,
    ToolResultItem,
)
from sandbox.harnesses.base import NativeContext
from sandbox.harnesses.qwen_code import QWEN_CODE
from sandbox.harnesses.qwen_code_session import FunctionCall, ToolCallResult
from sandbox.harnesses.qwen_code_tools import CallRecord, tool_call, tool_result
from tests.fixtures.native.recorded import cases, lay_out

COMPLETED, FAILED = InvocationStatus.COMPLETED, InvocationStatus.FAILED
UNKNOWN = InvocationStatus.UNKNOWN

OUTCOMES = {
    "bad_arguments": (COMPLETED, None),
    "cut_stream": (COMPLETED, None),
    "error_400": (FAILED, "http_400"),
    "killed_in_tool": (UNKNOWN, None),
    "killed_while_asking": (UNKNOWN, None),
    "length_text": (COMPLETED, None),  # nothing in it says that the answer was cut
    "reasoning": (COMPLETED, None),
    "retry_500": (COMPLETED, None),
    "subagent": (COMPLETED, None),
    "tool_exit_7": (COMPLETED, None),
    "tool_success": (COMPLETED, None),
    "tool_timeout": (COMPLETED, None),
    "two_in_one_reply": (COMPLETED, None),
    "unknown_tool": (COMPLETED, None),
}
LINES = "first line rollout-{0}\nzweite Zeile äöü 漢字 rollout-{0}"
GOOD = ("completed", None, 0, LINES.format(1))
CANCELLED = (
    "[Operation Cancelled] Reason: The tool had already completed; its output was discarded. "
    "User intentionally cancelled. Stop and await further instructions; do not retry."
)
NOT_FOUND = (
    'Tool "no_such_tool" not found in registry. Tools must use the exact names that are '
    'registered. Did you mean one of: "get_goal", "update_goal", "tool_call"?'
)
# status, error type, exit code, output of each tool call of the root in order
TOOLS: dict[str, list[tuple[str, str | None, int | None, str | None]]] = {
    "bad_arguments": [("completed", None, 0, ""), GOOD],  # they were repaired, and run
    "cut_stream": [GOOD],
    "error_400": [],
    "killed_in_tool": [("cancelled", "cancelled", None, CANCELLED)],
    "killed_while_asking": [GOOD],
    "length_text": [GOOD],
    "reasoning": [GOOD],
    "retry_500": [GOOD],
    "tool_exit_7": [
        ("failed", "exit_code", 7, LINES.format(1)),
        ("completed", None, 0, LINES.format(2)),
    ],
    "tool_success": [GOOD],
    "tool_timeout": [("timeout", "timeout", None, "before"), GOOD],
    "two_in_one_reply": [
        ("completed", None, 0, "1795978068.024872608\na"),
        ("completed", None, 0, "b"),
    ],
    "unknown_tool": [("failed", "tool_not_registered", None, NOT_FOUND), GOOD],
}
NO_END = ["invocation_outcome_unavailable"]
GAPS = {"killed_in_tool": NO_END, "killed_while_asking": NO_END}
REF = ModelRef(type="server", name="scripted")


def parse(case: str, folder: Path, context: NativeContext | None = None) -> Observations:
    return QWEN_CODE.parse(lay_out("qwen-code", case, folder), context or NativeContext())


def root(told: Observations) -> AgentInvocation:
    found = [record for record in told.records if isinstance(record, AgentInvocation)]
    return next(one for one in found if one.parent_invocation_id is None)


def tool_calls(told: Observations, invocation: AgentInvocation) -> list[ToolCall]:
    return [
        record
        for record in told.records
        if isinstance(record, ToolCall) and record.invocation_id == invocation.invocation_id
    ]


def test_every_recorded_case_is_expected() -> None:
    assert cases("qwen-code") == sorted(OUTCOMES)


@pytest.mark.parametrize("case", sorted(OUTCOMES))
def test_outcome_and_gaps(case: str, tmp_path: Path) -> None:
    told = parse(case, tmp_path)
    assert (root(told).status, root(told).error_type) == OUTCOMES[case]
    assert (root(told).duration_ms is None) == (root(told).status is UNKNOWN)
    assert [gap.code for gap in told.gaps] == GAPS.get(case, [])


@pytest.mark.parametrize("case", sorted(TOOLS))
def test_tools(case: str, tmp_path: Path) -> None:
    told = parse(case, tmp_path)
    items = root(told).conversation
    answers = {item.tool_call_id: item for item in items if isinstance(item, ToolResultItem)}
    seen = [
        (
            call.status.value,
            call.error_type,
            answers[call.tool_call_id].exit_code,
            answers[call.tool_call_id].output,
        )
        for call in tool_calls(told, root(told))
    ]
    assert seen == TOOLS[case]


def test_a_session_is_told_in_order(tmp_path: Path) -> None:
    kinds = [type(item) for item in root(parse("tool_success", tmp_path)).conversation]
    assert kinds == [MessageItem, ToolRequestItem, ToolResultItem, MessageItem]


def test_reasoning_is_kept_apart_from_the_answer(tmp_path: Path) -> None:
    *_, thought, answer = root(parse("reasoning", tmp_path)).conversation
    assert isinstance(thought, ReasoningItem)
    assert (thought.text, answer) == (
        "I think so.",
        MessageItem(role="assistant", text="The task is done."),
    )


@pytest.mark.parametrize(("case", "answers"), [("tool_success", 2), ("cut_stream", 3)])
def test_model_calls_are_named_by_their_responses(case: str, answers: int, tmp_path: Path) -> None:
    told = root(parse(case, tmp_path, NativeContext(model_ref=REF)))
    assert len(told.model_calls) == answers
    assert {ref.model_ref for ref in told.model_calls} == {REF}
    assert all(ref.response_id for ref in told.model_calls)


def test_calls_of_one_reply_run_in_turn(tmp_path: Path) -> None:
    told = parse("two_in_one_reply", tmp_path)
    first, second = tool_calls(told, root(told))
    assert first.completed_at is not None
    assert second.started_at is not None
    assert first.completed_at <= second.started_at
    assert not QWEN_CODE.capabilities.parallel_tools


def test_a_subagent_has_its_parent_its_call_and_its_own_model_call(tmp_path: Path) -> None:
    told = parse("subagent", tmp_path)
    child = next(
        record
        for record in told.records
        if isinstance(record, AgentInvocation) and record.parent_invocation_id is not None
    )
    assert child.parent_invocation_id == root(told).invocation_id
    (call,) = tool_calls(told, root(told))
    assert child.spawned_by_tool_call_id == call.tool_call_id
    # the run ended before it did
    assert child.status is InvocationStatus.INCOMPLETE
    assert [ref.response_id for ref in child.model_calls] == ["chatcmpl00003e5ca1b0340"]
    assert not set(child.model_calls) & set(root(told).model_calls)


@pytest.mark.parametrize(
    ("end", "status", "code"),
    [
        ("\nExit Code: 0\nSignal: (none)\nProcess Group PGID: (none)", "completed", 0),
        ("\nExit Code: 7\nSignal: (none)\nProcess Group PGID: (none)", "failed", 7),
        ("\nExit Code: 7\nSignal: (none)\nProcess Group PGID: (none)\nmore", "unknown", None),
        ("", "unknown", None),
    ],
    ids=["0", "7", "not at the end", "none"],
)
def test_of_a_subagents_command_the_text_for_the_model_tells_the_end(
    end: str, status: str, code: int | None
) -> None:
    call = CallRecord(
        asked=FunctionCall(id="call1", name="run_shell_command"),
        result=ToolCallResult(callId="call1"),
        told=f"Command: x\nDirectory: (root)\nOutput: y\nError: (none){end}",
    )
    result = tool_result(call)
    assert result is not None
    assert (tool_call(call, "sub")[0].status, result.exit_code) == (status, code)


def test_a_subagent_without_the_file_beside_it_is_unknown(tmp_path: Path) -> None:
    folder = lay_out("qwen-code", "subagent", tmp_path)
    next(folder.glob("*.meta.json")).unlink()
    told = QWEN_CODE.parse(folder, NativeContext())
    codes = {gap.code for gap in told.gaps}
    assert "subagent_parent_unavailable" in codes
    assert "invocation_outcome_unavailable" in codes


def test_a_shell_without_a_receipt_is_a_gap(tmp_path: Path) -> None:
    folder = lay_out("qwen-code", "tool_success", tmp_path)
    (folder / "shells").write_bytes(b"")
    told = QWEN_CODE.parse(folder, NativeContext())
    assert [gap.code for gap in told.gaps] == ["agent_artifact_unavailable"]


def test_without_stdout_nothing_says_how_it_ended(tmp_path: Path) -> None:
    folder = lay_out("qwen-code", "tool_success", tmp_path)
    (folder / "stdout").unlink()
    assert root(QWEN_CODE.parse(folder, NativeContext())).status is UNKNOWN


def test_stdout_alone_tells_the_end_and_that_the_rest_is_lost(tmp_path: Path) -> None:
    folder = lay_out("qwen-code", "error_400", tmp_path)
    next(folder.glob("*.jsonl")).unlink()
    told = QWEN_CODE.parse(folder, NativeContext())
    assert (root(told).status, root(told).error_type) == (FAILED, "http_400")
    assert [gap.code for gap in told.gaps] == ["agent_transcript_unavailable"]


def test_no_evidence_at_all_is_a_gap(tmp_path: Path) -> None:
    told = QWEN_CODE.parse(tmp_path, NativeContext())
    assert (told.records, [gap.code for gap in told.gaps]) == (
        (),
        ["agent_transcript_unavailable"],
    )


def test_a_compaction_tells_the_sizes(tmp_path: Path) -> None:
    folder = lay_out("qwen-code", "tool_success", tmp_path)
    path = next(folder.glob("*.jsonl"))
    last = json.loads(path.read_text().splitlines()[-1])
    record = {
        **{key: last[key] for key in ("sessionId", "timestamp", "cwd", "version")},
        "uuid": "compaction",
        "type": "system",
        "subtype": "chat_compression",
        "systemPayload": {"info": {"originalTokenCount": 900, "newTokenCount": 30}},
    }
    with path.open("a") as out:
        out.write(json.dumps(record) + "\n")
    told = QWEN_CODE.parse(folder, NativeContext())
    (found,) = [one for one in told.records if isinstance(one, ContextCompaction)]
    assert (found.tokens_before, found.tokens_after) == (900, 30)


def test_an_empty_reference_names_no_call(tmp_path: Path) -> None:
    told = root(parse("error_400", tmp_path))
    assert ModelCallRef(response_id="") not in told.model_calls
    assert told.model_calls == ()
