"""The independent reader takes rows of real cells, and refuses a row for each rule it breaks."""

from __future__ import annotations

import ast
import lzma
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import rowfields, rowreader, rowrules
from tests.conformance.rowreader import FAILURES, ROLLOUTS, parse, refusals
from tests.conformance.rowrules import RULES

RECORDED = Path(__file__).parents[1] / "fixtures" / "rows"
Change = Callable[[dict[str, Any]], object]


def file_of(name: str) -> str:
    return FAILURES if name.endswith(f".{FAILURES}.xz") else ROLLOUTS


@cache
def text_of(name: str) -> str:
    return lzma.decompress((RECORDED / name).read_bytes()).decode()


def recorded() -> list[str]:
    return sorted(path.name for path in RECORDED.glob("*.xz"))


@pytest.mark.parametrize("name", recorded())
def test_rows_of_real_cells_are_accepted(name: str) -> None:
    (row,) = parse(file_of(name), text_of(name))
    assert refusals(file_of(name), row) == []


def records(row: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [one for one in row["ng_agent_observations"]["records"] if one["kind"] == kind]


def calls(row: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = row["ng_model_call_capture"]["calls"]
    return found


def turns(row: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = row["ng_trajectory"]["turns"]
    return found


def both(row: dict[str, Any], change: Callable[[dict[str, Any]], object]) -> None:
    """Change the first invocation where it was observed, and in the trajectory."""
    change(records(row, "agent_invocation")[0])
    change(row["ng_trajectory"]["invocations"][0])


def forget_owner(row: dict[str, Any]) -> None:
    call = calls(row)[-1]["model_call_id"]

    def without(invocation: dict[str, Any]) -> None:
        kept = [ref for ref in invocation["model_calls"] if ref["model_call_id"] != call]
        invocation["model_calls"] = kept

    both(row, without)
    turns(row).pop()


def circle(row: dict[str, Any]) -> None:
    first, second = records(row, "agent_invocation")
    first["parent_invocation_id"] = second["invocation_id"]


WHOLE, RETRIED, HANDED = "tool_success", "retry_500", "subagent"
REFUSED = "model_error"
DEFECTS: dict[str, tuple[str, str, Change]] = {
    "reward as text": ("fields", WHOLE, lambda row: row.update(reward="1.0")),
    "no mask_sample": ("fields", WHOLE, lambda row: row.pop("mask_sample")),
    "failure in rollouts": ("fields", WHOLE, lambda row: row.update(_ng_failure_kind="x")),
    "zero in failures": ("fields", REFUSED, lambda row: row.update(reward=0.0)),
    "unknown stage": ("fields", REFUSED, lambda row: row.update(_ng_failure_stage="later")),
    "unknown kind": (
        "fields",
        WHOLE,
        lambda row: records(row, "sandbox")[0].update(kind="container"),
    ),
    "key more": ("fields", WHOLE, lambda row: records(row, "tool_call")[0].update(cost=1)),
    "time in ms": ("fields", WHOLE, lambda row: calls(row)[0].update(started_at=1.8e12)),
    "unknown gap": (
        "fields",
        WHOLE,
        lambda row: row["ng_agent_observations"]["gaps"].append({"code": "lost"}),
    ),
    "negative count": (
        "fields",
        WHOLE,
        lambda row: calls(row)[0]["tokens"].update(input_tokens=-1),
    ),
    "empty reference": (
        "fields",
        WHOLE,
        lambda row: turns(row)[0]["model_calls"][0].update(model_call_id=None, response_id=None),
    ),
    "zero without an answer": (
        "grade",
        WHOLE,
        lambda row: [call.update(status_code=500) for call in calls(row)],
    ),
    "not evaluated": ("grade", WHOLE, lambda row: row.update(evaluation_completed=False)),
    "another rollout": (
        "identity",
        WHOLE,
        lambda row: row["ng_model_call_capture"].update(rollout_id="other"),
    ),
    "parents in a circle": ("invocations", HANDED, circle),
    "tool of nobody": (
        "hierarchy",
        WHOLE,
        lambda row: records(row, "tool_call")[0].update(invocation_id="other"),
    ),
    "spawned by nothing": (
        "hierarchy",
        HANDED,
        lambda row: records(row, "agent_invocation")[1].update(spawned_by_tool_call_id="other"),
    ),
    "call without owner": ("ownership", RETRIED, forget_owner),
    "call twice": ("ownership", WHOLE, lambda row: calls(row).append(calls(row)[0])),
    "reference to nothing": (
        "references",
        WHOLE,
        lambda row: turns(row)[0]["model_calls"].append({"model_call_id": "other"}),
    ),
    "retry as a turn": (
        "steps",
        RETRIED,
        lambda row: turns(row)[0].update(model_calls=turns(row)[0]["model_calls"][1:]),
    ),
    "turn number twice": ("steps", WHOLE, lambda row: turns(row)[1].update(turn_no=1)),
    "another answer": (
        "payloads",
        WHOLE,
        lambda row: row["ng_trajectory"]["model_calls"][0].update(response={}),
    ),
    "another count": (
        "payloads",
        WHOLE,
        lambda row: row["ng_trajectory"]["model_calls"][0]["token_stats"].update(prompt_tokens=0),
    ),
    "tool left out": (
        "observed",
        WHOLE,
        lambda row: row["ng_trajectory"]["tool_calls"].pop(),
    ),
    "ends before it begins": (
        "times",
        WHOLE,
        lambda row: records(row, "tool_call")[0].update(started_at=1.9e9),
    ),
    "duration in s": (
        "times",
        WHOLE,
        lambda row: row["ng_trajectory"]["model_calls"][0].update(duration_ms=1e6),
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_row_that_breaks_a_rule_is_refused(defect: str) -> None:
    rule, scenario, change = DEFECTS[defect]
    (name,) = RECORDED.glob(f"kilocode.{scenario}.*.xz")
    (row,) = parse(file_of(name.name), text_of(name.name))
    change(row)
    assert rule in {reason.split(":")[0] for reason in refusals(file_of(name.name), row)}


def test_there_is_a_defect_for_each_rule() -> None:
    assert {rule for rule, _, _ in DEFECTS.values()} == {"fields", *RULES}


@pytest.mark.parametrize("module", [rowfields, rowreader, rowrules])
def test_the_reader_knows_nothing_of_the_project(module: Any) -> None:
    tree = ast.parse(Path(module.__file__).read_text())
    named = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    named |= {
        one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names
    }
    own = {"tests.conformance.rowfields", "tests.conformance.rowrules"}
    standard = {"__future__", "json", "math", "collections", "collections.abc", "dataclasses"}
    assert named <= own | standard | {"pathlib", "typing"}
