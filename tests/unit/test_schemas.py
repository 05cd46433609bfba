"""The published JSON Schemas take everything that is written, and nothing else."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from sandbox.evidence.schemas import schema
from tests.broken.goodcells import good, write

FILES = {
    "rollouts.jsonl": "rollout-row",
    "failures.jsonl": "failure-row",
    "cell.json": "cell",
    "witness.json": "witness",
    "exchanges.jsonl": "exchange",
    "receipt.json": "cleanup-receipt",
    "install.json": "install-receipt",
    "egress.jsonl": "egress-event",
}


@cache
def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(schema(name))


def documents(path: Path) -> list[Any]:
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    return [json.loads(line) for line in lines]


def test_a_schema_is_one() -> None:
    Draft202012Validator.check_schema(schema("observations"))


@pytest.mark.parametrize("scenario", ["tool_success", "model_error", "run_timeout"])
def test_a_cells_files_validate(scenario: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "cell", good(scenario))
    seen = set()
    for path in folder.iterdir():
        name = FILES.get(path.name)
        for document in documents(path) if name else ():
            assert name is not None
            seen.add(name)
            assert [error.message for error in validator(name).iter_errors(document)] == []
    assert {"cell", "witness", "exchange"} < seen


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda row: row.update(reward="1.0"), "is not of type"),
        (lambda row: row.pop("ng_trajectory"), "required property"),
        (lambda row: row.update(more=1), "Additional properties"),
        (lambda row: row["ng_agent_observations"].update(source=None), "is not of type"),
    ],
    ids=["type", "missing", "more", "nested"],
)
def test_a_row_that_is_none_does_not(change: Any, said: str, tmp_path: Path) -> None:
    (row,) = documents(write(tmp_path / "cell", good("tool_success")) / "rollouts.jsonl")
    change(row)
    (error,) = validator("rollout-row").iter_errors(row)
    assert said in error.message
