"""Checks of what the adapter reports: present, complete, and nothing that nobody asked for."""

from __future__ import annotations

from sandbox.evidence.checks.check import check
from sandbox.evidence.observations import ToolRequestItem
from sandbox.evidence.verdict import Outcome, Tier, failed, judged_by, not_applicable, passed
from sandbox.evidence.view import UNPARSEABLE, CellEvidence

_LOST = {"agent_artifact_unavailable", "agent_transcript_unavailable", "harness_not_run"}


@check(
    tier=Tier.P0,
    kind="semantic",
    group="TE-3",
    why="without observations a rollout cannot be replayed, debugged or trained on",
)
def observations_present(cell: CellEvidence) -> Outcome:
    """A root invocation, and a record and a transcript entry for each tool call asked for."""
    if cell.expected.failure_stage == "seed":
        return _never_ran(cell)
    # A run that was stopped may have been killed in the middle of a record.
    torn = cell.was_stopped or cell.expected.lossy
    lost = _LOST if torn else _LOST | {UNPARSEABLE}
    faults = [
        f"gap {gap.code}{f' ({gap.detail})' if gap.detail else ''}"
        for gap in cell.observations.gaps
        if gap.code in lost
    ]
    known = {invocation.invocation_id for invocation in (cell.root, *cell.invocations)}
    asked = cell.asked_for - cell.broken_off
    requests = {
        item.tool_call_id
        for invocation in cell.invocations
        for item in invocation.conversation
        if isinstance(item, ToolRequestItem)
    }
    told = {record.tool_call_id for record in cell.tool_calls}
    if not cell.records_lost:
        faults += [f"tool call {name} has no observation" for name in sorted(asked - told)]
        faults += [
            f"tool call {name} is not in a conversation" for name in sorted(asked - requests)
        ]
    faults += [
        f"tool call {record.tool_call_id} belongs to an unknown invocation {record.invocation_id}"
        for record in cell.tool_calls
        if record.invocation_id not in known
    ]
    faults += [f"no reply asked for tool call {name}" for name in sorted(told - _offered(cell))]
    return judged_by(faults)


def _never_ran(cell: CellEvidence) -> Outcome:
    if cell.calls:
        return failed(f"the harness must not run, yet it made {len(cell.calls)} model calls")
    return not_applicable("the harness was not run")


def _offered(cell: CellEvidence) -> set[str]:
    """Return the tool calls in any reply: a cut stream may have carried one."""
    return {name for exchange in cell.exchanges for name in exchange.tool_call_ids}


@check(
    tier=Tier.P1,
    kind="health",
    group="TE-7",
    why="a verdict that rests on a transcript nobody kept cannot be judged again",
)
def native_kept(cell: CellEvidence) -> Outcome:
    """The harness's own transcript or output was kept."""
    if cell.expected.failure_stage == "seed" and not cell.files.native:
        return not_applicable("the harness was not run")
    if cell.is_remote and not cell.files.native:
        return not_applicable("an agent server keeps its native files itself")
    return passed() if cell.files.native else failed("expected files in native/, saw none")


CHECKS = (observations_present, native_kept)
