"""OpenCode's recorded databases: what each says, and what it cannot say."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from sandbox.evidence.observations import (
    ContextCompaction,
    InvocationStatus,
    MessageItem,
    Observations,
    ToolStatus,
)
from sandbox.harnesses.base import NativeContext
from sandbox.harnesses.opencode import OPENCODE, RECEIPT
from tests.fixtures.native.recorded import HERE, cases, lay_out, make_database
from tests.unit.told import codes, invocations, results, tool_calls

COMPLETED, FAILED = InvocationStatus.COMPLETED, InvocationStatus.FAILED
INCOMPLETE, UNKNOWN = InvocationStatus.INCOMPLETE, InvocationStatus.UNKNOWN

OUTCOMES = {
    "bad_arguments": (COMPLETED, None),
    "compaction": (COMPLETED, None),
    "cut_stream": (INCOMPLETE, "finish_unknown"),
    "error_400": (FAILED, "APIError"),
    "killed_by_kill": (UNKNOWN, None),
    "killed_by_term": (UNKNOWN, None),
    "output_limit": (INCOMPLETE, "finish_length"),
    "retry_500": (COMPLETED, None),
    "subagent": (COMPLETED, None),
    "tool_exit_7": (COMPLETED, None),
    "tool_success": (COMPLETED, None),
    "tool_timeout": (COMPLETED, None),
    "two_in_one_reply": (COMPLETED, None),
}
# status, error type, exit code, start of the output of each tool call in order
TOOLS: dict[str, list[tuple[str, str | None, int | None, str | None]]] = {
    "bad_arguments": [("failed", "invalid_arguments", None, "The arguments provided to the tool")],
    "compaction": [("completed", None, 0, "hi\n")],
    "cut_stream": [],
    "error_400": [],
    "killed_by_kill": [("incomplete", None, None, None)],
    "killed_by_term": [("incomplete", None, None, None)],
    "output_limit": [],
    "retry_500": [("completed", None, 0, "good\n")],
    "subagent": [("completed", None, None, "<task id=")],
    "tool_exit_7": [("failed", "exit_code", 7, "bad\n"), ("completed", None, 0, "good\n")],
    "tool_success": [("completed", None, 0, "begin\nend\n"), ("completed", None, 0, "aé\nerr\n")],
    "tool_timeout": [("timeout", "timeout", None, "begin\n")],
    "two_in_one_reply": [("failed", "exit_code", 3, "a\n"), ("completed", None, 0, "b\n")],
}
GAPS = {
    "compaction": ["compaction_token_counts_unavailable"],
    "killed_by_kill": ["invocation_outcome_unavailable", "tool_outcome_unavailable"],
    "killed_by_term": ["invocation_outcome_unavailable", "tool_outcome_unavailable"],
}


def parse(case: str, folder: Path) -> Observations:
    return OPENCODE.parse(lay_out("opencode", case, folder), NativeContext())


def test_every_recorded_case_is_expected() -> None:
    assert cases("opencode") == sorted(OUTCOMES)


@pytest.mark.parametrize("case", sorted(OUTCOMES))
def test_outcome(case: str, tmp_path: Path) -> None:
    root = invocations(parse(case, tmp_path))[0]
    assert (root.status, root.error_type) == OUTCOMES[case]
    assert root.parent_invocation_id is None
    assert root.invocation_id.startswith("ses_")


@pytest.mark.parametrize("case", sorted(TOOLS))
def test_tools(case: str, tmp_path: Path) -> None:
    told = parse(case, tmp_path)
    answers = results(told)
    for call, (status, error_type, code, output) in zip(tool_calls(told), TOOLS[case], strict=True):
        answer = answers.get(call.tool_call_id)
        assert (call.status.value, call.error_type) == (status, error_type)
        assert (answer.exit_code if answer else None) == code
        assert (answer is None) == (output is None)
        assert answer is None or answer.output.startswith(str(output))


@pytest.mark.parametrize("case", sorted(OUTCOMES))
def test_gaps(case: str, tmp_path: Path) -> None:
    assert codes(parse(case, tmp_path)) == GAPS.get(case, [])


def test_the_start_of_a_command_is_not_that_of_its_last_output(tmp_path: Path) -> None:
    told = parse("tool_success", tmp_path)
    first = tool_calls(told)[0]
    assert first.duration_ms is not None
    assert first.duration_ms > 1500  # it slept for 1.5 s; the part itself says 11 ms
    assert first.timing_source == "artifact"


def test_without_events_the_start_is_a_gap(tmp_path: Path) -> None:
    sql = (HERE / "opencode/tool_success/opencode.sql").read_text()
    make_database(tmp_path / "opencode.db", sql, lambda db: db.execute("DROP TABLE event"))
    told = OPENCODE.parse(tmp_path, NativeContext())
    assert [call.started_at for call in tool_calls(told)] == [None, None]
    assert [call.duration_ms for call in tool_calls(told)] == [None, None]
    assert codes(told).count("tool_timing_unavailable") == 2


def test_all_calls_of_an_answer_come_before_their_results(tmp_path: Path) -> None:
    root = invocations(parse("two_in_one_reply", tmp_path))[0]
    assert [item.type for item in root.conversation] == [
        "message",
        "tool_request",
        "tool_request",
        "tool_result",
        "tool_result",
        "message",
    ]
    first, last = root.conversation[0], root.conversation[-1]
    assert isinstance(first, MessageItem)
    assert isinstance(last, MessageItem)
    assert first.text == "Run the two commands, then say that you are done."
    assert (last.role, last.text) == ("assistant", "All done.")


def test_a_refused_call_has_the_name_that_the_model_asked_for(tmp_path: Path) -> None:
    (call,) = tool_calls(parse("bad_arguments", tmp_path))
    assert call.tool_name == "bash"


def test_a_subagent_names_its_parent_and_the_call_that_made_it(tmp_path: Path) -> None:
    root, child = invocations(parse("subagent", tmp_path))
    assert child.parent_invocation_id == root.invocation_id
    assert child.spawned_by_tool_call_id == "raw0001"
    assert child.status is COMPLETED
    assert [item.type for item in child.conversation] == ["message", "message"]


def test_a_compaction_is_told_with_the_size_before_it(tmp_path: Path) -> None:
    told = parse("compaction", tmp_path)
    (compaction,) = [r for r in told.records if isinstance(r, ContextCompaction)]
    assert (compaction.trigger, compaction.outcome) == ("auto", "completed")
    assert compaction.tokens_before == 199_000
    assert compaction.summary == "The summary."


def test_model_calls_join_by_the_header_alone(tmp_path: Path) -> None:
    root = invocations(parse("tool_success", tmp_path))[0]
    assert root.model_calls == ()
    assert not OPENCODE.capabilities.response_ids
    assert OPENCODE.capabilities.session_header == "x-session-id"


def test_the_evidence_is_not_touched(tmp_path: Path) -> None:
    folder = lay_out("opencode", "killed_by_kill", tmp_path)

    def prints() -> dict[str, str]:
        return {
            str(path): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in folder.rglob("*")
            if path.is_file()
        }

    before = prints()
    assert any(name.endswith("-wal") for name in before)
    OPENCODE.parse(folder, NativeContext())
    assert prints() == before


def test_what_is_only_in_the_log_is_read(tmp_path: Path) -> None:
    folder = lay_out("opencode", "tool_success", tmp_path)
    assert len(invocations(OPENCODE.parse(folder, NativeContext()))) == 1
    (folder / "db/opencode.db-wal").unlink()
    told = OPENCODE.parse(folder, NativeContext())
    assert "agent_transcript_unavailable" in codes(told)


def _with_state(folder: Path, state: dict[str, object]) -> Path:
    """Make evidence whose only tool call is in that state; the plugin was loaded."""
    sql = (HERE / "opencode/compaction/opencode.sql").read_text()
    data = json.dumps({"type": "tool", "tool": "bash", "callID": "call00010x", "state": state})
    make_database(
        folder / "opencode.db",
        sql,
        lambda db: db.execute("UPDATE part SET data = ? WHERE data LIKE '%callID%'", (data,)),
    )
    (folder / Path(RECEIPT).name).write_text('{"event":"loaded"}\n')
    return folder


class TestReceipt:
    def test_a_missing_receipt_is_a_gap(self, tmp_path: Path) -> None:
        folder = lay_out("opencode", "tool_success", tmp_path)
        (folder / RECEIPT).unlink()
        assert codes(OPENCODE.parse(folder, NativeContext())) == ["agent_artifact_unavailable"]

    def test_a_shell_without_a_line_is_a_gap(self, tmp_path: Path) -> None:
        folder = lay_out("opencode", "tool_success", tmp_path)
        lines = (folder / RECEIPT).read_text().splitlines(keepends=True)
        (folder / RECEIPT).write_text("".join(lines[:-1]))
        told = OPENCODE.parse(folder, NativeContext())
        assert codes(told) == ["agent_artifact_unavailable"]
        assert json.loads(lines[-1])["call_id"] in told.gaps[0].detail

    @pytest.mark.parametrize(("arguments", "needed"), [({}, False), ({"command": "ls"}, True)])
    def test_a_call_that_never_started_needs_no_line(
        self, arguments: dict[str, str], needed: bool, tmp_path: Path
    ) -> None:
        state = {
            "status": "error",
            "input": arguments,
            "metadata": {"interrupted": True},
            "time": {"start": 1, "end": 2},
        }
        told = OPENCODE.parse(_with_state(tmp_path, state), NativeContext())
        assert ("agent_artifact_unavailable" in codes(told)) is needed

    def test_a_run_without_tools_needs_only_the_loaded_line(self, tmp_path: Path) -> None:
        folder = lay_out("opencode", "error_400", tmp_path)
        assert (folder / RECEIPT).read_text() == '{"event":"loaded"}\n'
        assert codes(OPENCODE.parse(folder, NativeContext())) == []


def test_without_a_database_stdout_names_the_session_and_its_error(tmp_path: Path) -> None:
    folder = lay_out("opencode", "error_400", tmp_path)
    for path in (folder / "db").iterdir():
        path.unlink()
    told = OPENCODE.parse(folder, NativeContext())
    (root,) = invocations(told)
    assert (root.status, root.error_type) == (FAILED, "APIError")
    assert codes(told) == ["agent_transcript_unavailable"]


def test_an_empty_folder_is_gaps_and_no_invocation(tmp_path: Path) -> None:
    told = OPENCODE.parse(tmp_path, NativeContext())
    assert told.records == ()
    assert codes(told) == ["agent_artifact_unavailable", "agent_transcript_unavailable"]


@pytest.mark.parametrize(
    ("state", "status", "error_type"),
    [
        ({"status": "error", "error": "boom"}, ToolStatus.FAILED, "tool_error"),
        (
            {
                "status": "error",
                "input": {"command": "ls"},
                "error": "x",
                "metadata": {"interrupted": True},
            },
            ToolStatus.CANCELLED,
            "interrupted",
        ),
        (
            {"status": "error", "input": {}, "error": "x", "metadata": {"interrupted": True}},
            ToolStatus.CANCELLED,
            "not_started",
        ),
        ({"status": "pending", "raw": '{"com'}, ToolStatus.INCOMPLETE, None),
        ({"status": "completed", "output": "x", "metadata": {}}, ToolStatus.UNKNOWN, None),
        (
            {"status": "completed", "output": "x", "metadata": {"exit": None}},
            ToolStatus.UNKNOWN,
            None,
        ),
        (
            {
                "status": "completed",
                "output": "x\n\n<shell_metadata>\nUser aborted the command\n</shell_metadata>",
                "metadata": {"exit": None},
            },
            ToolStatus.CANCELLED,
            "aborted",
        ),
        ({"status": "new"}, ToolStatus.UNKNOWN, None),
        ({}, ToolStatus.UNKNOWN, None),
    ],
    ids=[
        "error",
        "interrupted",
        "not-started",
        "pending",
        "no-exit",
        "null",
        "aborted",
        "new",
        "empty",
    ],
)
def test_states_that_were_not_recorded(
    state: dict[str, object], status: ToolStatus, error_type: str | None, tmp_path: Path
) -> None:
    (call,) = tool_calls(OPENCODE.parse(_with_state(tmp_path, state), NativeContext()))
    assert (call.status, call.error_type) == (status, error_type)
