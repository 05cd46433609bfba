"""The trajectory: turns, attempts, helper calls and tool outputs."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.evidence.observations import (
    AgentInvocation,
    ContextCompaction,
    InvocationStatus,
    MessageItem,
    ModelCallRef,
    Observations,
    ToolRequestItem,
)
from sandbox.evidence.trajectory import trajectory
from tests.broken.defects import observations
from tests.broken.goodcells import ANSWER, PROMPT, SESSION, good


def parts(scenario: str, dialect: str = "responses", **more: Any) -> Any:
    row = good(scenario, dialect, **more).row  # type: ignore[arg-type]
    assert row is not None
    return row.ng_trajectory


@pytest.mark.parametrize("dialect", ["responses", "chat"])
def test_each_step_is_a_turn(dialect: str) -> None:
    found = parts("tool_success", dialect)
    assert [turn.turn_no for turn in found.turns] == [1, 2, 3]
    assert [turn.question for turn in found.turns] == [PROMPT] * 3
    assert [turn.step_count for turn in found.turns] == [1, 2, 3]
    assert isinstance(found.turns[0].answer[0], ToolRequestItem)
    assert found.turns[2].answer == (MessageItem(role="assistant", text=ANSWER),)
    assert all(turn.resolved for turn in found.turns)


@pytest.mark.parametrize("dialect", ["responses", "chat"])
def test_retries_are_attempts_of_one_turn(dialect: str) -> None:
    found = parts("retry_500", dialect, statuses=(500, 500, 200, 200))
    assert [len(turn.model_calls) for turn in found.turns] == [3, 1]
    assert len(found.model_calls) == 4
    assert found.model_calls[0].response_metadata.error_category == "upstream_error"
    assert found.model_calls[0].token_stats is None


def test_an_unanswered_turn_is_not_resolved() -> None:
    found = parts("model_error")
    assert [(turn.resolved, turn.answer) for turn in found.turns] == [(False, ())]


def test_tool_calls_carry_the_output_of_the_transcript() -> None:
    found = parts("tool_failure")
    assert [(t.status, "first line" in (t.output or "")) for t in found.tool_calls] == [
        ("failed", True),
        ("completed", True),
    ]


def test_an_unfinished_tool_call_has_no_output() -> None:
    assert [tool.output for tool in parts("run_timeout").tool_calls] == [None]


def test_a_compaction_s_helper_call_is_owned_and_no_turn() -> None:
    files = good("tool_success")
    assert files.row is not None
    calls = files.row.ng_model_call_capture.calls
    helper = ModelCallRef(model_call_id=calls[1].model_call_id)
    known = observations(files)
    with_helper = known.model_copy(
        update={
            "records": (
                *known.records,
                ContextCompaction(invocation_id=SESSION, model_calls=(helper,)),
            )
        }
    )
    found = trajectory(with_helper, calls, task_id="t", rollout_id="r")
    assert len(found.turns) == 2
    assert len(found.invocations[0].model_calls) == 3


def test_calls_without_an_owner_are_no_turns() -> None:
    files = good("tool_success")
    assert files.row is not None
    stranger = AgentInvocation(invocation_id="other", status=InvocationStatus.UNKNOWN)
    calls = files.row.ng_model_call_capture.calls
    found = trajectory(
        Observations(source="test", records=(stranger,)), calls, task_id="t", rollout_id="r"
    )
    assert found.turns == ()
    assert len(found.gaps) == 3


@given(seed=st.integers(0, 50))
def test_the_order_of_calls_does_not_matter(seed: int) -> None:
    files = good("retry_500")
    assert files.row is not None
    calls = list(files.row.ng_model_call_capture.calls)
    random.Random(seed).shuffle(calls)
    found = trajectory(
        observations(files), calls, task_id=files.row.task_id, rollout_id=files.row.rollout_id
    )
    assert found == files.row.ng_trajectory
