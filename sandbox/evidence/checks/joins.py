"""Checks of the joins: each attempt has one owner or a gap, and retries share a step."""

from __future__ import annotations

from collections import Counter, defaultdict

from sandbox.evidence.checks.check import check
from sandbox.evidence.join import AMBIGUOUS, CONFLICT, UNMATCHED, join, unowned_calls
from sandbox.evidence.observations import ContextCompaction, InvocationStatus
from sandbox.evidence.verdict import Outcome, Tier, judged_by, not_applicable
from sandbox.evidence.view import CellEvidence

_REFERENCES = {UNMATCHED, AMBIGUOUS, CONFLICT}


@check(
    tier=Tier.P0,
    kind="semantic",
    group="TE-8",
    why="a model call with two owners, or with none and no gap, is counted wrongly",
)
def run_join(cell: CellEvidence) -> Outcome:
    """Each saved model call has exactly one owner or a gap, and the evidence agrees on which."""
    trajectory = cell.row.ng_trajectory
    owners = _owners(cell)
    in_gap = unowned_calls(trajectory.gaps)
    faults = []
    for call in cell.calls:
        name = call.model_call_id
        found = owners[name]
        if len(found) + (name in in_gap) != 1:
            gap = " and a gap" if name in in_gap else " and no gap" if not found else ""
            faults.append(f"model call {name} has {len(found)} owners{gap}")
    known = Counter(call.model_call_id for call in cell.calls)
    told = Counter(call.model_call_id for call in trajectory.model_calls)
    if known != told:
        faults.append(f"expected {known.total()} model calls in the trajectory, saw {told.total()}")
    if list(trajectory.invocations) != cell.invocations:
        faults.append("the trajectory's invocations differ from the observations'")
    if not faults:
        faults = _contradictions(cell, owners)
    return judged_by(faults)


def _owners(cell: CellEvidence) -> dict[str, list[str]]:
    owners: dict[str, list[str]] = defaultdict(list)
    for invocation in cell.row.ng_trajectory.invocations:
        for ref in invocation.model_calls:
            if ref.model_call_id is not None:
                owners[ref.model_call_id].append(invocation.invocation_id)
    return owners


def _contradictions(cell: CellEvidence, owners: dict[str, list[str]]) -> list[str]:
    """Compare the row's owners with a join of its observations and the saved exchanges."""
    again = join(cell.observations, cell.calls)
    faults = [
        f"model call {name}: the row says {found[0]}, its identifiers say {again.owners.get(name)}"
        for name, found in sorted(owners.items())
        if len(found) == 1 and again.owners.get(name) != found[0]
    ]
    told = {(gap.code, gap.detail) for gap in cell.row.ng_trajectory.gaps}
    faults += [
        f"conflicting owners of model call {gap.detail}, and no gap says so"
        for gap in again.observations.gaps
        if gap.code == CONFLICT and (gap.code, gap.detail) not in told
    ]
    return faults


@check(
    tier=Tier.P1,
    kind="semantic",
    group="TE-8",
    why="attempts that nobody owns are missing from the cost and the story of the run",
)
def attempts_owned(cell: CellEvidence) -> Outcome:
    """Every attempt, failed ones included, has an owner; no reference is open."""
    gaps = cell.row.ng_trajectory.gaps
    faults = [f"model call {name} has no owner" for name in sorted(unowned_calls(gaps))]
    faults += [f"{gap.code}: {gap.detail}" for gap in gaps if gap.code in _REFERENCES]
    if not cell.calls and not faults:
        return not_applicable("there was no model call")
    return judged_by(faults)


@check(
    tier=Tier.P1,
    kind="semantic",
    group="TE-9",
    why="retries counted as steps make a run look longer than it was",
)
def step_join(cell: CellEvidence) -> Outcome:
    """Each owned call is an attempt of one turn, and a completed run answered every turn."""
    helpers = {
        ref.model_call_id
        for record in cell.observations.records
        if isinstance(record, ContextCompaction)
        for ref in record.model_calls
    }
    owned = {name for name, found in _owners(cell).items() if found} - helpers
    turns = cell.row.ng_trajectory.turns
    attempts = Counter(ref.model_call_id for turn in turns for ref in turn.model_calls)
    faults = [
        f"expected model call {name} in one turn, saw it in {attempts[name]}"
        for name in sorted(owned)
        if attempts[name] != 1
    ]
    faults += [
        f"turn {turn.turn_no} of {turn.invocation_id} has no answered attempt"
        for turn in turns
        if turn.invocation_id == cell.root.invocation_id
        and cell.root.status is InvocationStatus.COMPLETED
        and not turn.resolved
    ]
    if not owned and not faults:
        return not_applicable("no model call has an owner")
    return judged_by(faults)


CHECKS = (run_join, attempts_owned, step_join)
