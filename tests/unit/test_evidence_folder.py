"""Cell folders: whole or not at all, and the same facts when they are read again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from sandbox.conformance.scenarios import SCENARIOS
from sandbox.errors import CouldNotFindOut, UsageError
from sandbox.evidence.cell import CellRecord, RunRecord
from sandbox.evidence.celltexts import CellTexts
from sandbox.evidence.expectations import Expectation, StatusRun
from sandbox.evidence.folder import (
    cell_folder,
    find_cells,
    read_cell,
    read_run,
    write_cell,
    write_run,
)
from sandbox.evidence.observations import InvocationStatus
from sandbox.evidence.tally import digest_of
from tests.broken.goodcells import good, write


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_what_is_read_is_what_was_written(scenario: str, tmp_path: Path) -> None:
    files = good(scenario)
    assert read_cell(write(tmp_path / "cell", files)) == files


def test_the_files_of_a_folder_have_the_designed_names(tmp_path: Path) -> None:
    write(tmp_path / "a", good("tool_success"))
    write(tmp_path / "b", good("model_error"))
    common = {
        "cell.json",
        "witness.json",
        "exchanges.jsonl",
        "receipt.json",
        "install.json",
        "footprint.json",
        "egress.jsonl",
        "native",
    }
    assert {p.name for p in (tmp_path / "a").iterdir()} == common | {"rollouts.jsonl"}
    assert {p.name for p in (tmp_path / "b").iterdir()} == common | {"failures.jsonl"}


def test_rows_have_nemo_gym_s_keys(tmp_path: Path) -> None:
    folder = write(tmp_path / "cell", good("model_error"))
    row = json.loads((folder / "failures.jsonl").read_text())
    assert {key for key in row if key.startswith("_")} == {
        f"_ng_failure_{part}"
        for part in ("class", "kind", "stage", "message", "terminal", "partial_response")
    }
    assert {"ng_trajectory", "ng_agent_observations", "ng_model_call_capture"} <= row.keys()
    assert "reward" not in row


def test_a_cell_is_recorded_once(tmp_path: Path) -> None:
    write_cell(tmp_path / "cell", good())
    with pytest.raises(UsageError, match="exists already"):
        write_cell(tmp_path / "cell", good())


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    broken = replace(good(), witness="no record")  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        write_cell(tmp_path / "cells" / "cell", broken)
    assert list((tmp_path / "cells").iterdir()) == []


def test_only_a_record_that_was_replaced_is_put_into_words_again(tmp_path: Path) -> None:
    files, texts = good(), CellTexts()
    before = texts.of(files)
    assert files.witness is not None
    witness = files.witness.model_copy(update={"errors": ("another",)})
    after = texts.of(replace(files, witness=witness, egress=None))
    assert [name for name in before if after.get(name) is not before[name]] == [
        "witness.json",
        "egress.jsonl",
    ]
    write_cell(tmp_path / "cell", replace(files, witness=witness, native=()), texts=texts)
    assert read_cell(tmp_path / "cell") == replace(files, witness=witness, native=())


def test_half_a_surrogate_pair_loses_nothing_else(tmp_path: Path) -> None:
    files = good()
    assert files.exchanges is not None
    first = files.exchanges[0].model_copy(update={"request": {"input": "a\ud83d!"}})
    write_cell(tmp_path / "cell", replace(files, exchanges=(first,), native=()))
    kept = read_cell(tmp_path / "cell")
    assert kept.problems == {}
    assert kept.exchanges is not None
    assert kept.exchanges[0].request == {"input": "a\ufffd!"}
    assert digest_of(kept.exchanges[0]) == digest_of(first)


def test_native_files_and_symlinks_are_copied(tmp_path: Path) -> None:
    native = tmp_path / "native"
    (native / "sessions").mkdir(parents=True)
    (native / "sessions" / "a.jsonl").write_text("{}")
    (native / "link").symlink_to("/nowhere")
    write_cell(tmp_path / "cell", replace(good(), native=()), native=native)
    assert read_cell(tmp_path / "cell").native == ("link", "sessions/a.jsonl")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("witness.json", '"requested": true', '"requested": "true"'),
        ("receipt.json", '"timed_out"', '"timedout"'),
        ("exchanges.jsonl", '"status_code":200', '"status_code":"200"'),
        ("rollouts.jsonl", '"reward":1.0', '"reward":"1.0"'),
        ("install.json", '"prefix"', '"place"'),
        ("footprint.json", '"added"', '"new"'),
    ],
)
def test_reading_is_strict(name: str, old: str, new: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "cell", good())
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))
    assert list(read_cell(folder).problems) == [name]


def test_without_a_cell_record_there_is_nothing_to_judge(tmp_path: Path) -> None:
    folder = write(tmp_path / "cell", good())
    (folder / "cell.json").unlink()
    with pytest.raises(CouldNotFindOut, match="missing"):
        read_cell(folder)


def test_cells_are_found_in_order(tmp_path: Path) -> None:
    for scenario in ("tool_success", "model_error"):
        files = good(scenario)
        write(cell_folder(tmp_path, files.cell.cell_id), files)
    (tmp_path / "cells" / "codex" / "debian-12" / ".half.tmp-1").mkdir()
    assert [path.name for path in find_cells(tmp_path)] == ["model_error", "tool_success"]


def test_the_run_record_is_read_again(tmp_path: Path) -> None:
    record = RunRecord(run_id="r", profile="quick", cells=("a/b/c",), started_at=1.0)
    write_run(tmp_path, record)
    assert read_run(tmp_path) == record
    assert read_run(tmp_path / "nowhere") is None


def test_a_foreign_run_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema_version": "9"}')
    with pytest.raises(CouldNotFindOut, match="not a run record"):
        read_run(tmp_path)


def test_a_cell_id_is_its_three_names() -> None:
    cell = good().cell.model_dump()
    with pytest.raises(ValidationError, match="is not"):
        CellRecord.model_validate({**cell, "harness": "pi"})


def test_expectations_must_be_coherent() -> None:
    facts = {"proves": "x", "exchanges": (), "outcomes": (InvocationStatus.FAILED,)}
    with pytest.raises(ValidationError, match="needs a reward"):
        Expectation.model_validate({**facts, "row": "rollout"})
    with pytest.raises(ValidationError, match="failure_stage"):
        Expectation.model_validate({**facts, "row": "failure"})
    with pytest.raises(ValidationError, match="below at_least"):
        StatusRun(status=200, at_least=2)


def test_status_runs_read_well() -> None:
    runs = [
        StatusRun(status=200),
        StatusRun(status=500, at_least=2, at_most=2),
        StatusRun(status=400, at_most=None),
        StatusRun(status=429, at_least=1, at_most=3),
    ]
    assert [str(run) for run in runs] == ["200", "500 x2", "400 x1+", "429 x1-3"]
