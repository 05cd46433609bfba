"""Kilo's recorded databases, of both versions: what each says, and what it cannot say."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from sandbox.evidence.observations import (
    InvocationStatus,
    MessageItem,
    Observations,
    ReasoningItem,
    ToolResultItem,
)
from sandbox.harnesses.base import NativeContext
from sandbox.harnesses.kilocode import KILOCODE, RECEIPT
from tests.fixtures.native.recorded import cases
from tests.fixtures.native.recorded_kilo import DATABASE, lay_out_kilo
from tests.unit.told import codes, root, tool_calls

COMPLETED, FAILED = InvocationStatus.COMPLETED, InvocationStatus.FAILED
INCOMPLETE, UNKNOWN = InvocationStatus.INCOMPLETE, InvocationStatus.UNKNOWN
OLD = "_7_0_33"

OUTCOMES = {
    "bad_arguments": (COMPLETED, None),
    "cut_stream": (FAILED, "APIError"),
    "empty_answer": (COMPLETED, None),
    "error_400": (FAILED, "APIError"),
    "killed_by_kill": (UNKNOWN, None),
    "killed_by_term": (UNKNOWN, None),
    "output_limit": (INCOMPLETE, "finish_length"),
    "reasoning": (COMPLETED, None),
    "retry_500": (COMPLETED, None),
    "tool_exit_7": (COMPLETED, None),
    "tool_success": (COMPLETED, None),
    "tool_timeout": (COMPLETED, None),
    "two_in_one_reply": (COMPLETED, None),
}
OLD_OUTCOMES = {
    **{name: end for name, end in OUTCOMES.items() if name != "reasoning"},
    "cut_stream": (UNKNOWN, None),  # asked for ever
}
# status, error type, exit code of each tool call in order
TOOLS: dict[str, list[tuple[str, str | None, int | None]]] = {
    "bad_arguments": [("failed", "tool_error", None)],
    "bad_arguments_7_0_33": [("failed", "invalid_arguments", None)],
    "killed_by_kill": [("incomplete", None, None)],
    "killed_by_term": [("incomplete", None, None)],
    "retry_500": [("completed", None, 0)],
    "tool_exit_7": [("failed", "exit_code", 7), ("completed", None, 0)],
    "tool_success": [("completed", None, 0), ("completed", None, 0)],
    "tool_timeout": [("timeout", "timeout", None)],
    "two_in_one_reply": [("failed", "exit_code", 3), ("completed", None, 0)],
}
KILLED = ["invocation_outcome_unavailable", "tool_outcome_unavailable"]
GAPS = {
    "cut_stream_7_0_33": ["invocation_outcome_unavailable"],
    "killed_by_kill": KILLED,
    "killed_by_kill_7_0_33": KILLED,
    "killed_by_term": KILLED,
    "killed_by_term_7_0_33": KILLED,
}
EVERY = {**OUTCOMES, **{f"{name}{OLD}": end for name, end in OLD_OUTCOMES.items()}}


def parse(case: str, folder: Path) -> Observations:
    return KILOCODE.parse(lay_out_kilo(case, folder), NativeContext())


def results(told: Observations) -> list[ToolResultItem]:
    return [item for item in root(told).conversation if isinstance(item, ToolResultItem)]


def test_every_recorded_case_is_expected() -> None:
    assert cases("kilocode") == sorted(EVERY)


@pytest.mark.parametrize("case", sorted(EVERY))
def test_outcome(case: str, tmp_path: Path) -> None:
    told = parse(case, tmp_path)
    assert told.source == "kilocode"
    assert (root(told).status, root(told).error_type) == EVERY[case]
    assert root(told).invocation_id.startswith("ses_")


@pytest.mark.parametrize("case", sorted(EVERY))
def test_tools(case: str, tmp_path: Path) -> None:
    told = parse(case, tmp_path)
    codes_told = {item.tool_call_id: item.exit_code for item in results(told)}
    seen = [
        (call.status.value, call.error_type, codes_told.get(call.tool_call_id))
        for call in tool_calls(told)
    ]
    assert seen == TOOLS.get(case, TOOLS.get(case.removesuffix(OLD), []))


@pytest.mark.parametrize("case", sorted(EVERY))
def test_gaps(case: str, tmp_path: Path) -> None:
    assert codes(parse(case, tmp_path)) == GAPS.get(case, [])


@pytest.mark.parametrize("version", ["", OLD], ids=["7.7.7", "7.0.33"])
class TestBothVersions:
    def test_the_start_of_a_command_is_known(self, version: str, tmp_path: Path) -> None:
        first, second = tool_calls(parse(f"tool_success{version}", tmp_path))
        assert first.duration_ms is not None
        assert first.duration_ms > 1500  # it slept for 1.5 s
        assert second.duration_ms is not None
        assert first.timing_source == "artifact"

    def test_the_conversation_is_the_models(self, version: str, tmp_path: Path) -> None:
        told = root(parse(f"tool_success{version}", tmp_path)).conversation
        assert [item.type for item in told] == [
            "message",
            *("tool_request", "tool_result") * 2,
            "message",
        ]
        first, last = told[0], told[-1]
        assert isinstance(first, MessageItem)
        assert isinstance(last, MessageItem)
        assert first.text.strip() == "Run the commands, then say that you are done."
        assert (last.role, last.text) == ("assistant", "All done.")

    def test_the_words_of_the_model_are_as_it_got_them(self, version: str, tmp_path: Path) -> None:
        (result,) = results(parse(f"tool_timeout{version}", tmp_path))
        note = "<bash_metadata>" if version else "<shell_metadata>"
        assert result.output.startswith("begin\n")
        assert note in result.output

    def test_a_shell_without_a_receipt_is_a_gap(self, version: str, tmp_path: Path) -> None:
        lay_out_kilo(f"tool_success{version}", tmp_path)
        (tmp_path / RECEIPT).unlink()
        told = KILOCODE.parse(tmp_path, NativeContext())
        assert codes(told) == ["agent_artifact_unavailable"]

    def test_the_evidence_is_not_changed(self, version: str, tmp_path: Path) -> None:
        lay_out_kilo(f"tool_success{version}", tmp_path)

        def digests() -> dict[str, str]:
            files = [path for path in tmp_path.rglob("*") if path.is_file()]
            return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

        before = digests()
        KILOCODE.parse(tmp_path, NativeContext())
        assert digests() == before

    def test_without_a_database_stdout_is_the_source(self, version: str, tmp_path: Path) -> None:
        lay_out_kilo(f"error_400{version}", tmp_path)
        for path in (tmp_path / DATABASE).parent.iterdir():
            path.unlink()
        told = KILOCODE.parse(tmp_path, NativeContext())
        assert (root(told).status, root(told).error_type) == (FAILED, "APIError")
        assert "agent_transcript_unavailable" in codes(told)


def test_a_thought_is_kept(tmp_path: Path) -> None:
    told = root(parse("reasoning", tmp_path)).conversation
    assert [item.text for item in told if isinstance(item, ReasoningItem)] == ["Let me think."]


def test_nothing_at_all_is_two_gaps(tmp_path: Path) -> None:
    told = KILOCODE.parse(tmp_path, NativeContext())
    assert told.records == ()
    assert codes(told) == ["agent_artifact_unavailable", "agent_transcript_unavailable"]
