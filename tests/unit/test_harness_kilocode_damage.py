"""Damaged databases of Kilo: cut files, strange rows and hostile schemas are gaps, never errors."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.evidence.observations import AgentInvocation, Observations, ToolCall, ToolStatus
from sandbox.harnesses.base import NativeContext
from sandbox.harnesses.kilocode import KILOCODE
from tests.fixtures.native.recorded import make_database
from tests.fixtures.native.recorded_kilo import lay_out_kilo, sql_of
from tests.unit.damage import put_anything_anywhere

VERSIONS = ["tool_timeout", "tool_timeout_7_0_33"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    found = {}
    for case in VERSIONS:
        folder = tmp_path_factory.mktemp("whole")
        make_database(folder / "kilo.db", sql_of(case))
        found[case] = {path.name: path.read_bytes() for path in folder.iterdir()}
    return found


def parse(files: dict[str, bytes]) -> Observations:
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / name).write_bytes(data)
        return KILOCODE.parse(Path(folder), NativeContext())


def holds(told: Observations) -> bool:
    return told.model_validate_json(told.model_dump_json()) == told


@pytest.mark.parametrize("case", VERSIONS)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_cut_at_any_byte_it_is_survived(
    files: dict[str, dict[str, bytes]], case: str, data: st.DataObject
) -> None:
    whole = files[case]
    name = data.draw(st.sampled_from(["kilo.db", "kilo.db-wal"]))
    end = data.draw(st.integers(min_value=0, max_value=len(whole[name]) - 1))
    told = parse({**whole, name: whole[name][:end]})
    assert holds(told)
    roots = [record for record in told.records if isinstance(record, AgentInvocation)]
    assert roots or "agent_transcript_unavailable" in {gap.code for gap in told.gaps}


@pytest.mark.parametrize("case", VERSIONS)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_wrong_bytes_are_survived(
    files: dict[str, dict[str, bytes]], case: str, data: st.DataObject
) -> None:
    whole = files[case]
    name = data.draw(st.sampled_from(sorted(whole)))
    at = data.draw(st.integers(min_value=0, max_value=len(whole[name]) - 1))
    noise = data.draw(st.binary(min_size=1, max_size=64))
    changed = whole[name][:at] + noise + whole[name][at + len(noise) :]
    assert holds(parse({**whole, name: changed}))


@pytest.mark.parametrize("case", VERSIONS)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_any_value_in_any_place_is_survived(case: str, data: st.DataObject) -> None:
    def change(db: sqlite3.Connection) -> None:
        rows = db.execute("SELECT id, data FROM part ORDER BY id").fetchall()
        row_id, text = data.draw(st.sampled_from(rows))
        record = json.loads(text)
        put_anything_anywhere(record, data)
        db.execute("UPDATE part SET data = ? WHERE id = ?", (json.dumps(record), row_id))

    with tempfile.TemporaryDirectory() as folder:
        told = KILOCODE.parse(lay_out_kilo(case, Path(folder), change), NativeContext())
    assert holds(told)


def test_a_note_that_the_command_printed_itself_is_no_end(tmp_path: Path) -> None:
    def change(db: sqlite3.Connection) -> None:
        db.execute(
            "UPDATE part SET data = json_set(data, '$.state.metadata.exit', 0) "
            "WHERE json_extract(data, '$.type') = 'tool'"
        )

    told = KILOCODE.parse(lay_out_kilo("tool_timeout_7_0_33", tmp_path, change), NativeContext())
    (call,) = [record for record in told.records if isinstance(record, ToolCall)]
    assert call.status is ToolStatus.COMPLETED


def test_an_unknown_end_stays_unknown(tmp_path: Path) -> None:
    def change(db: sqlite3.Connection) -> None:
        db.execute("UPDATE part SET data = replace(data, 'exceeding timeout', 'a while')")

    told = KILOCODE.parse(lay_out_kilo("tool_timeout_7_0_33", tmp_path, change), NativeContext())
    (call,) = [record for record in told.records if isinstance(record, ToolCall)]
    assert call.status is ToolStatus.UNKNOWN
    assert [gap.code for gap in told.gaps if "outcome" in gap.code] == ["tool_outcome_unavailable"]


def test_a_schema_that_runs_code_is_not_run(tmp_path: Path) -> None:
    def change(db: sqlite3.Connection) -> None:
        db.execute("CREATE TRIGGER evil AFTER DELETE ON session BEGIN DELETE FROM part; END")
        db.execute("CREATE VIEW endless AS SELECT json_group_array(id) FROM part")

    told = KILOCODE.parse(lay_out_kilo("tool_success", tmp_path, change), NativeContext())
    assert [r.status.value for r in told.records if isinstance(r, ToolCall)] == ["completed"] * 2


def test_links_are_never_followed(tmp_path: Path) -> None:
    lay_out_kilo("tool_success", tmp_path / "outside")
    folder = tmp_path / "native"
    folder.mkdir()
    for name in ("kilo.db", "stdout"):
        (folder / name).symlink_to(next((tmp_path / "outside").rglob(name)))
    (folder / "data").symlink_to(tmp_path / "outside/data")
    assert KILOCODE.parse(folder, NativeContext()).records == ()
