"""Damaged databases: cut files, strange rows and hostile links are gaps, never errors."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.evidence.observations import InvocationStatus, Observations
from sandbox.harnesses.base import NativeContext
from sandbox.harnesses.native import find_files, json_value
from sandbox.harnesses.opencode import OPENCODE
from sandbox.harnesses.opencode_database import read_database
from tests.fixtures.native.recorded import HERE, lay_out, make_database
from tests.unit.damage import put_anything_anywhere
from tests.unit.told import invocations as roots

SQL = (HERE / "opencode/tool_exit_7/opencode.sql").read_text()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    make_database(folder / "opencode.db", SQL)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def parse(files: dict[str, bytes]) -> Observations:
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / name).write_bytes(data)
        return OPENCODE.parse(Path(folder), NativeContext())


def edited(change: Callable[[sqlite3.Connection], object], folder: Path) -> Observations:
    make_database(folder / "opencode.db", SQL, change)
    return OPENCODE.parse(folder, NativeContext())


@given(data=st.data())
def test_cut_at_any_byte_it_is_survived(files: dict[str, bytes], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["opencode.db", "opencode.db-wal"]))
    end = data.draw(st.integers(min_value=0, max_value=len(files[name]) - 1))
    told = parse({**files, name: files[name][:end]})
    assert [root.status for root in roots(told)] in (
        [],
        [InvocationStatus.UNKNOWN],
        [InvocationStatus.COMPLETED],
    )
    assert roots(told) or "agent_transcript_unavailable" in {gap.code for gap in told.gaps}


@given(data=st.data())
def test_wrong_bytes_are_survived(files: dict[str, bytes], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(files)))
    at = data.draw(st.integers(min_value=0, max_value=len(files[name]) - 1))
    noise = data.draw(st.binary(min_size=1, max_size=64))
    whole = files[name]
    told = parse({**files, name: whole[:at] + noise + whole[at + len(noise) :]})
    assert told.model_validate_json(told.model_dump_json()) == told


@given(table=st.sampled_from(["message", "part"]), row=st.integers(0, 5), data=st.data())
def test_any_value_in_any_place_is_survived(table: str, row: int, data: st.DataObject) -> None:
    def change(db: sqlite3.Connection) -> None:
        found = db.execute(
            f"SELECT id, data FROM {table} ORDER BY id LIMIT 1 OFFSET ?", (row,)
        ).fetchone()
        if found is None:
            return
        record = json.loads(found[1])
        put_anything_anywhere(record, data)
        db.execute(f"UPDATE {table} SET data = ? WHERE id = ?", (json.dumps(record), found[0]))

    with tempfile.TemporaryDirectory() as folder:
        told = edited(change, Path(folder))
    assert told.model_validate_json(told.model_dump_json()) == told


@pytest.mark.parametrize(
    "data",
    ["", "{", "[1]", '"text"', "[" * 100_000, b"\x00\xff", None, 7, '{"role": 3}'],
    ids=["empty", "half", "list", "text", "deep", "bytes", "null", "number", "wrong-type"],
)
def test_a_row_that_cannot_be_read_is_a_gap(data: object, tmp_path: Path) -> None:
    def change(db: sqlite3.Connection) -> None:
        db.execute("CREATE TABLE loose AS SELECT * FROM message")
        db.execute("DROP TABLE message")
        db.execute("ALTER TABLE loose RENAME TO message")
        newest = "SELECT id FROM message ORDER BY id DESC LIMIT 1"
        db.execute(f"UPDATE message SET data = ? WHERE id = ({newest})", (data,))

    told = edited(change, tmp_path)
    codes = {gap.code for gap in told.gaps}
    assert "agent_artifact_record_unparseable" in codes
    assert [root.status for root in roots(told)] == [InvocationStatus.UNKNOWN]
    assert "invocation_outcome_unavailable" in codes


def test_a_lost_session_row_leaves_its_messages_readable(tmp_path: Path) -> None:
    told = edited(lambda db: db.execute("DELETE FROM session"), tmp_path)
    assert [root.status for root in roots(told)] == [InvocationStatus.COMPLETED]


@pytest.mark.parametrize("table", ["session", "message", "part"])
def test_a_lost_table_is_a_gap(table: str, tmp_path: Path) -> None:
    told = edited(lambda db: db.execute(f"DROP TABLE {table}"), tmp_path)
    assert any(table in gap.detail for gap in told.gaps)


def test_a_tool_call_that_is_there_twice_is_a_gap(tmp_path: Path) -> None:
    def change(db: sqlite3.Connection) -> None:
        db.execute(
            "INSERT INTO part SELECT id || 'z', message_id, session_id, time_created, "
            "time_updated, data FROM part WHERE data LIKE '%call00010x%'"
        )

    told = edited(change, tmp_path)
    assert "duplicate_tool_call" in {gap.code for gap in told.gaps}


def test_an_unknown_part_is_a_gap(tmp_path: Path) -> None:
    told = edited(
        lambda db: db.execute(
            "UPDATE part SET data = '{\"type\": \"new\"}' WHERE data LIKE '%step-start%'"
        ),
        tmp_path,
    )
    assert {gap.code for gap in told.gaps} >= {"agent_artifact_record_unparseable"}


def test_a_database_that_never_ends_is_stopped(tmp_path: Path) -> None:
    def change(db: sqlite3.Connection) -> None:
        db.execute("DROP TABLE part")
        db.execute(
            "CREATE VIEW part AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
            "SELECT i AS id, i AS message_id, i AS session_id, i AS time_created, i AS data FROM n "
            "WHERE i < 0"
        )

    make_database(tmp_path / "opencode.db", SQL, change)
    found = read_database(tmp_path / "opencode.db", most_steps=10)
    assert [gap.detail for gap in found.gaps] == ["table part: interrupted"]
    assert found.sessions


def test_links_are_never_followed(tmp_path: Path) -> None:
    secret = tmp_path / "outside"
    lay_out("opencode", "tool_success", secret)
    folder = tmp_path / "native"
    folder.mkdir()
    (folder / "opencode.db").symlink_to(secret / "db/opencode.db")
    (folder / "stdout").symlink_to(secret / "stdout")
    (folder / "db").symlink_to(secret / "db")
    assert OPENCODE.parse(folder, NativeContext()).records == ()
    assert find_files(folder, "*") == []


def test_a_linked_log_is_not_read(tmp_path: Path) -> None:
    whole = lay_out("opencode", "tool_success", tmp_path / "whole")
    folder = lay_out("opencode", "tool_success", tmp_path / "native")
    (folder / "db/opencode.db-wal").unlink()
    (folder / "db/opencode.db-wal").symlink_to(whole / "db/opencode.db-wal")
    (folder / "stdout").unlink()
    assert OPENCODE.parse(folder, NativeContext()).records == ()


def test_json_holds_no_lone_surrogate_and_no_constant() -> None:
    assert json_value('"a\\ud800b"') == "a\ufffdb"
    assert json_value('{"\\udfff": "\\ud83d\\ude00"}') == {"\ufffd": "\U0001f600"}
    with pytest.raises(ValueError, match="NaN"):
        json_value("NaN")
