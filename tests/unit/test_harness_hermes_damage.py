"""Damaged evidence of Hermes: cut files, strange rows and hostile links are gaps, never errors."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.evidence.observations import (
    ContextCompaction,
    InvocationStatus,
    Observations,
    ToolStatus,
)
from sandbox.harnesses.base import NativeContext
from sandbox.harnesses.hermes import HERMES, JOURNAL, SHELLS
from sandbox.harnesses.hermes_database import MessageRow, read_database
from tests.fixtures.native.recorded import HERE, lay_out, make_database
from tests.unit.told import invocations as roots
from tests.unit.told import tool_calls as calls

CASE = HERE / "hermes/tool_exit_7"
SQL = (CASE / "state.sql").read_text()
NOTED = (CASE / JOURNAL).read_bytes()
COLUMNS = sorted(set(MessageRow.model_fields) - {"id", "session_id"})
ANY = st.none() | st.integers(-9, 2**40) | st.floats() | st.text() | st.binary()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    make_database(folder / "state.db", SQL)
    return {path.name: path.read_bytes() for path in folder.iterdir()} | {JOURNAL: NOTED}


def parse(files: dict[str, bytes]) -> Observations:
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / name).write_bytes(data)
        return HERMES.parse(Path(folder), NativeContext())


def edited(change: Callable[[sqlite3.Connection], object], folder: Path) -> Observations:
    make_database(folder / "state.db", SQL, change)
    (folder / JOURNAL).write_bytes(NOTED)
    (folder / SHELLS).write_text("shell\n")
    return HERMES.parse(folder, NativeContext())


def codes(told: Observations) -> set[str]:
    return {gap.code for gap in told.gaps}


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_cut_at_any_byte_it_is_survived(files: dict[str, bytes], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["state.db", "state.db-wal", JOURNAL]))
    end = data.draw(st.integers(min_value=0, max_value=len(files[name]) - 1))
    told = parse({**files, name: files[name][:end]})
    assert len(roots(told)) <= 1
    assert roots(told) or "agent_transcript_unavailable" in codes(told)


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_wrong_bytes_are_survived(files: dict[str, bytes], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(files)))
    at = data.draw(st.integers(min_value=0, max_value=len(files[name]) - 1))
    noise = data.draw(st.binary(min_size=1, max_size=64))
    whole = files[name]
    told = parse({**files, name: whole[:at] + noise + whole[at + len(noise) :]})
    assert told.model_validate_json(told.model_dump_json()) == told


@settings(deadline=None, max_examples=60)
@given(column=st.sampled_from(COLUMNS), row=st.integers(1, 6), value=ANY | JSON.map(json.dumps))
def test_any_value_in_any_column_is_survived(column: str, row: int, value: object) -> None:
    def change(db: sqlite3.Connection) -> None:
        db.execute(f"UPDATE messages SET {column} = ? WHERE id = ?", (value, row))

    with tempfile.TemporaryDirectory() as folder:
        told = edited(change, Path(folder))
    assert told.model_validate_json(told.model_dump_json()) == told


@settings(deadline=None, max_examples=40)
@given(entries=st.lists(st.dictionaries(st.sampled_from(["event", "session_id", "at", "tool_call_id", "status"]), JSON | st.just("pre_tool_call"), max_size=5), max_size=4))  # fmt: skip  # noqa: E501
def test_any_journal_is_survived(files: dict[str, bytes], entries: list[object]) -> None:
    lines = "".join(json.dumps(entry) + "\n" for entry in entries)
    told = parse({**files, JOURNAL: lines.encode("utf-8", "replace")})
    assert [root.status for root in roots(told)] == [InvocationStatus.COMPLETED]
    assert told.model_validate_json(told.model_dump_json()) == told


@pytest.mark.parametrize(
    "text",
    ["{", "{}", "[1]", '["a"]', '[{"id": 1}]', "[" * 100_000, '[{"id": "x", "function": 3}]'],
    ids=["half", "object", "number", "text", "id", "deep", "function"],
)
def test_calls_that_cannot_be_read_are_a_gap(text: str, tmp_path: Path) -> None:
    told = edited(
        lambda db: db.execute("UPDATE messages SET tool_calls = ? WHERE id = 2", (text,)), tmp_path
    )
    assert codes(told) == {"agent_artifact_record_unparseable", "tool_result_unowned"}
    assert len(calls(told)) == 1


@pytest.mark.parametrize(
    ("answer", "status", "error_type"),
    [
        ('{"output": "x\\n[Command timed out after 3s]", "exit_code": 124}', "timeout", "timeout"),
        ('{"output": "x", "exit_code": 124, "error": null}', "failed", "exit_code"),
        ('{"output": "[Command interrupted]", "exit_code": 130}', "cancelled", "interrupted"),
        ('{"output": "", "exit_code": 130, "error": null}', "failed", "exit_code"),
        ('{"output": "", "exit_code": -1, "error": "blocked"}', "failed", "tool_error"),
        ('{"error": "no terminal"}', "failed", "tool_error"),
        ('{"output": "x"}', "unknown", None),
        ('{"output": "x", "exit_code": true}', "unknown", None),
        ("text", "unknown", None),
        ("", "unknown", None),
        ('{"output": "a", "exit_code": 0}\n\n[Subdirectory context]\n{', "completed", None),
        ("[Tool execution cancelled — terminal was skipped]", "cancelled", "skipped"),
    ],
)
def test_an_answer_says_how_a_command_ended(
    answer: str, status: str, error_type: str | None, tmp_path: Path
) -> None:
    told = edited(
        lambda db: db.execute("UPDATE messages SET content = ? WHERE id = 3", (answer,)), tmp_path
    )
    assert (calls(told)[0].status.value, calls(told)[0].error_type) == (status, error_type)
    assert ("tool_outcome_unavailable" in codes(told)) == (status == "unknown")


@pytest.mark.parametrize(
    ("finish", "status", "error_type"),
    [
        ("stop", InvocationStatus.COMPLETED, None),
        ("length", InvocationStatus.INCOMPLETE, "finish_length"),
        (None, InvocationStatus.UNKNOWN, None),
    ],
)
def test_the_last_answer_says_how_it_ended(
    finish: str | None, status: InvocationStatus, error_type: str | None, tmp_path: Path
) -> None:
    told = edited(
        lambda db: db.execute("UPDATE messages SET finish_reason = ? WHERE id = 6", (finish,)),
        tmp_path,
    )
    assert [(root.status, root.error_type) for root in roots(told)] == [(status, error_type)]


def test_a_call_without_result_is_incomplete(tmp_path: Path) -> None:
    told = edited(lambda db: db.execute("DELETE FROM messages WHERE id >= 5"), tmp_path)
    assert [call.status for call in calls(told)] == [ToolStatus.FAILED, ToolStatus.INCOMPLETE]
    assert codes(told) == {"tool_outcome_unavailable", "invocation_outcome_unavailable"}


def test_a_second_result_is_a_gap(tmp_path: Path) -> None:
    told = edited(
        lambda db: db.execute(
            "INSERT INTO messages SELECT 7, session_id, role, 'other', tool_call_id, tool_calls, "
            "tool_name, effect_disposition, timestamp, finish_reason, reasoning, "
            "reasoning_content, active, compacted FROM messages WHERE id = 5"
        ),
        tmp_path,
    )
    assert "duplicate_tool_call" in codes(told)


def test_a_subagent_is_an_invocation_with_a_parent(tmp_path: Path) -> None:
    def change(db: sqlite3.Connection) -> None:
        (parent,) = db.execute("SELECT id FROM sessions").fetchone()
        db.execute("INSERT INTO sessions (id, parent_session_id) VALUES ('child', ?)", (parent,))

    told = edited(change, tmp_path)
    root, child = roots(told)
    assert child.parent_invocation_id == root.invocation_id
    assert "subagent_spawn_tool_unavailable" in codes(told)


def test_archived_messages_are_a_compaction(tmp_path: Path) -> None:
    told = edited(
        lambda db: db.execute("UPDATE messages SET compacted = 1, active = 0 WHERE id < 4"),
        tmp_path,
    )
    assert len([r for r in told.records if isinstance(r, ContextCompaction)]) == 1
    assert "compaction_token_counts_unavailable" in codes(told)


def test_a_lost_session_row_leaves_its_messages_readable(tmp_path: Path) -> None:
    told = edited(lambda db: db.execute("DELETE FROM sessions"), tmp_path)
    assert [root.status for root in roots(told)] == [InvocationStatus.COMPLETED]


@pytest.mark.parametrize("table", ["sessions", "messages"])
def test_a_lost_table_is_a_gap(table: str, tmp_path: Path) -> None:
    told = edited(lambda db: db.execute(f"DROP TABLE {table}"), tmp_path)
    assert any(table in gap.detail for gap in told.gaps)


def test_an_index_of_an_unknown_kind_does_not_matter(tmp_path: Path) -> None:
    def change(db: sqlite3.Connection) -> None:
        db.execute("PRAGMA writable_schema = ON")
        db.execute(
            "INSERT INTO sqlite_master VALUES ('table', 'messages_fts', 'messages_fts', 0, "
            "'CREATE VIRTUAL TABLE messages_fts USING no_such_module(content)')"
        )

    assert edited(change, tmp_path).gaps == ()


def test_a_database_that_never_ends_is_stopped(tmp_path: Path) -> None:
    def change(db: sqlite3.Connection) -> None:
        names = ", ".join(f"i AS {name}" for name in MessageRow.model_fields)
        db.execute("DROP TABLE messages")
        db.execute(
            "CREATE VIEW messages AS WITH RECURSIVE n(i) AS "
            f"(SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT {names}, i AS rowid FROM n "
            "WHERE i < 0"
        )

    make_database(tmp_path / "state.db", SQL, change)
    found = read_database(tmp_path / "state.db", most_steps=10)
    assert [gap.detail for gap in found.gaps] == ["table messages: interrupted"]
    assert found.sessions


def test_links_are_never_followed(tmp_path: Path) -> None:
    secret = lay_out("hermes", "tool_success", tmp_path / "outside")
    folder = tmp_path / "native"
    folder.mkdir()
    (folder / "state.db").symlink_to(secret / "hermes/state.db")
    (folder / JOURNAL).symlink_to(secret / JOURNAL)
    (folder / "hermes").symlink_to(secret / "hermes")
    assert HERMES.parse(folder, NativeContext()).records == ()
