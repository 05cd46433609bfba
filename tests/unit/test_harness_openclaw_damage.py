"""Damaged sessions of OpenClaw: cut, torn, repeated and hostile lines are gaps, never errors."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.evidence.observations import AgentInvocation, InvocationStatus, Observations, ToolCall
from sandbox.harnesses.base import NativeContext
from sandbox.harnesses.openclaw import OPENCLAW
from tests.fixtures.native.recorded import HERE
from tests.fixtures.native.recorded_openclaw import SESSIONS, lay_out_openclaw, session_files
from tests.unit.damage import JSON, put_anything_anywhere

SOURCE = HERE / "openclaw/tool_exit_7/sessions"
(WHOLE,) = [path.read_bytes() for path in SOURCE.glob("*.jsonl")]
LINES = WHOLE.decode().splitlines(keepends=True)


def parse(session: bytes, **files: bytes) -> Observations:
    with tempfile.TemporaryDirectory() as name:
        folder = lay_out_openclaw("tool_exit_7", Path(name))
        session_files(folder)[0].write_bytes(session)
        for file, data in files.items():
            (folder / file).write_bytes(data)
        return OPENCLAW.parse(folder, NativeContext())


def holds(told: Observations) -> bool:
    return told.model_validate_json(told.model_dump_json()) == told


def root(told: Observations) -> AgentInvocation:
    return next(record for record in told.records if isinstance(record, AgentInvocation))


def codes(told: Observations) -> set[str]:
    return {gap.code for gap in told.gaps}


def changed(change: Callable[[list[dict[str, Any]]], object]) -> bytes:
    entries = [json.loads(line) for line in LINES]
    change(entries)
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)


@settings(deadline=None, max_examples=60)
@given(end=st.integers(min_value=0, max_value=len(WHOLE) - 1))
def test_cut_at_any_byte_it_is_survived(end: int) -> None:
    told = parse(WHOLE[:end], stdout=b"")
    assert holds(told)
    assert root(told).status in (InvocationStatus.UNKNOWN, InvocationStatus.COMPLETED)
    if root(told).status is InvocationStatus.UNKNOWN:
        assert "invocation_outcome_unavailable" in codes(told)


@settings(deadline=None, max_examples=60)
@given(at=st.integers(0, len(WHOLE) - 1), noise=st.binary(min_size=1, max_size=64))
def test_wrong_bytes_are_survived(at: int, noise: bytes) -> None:
    assert holds(parse(WHOLE[:at] + noise + WHOLE[at + len(noise) :]))


@settings(deadline=None, max_examples=60)
@given(order=st.permutations(range(len(LINES))), more=st.lists(st.integers(0, len(LINES) - 1)))
def test_lines_in_any_order_and_number_are_survived(order: list[int], more: list[int]) -> None:
    told = parse("".join(LINES[number] for number in [*order, *more]).encode())
    assert holds(told)
    ids = [record.tool_call_id for record in told.records if isinstance(record, ToolCall)]
    assert len(ids) == len(set(ids)) == 2


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_value_in_any_place_is_survived(data: st.DataObject) -> None:
    def change(entries: list[dict[str, Any]]) -> None:
        record = data.draw(st.sampled_from(entries))
        put_anything_anywhere(record, data)

    assert holds(parse(changed(change)))


@settings(deadline=None, max_examples=30)
@given(text=st.binary(max_size=200), index=st.recursive(JSON, st.lists, max_leaves=3))
def test_any_index_and_any_stdout_are_survived(text: bytes, index: object) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = lay_out_openclaw("subagent", Path(name))
        (folder / "stdout").write_bytes(text)
        (folder / SESSIONS / "sessions.json").write_text(json.dumps({"key": index}))
        assert holds(OPENCLAW.parse(folder, NativeContext()))


def test_a_line_told_twice_is_a_gap() -> None:
    told = parse((LINES[0] + "".join(line * 2 for line in LINES[1:])).encode())
    assert codes(told) == {"agent_artifact_record_unparseable"}
    assert root(told).status is InvocationStatus.COMPLETED


def test_a_call_asked_for_twice_in_one_history_is_a_gap() -> None:
    def change(entries: list[dict[str, Any]]) -> None:
        answers = [e for e in entries if e.get("message", {}).get("role") == "assistant"]
        answers[1]["message"]["content"] = answers[0]["message"]["content"]

    assert codes(parse(changed(change))) == {"duplicate_tool_call", "tool_result_unowned"}


def test_an_unknown_entry_is_a_gap() -> None:
    def change(entries: list[dict[str, Any]]) -> None:
        entries[3]["type"] = "new_kind"

    assert codes(parse(changed(change))) == {"agent_artifact_record_unparseable"}


def test_parents_in_a_circle_end() -> None:
    def change(entries: list[dict[str, Any]]) -> None:
        entries[1]["parentId"] = entries[-1]["id"]

    assert root(parse(changed(change))).status is InvocationStatus.COMPLETED


def test_a_lost_parent_leaves_the_rest_readable() -> None:
    def change(entries: list[dict[str, Any]]) -> None:
        del entries[6]

    told = parse(changed(change))
    assert root(told).status is InvocationStatus.COMPLETED
    assert "tool_outcome_unavailable" in codes(told)


@pytest.mark.parametrize("deep", [b"[" * 100_000, b'{"a":' * 50_000], ids=["list", "object"])
def test_deep_nesting_is_survived(deep: bytes) -> None:
    told = parse(WHOLE + deep + b"\n", stdout=deep)
    assert codes(told) == {"agent_artifact_record_unparseable"}


def test_links_are_never_followed(tmp_path: Path) -> None:
    outside = lay_out_openclaw("tool_success", tmp_path / "outside")
    folder = tmp_path / "native"
    (folder / SESSIONS).mkdir(parents=True)
    for path in session_files(outside):
        (folder / SESSIONS / path.name).symlink_to(path)
    (folder / "stdout").symlink_to(outside / "stdout")
    assert OPENCLAW.parse(folder, NativeContext()).records == ()


def test_a_trajectory_is_no_session(tmp_path: Path) -> None:
    folder = lay_out_openclaw("tool_success", tmp_path)
    (path,) = session_files(folder)
    shutil.copyfile(path, path.with_name("another.trajectory.jsonl"))
    told = OPENCLAW.parse(folder, NativeContext())
    assert len([r for r in told.records if isinstance(r, AgentInvocation)]) == 1
