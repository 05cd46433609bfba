"""Trajectories for other programs: complete, joined by ids, and refused when they do not add up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from sandbox.cli import main
from sandbox.evidence.folder import CellFiles
from sandbox.evidence.observations import AgentInvocation, InvocationStatus
from sandbox.evidence.rows import TrajectoryTurn
from sandbox.report.atif import (
    Agent,
    Metrics,
    Observation,
    ObservationResult,
    Step,
    SubagentTrajectoryRef,
    Trajectory,
)
from sandbox.report.atifexport import atif
from tests.broken.goodcells import SESSION, Dialect, good, write

AGENT = Agent(name="a", version="1")


def exported(files: CellFiles) -> Trajectory:
    found = atif(files)
    assert found is not None
    return Trajectory.model_validate_json(found.text(), strict=True)


@pytest.mark.parametrize("dialect", ["responses", "chat"])
def test_a_cell_s_steps_are_its_messages_and_turns(dialect: Dialect) -> None:
    files = good("tool_success", dialect)
    found = exported(files)
    assert [step.source for step in found.steps] == ["user", "agent", "agent", "agent"]
    first = found.steps[1]
    assert first.tool_calls is not None
    assert first.observation is not None
    (call,), (result,) = first.tool_calls, first.observation.results
    assert call.tool_call_id == result.source_call_id
    assert result.content is not None
    assert "first line" in result.content
    assert list(call.arguments) == ["command"]
    assert first.metrics == Metrics(prompt_tokens=9, completion_tokens=4)
    assert found.steps[-1].message == "The task is done."
    assert found.final_metrics is not None
    assert found.final_metrics.total_prompt_tokens == 27
    assert found.agent.version == "1.2.3"
    assert (found.extra or {})["reward"] == 1.0


def test_retries_are_one_step() -> None:
    found = exported(good("retry_500"))
    assert [step.llm_call_count for step in found.steps if step.source == "agent"] == [2, 1]
    assert (found.steps[1].extra or {})["statuses"] == [500, 200]


def test_a_turn_without_an_answer_says_so() -> None:
    found = exported(good("model_error"))
    last = found.steps[-1]
    assert (last.message, last.metrics) == ("", None)
    assert (last.extra or {})["resolved"] is False
    assert (found.extra or {})["failure"] == {"stage": "agent", "message": "status 400"}


def with_subagent() -> CellFiles:
    """Let the first tool call of a cell have spawned a subagent that took the last turn."""
    files = good("tool_success")
    assert files.row is not None
    joined = files.row.ng_trajectory
    child = AgentInvocation(
        invocation_id="child",
        parent_invocation_id=SESSION,
        spawned_by_tool_call_id=joined.tool_calls[0].tool_call_id,
        status=InvocationStatus.COMPLETED,
    )
    turns: list[TrajectoryTurn] = list(joined.turns)
    turns[-1] = turns[-1].model_copy(update={"invocation_id": "child", "turn_no": 1})
    update = {"invocations": (*joined.invocations, child), "turns": tuple(turns)}
    row = files.row.model_copy(update={"ng_trajectory": joined.model_copy(update=update)})
    return CellFiles(cell=files.cell, row=row)


def test_subagents_are_embedded_and_referred_to_by_the_call_that_spawned_them() -> None:
    found = exported(with_subagent())
    assert found.subagent_trajectories is not None
    (child,) = found.subagent_trajectories
    assert (child.trajectory_id, child.session_id) == ("child", found.session_id)
    assert found.steps[1].observation is not None
    (result,) = found.steps[1].observation.results
    assert result.subagent_trajectory_ref is not None
    assert result.subagent_trajectory_ref[0].trajectory_id == "child"


def test_arguments_that_are_no_object_are_kept_beside() -> None:
    files = good("tool_success")
    assert files.row is not None
    turn = files.row.ng_trajectory.turns[0]
    odd = tuple(
        item.model_copy(update={"arguments": "{not json"}) if item.type == "tool_request" else item
        for item in turn.answer
    )
    turns = (turn.model_copy(update={"answer": odd}), *files.row.ng_trajectory.turns[1:])
    joined = files.row.ng_trajectory.model_copy(update={"turns": turns})
    row = files.row.model_copy(update={"ng_trajectory": joined})
    step = exported(CellFiles(cell=files.cell, row=row)).steps[1]
    assert step.tool_calls is not None
    assert step.tool_calls[0].arguments == {}
    kept = (step.extra or {})["arguments_that_are_no_object"]
    assert kept == {step.tool_calls[0].tool_call_id: "{not json"}


def test_a_cell_without_a_row_has_no_trajectory() -> None:
    assert atif(CellFiles(cell=good().cell)) is None


def step(number: int = 1, **fields: object) -> Step:
    values = {"step_id": number, "source": "agent", "message": "", **fields}
    return Step.model_validate(values)


REF = SubagentTrajectoryRef(trajectory_id="x")


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (lambda: [step(2)], "do not count from 1"),
        (lambda: [step(source="user", metrics=Metrics())], "an agent's fields"),
        (lambda: [step(observation={"results": [{"source_call_id": "c"}]})], "answers the unknown"),
        (
            lambda: [
                step(
                    observation=Observation(
                        results=(ObservationResult(subagent_trajectory_ref=(REF,)),)
                    )
                )
            ],
            "no embedded trajectory x",
        ),
        (list, "at least 1 item"),
    ],
)
def test_what_breaks_the_format_is_refused(steps: object, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Trajectory(session_id="s", trajectory_id="t", agent=AGENT, steps=tuple(steps()))  # type: ignore[operator]


def test_a_run_is_exported_one_file_a_cell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = tmp_path / "run" / "cells" / "codex" / "debian-12"
    write(cells / "tool_success", good("tool_success"))
    write(cells / "retry_500", CellFiles(cell=good("retry_500").cell))
    assert main(["export", "--atif", str(tmp_path / "run"), "--output", str(tmp_path / "x")]) == 0
    out = capsys.readouterr().out
    assert "left out: codex/debian-12/retry_500 has no trajectory" in out
    path = tmp_path / "x/codex/debian-12/tool_success.json"
    assert json.loads(path.read_text())["schema_version"] == "ATIF-v1.7"
    assert main(["export", "--atif", str(cells / "tool_success")]) == 0
    assert json.loads(capsys.readouterr().out)["session_id"]
    assert main(["export", "--atif", str(tmp_path / "run")]) == 2
