"""Checks of the row's form: it parses strictly, and all its ids agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sandbox.evidence.checks.check import check
from sandbox.evidence.observations import AgentInvocation, ToolCall
from sandbox.evidence.rows import Trajectory
from sandbox.evidence.verdict import Outcome, Tier, judged_by
from sandbox.evidence.view import CellEvidence


@check(
    tier=Tier.P0,
    kind="schema",
    group="row",
    why="a row that its readers cannot parse, or that names another task, is lost",
)
def row_schema(cell: CellEvidence) -> Outcome:
    """All files parse, there is one row, and cell, row, trajectory and capture name one rollout."""
    faults = [f"{name}: {problem}" for name, problem in sorted(cell.files.problems.items())]
    if faults:
        return judged_by(faults)
    row, ids = cell.row, cell.cell
    named = [
        ("the row", row.task_id, row.rollout_id),
        ("ng_trajectory", row.ng_trajectory.task_id, row.ng_trajectory.rollout_id),
        ("ng_model_call_capture", ids.task_id, row.ng_model_call_capture.rollout_id),
        *(("a turn", turn.task_id, turn.rollout_id) for turn in row.ng_trajectory.turns),
    ]
    for what, task_id, rollout_id in dict.fromkeys(named):
        if task_id != ids.task_id:
            faults.append(f"{what}: expected task {ids.task_id}, saw {task_id}")
        if rollout_id != ids.rollout_id:
            faults.append(f"{what}: expected rollout {ids.rollout_id}, saw {rollout_id}")
    faults += _trajectory_faults(row.ng_trajectory)
    faults += _invocation_faults(cell.invocations)
    return judged_by(faults + _timing_faults(cell))


def _trajectory_faults(trajectory: Trajectory) -> list[str]:
    turns = Counter((turn.invocation_id, turn.turn_no) for turn in trajectory.turns)
    return [
        f"turn {number} of {name} occurs {n} times" for (name, number), n in turns.items() if n > 1
    ]


def _invocation_faults(invocations: Iterable[AgentInvocation]) -> list[str]:
    known = list(invocations)
    ids = Counter(invocation.invocation_id for invocation in known)
    faults = [f"invocation id {name} occurs {n} times" for name, n in ids.items() if n > 1]
    parents = {i.invocation_id: i.parent_invocation_id for i in known}
    faults += [f"invocation {name} is its own ancestor" for name in ids if _in_cycle(name, parents)]
    for invocation in known:
        for ref in invocation.model_calls:
            if ref.model_call_id is None and (ref.model_ref is None or ref.response_id is None):
                faults.append(f"a model call reference of {invocation.invocation_id} names no call")
    return faults


def _in_cycle(name: str, parents: dict[str, str | None]) -> bool:
    seen: set[str] = set()
    current = parents.get(name)
    while current is not None and current not in seen:
        if current == name:
            return True
        seen.add(current)
        current = parents.get(current)
    return False


def _timing_faults(cell: CellEvidence) -> list[str]:
    timed: list[tuple[str, float | None, float | None]] = [
        (f"tool call {r.tool_call_id}", r.started_at, r.completed_at)
        for r in cell.observations.records
        if isinstance(r, ToolCall)
    ]
    timed += [
        (f"model call {call.model_call_id}", call.started_at, call.completed_at)
        for call in cell.row.ng_model_call_capture.calls
    ]
    return [
        f"{what} ends before it starts"
        for what, start, end in timed
        if start is not None and end is not None and end < start
    ]


CHECKS = (row_schema,)
