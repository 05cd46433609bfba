"""Checks of whose a model call is: the verifier's, a subagent's, a compaction's."""

from __future__ import annotations

from sandbox.evidence.checks.check import check
from sandbox.evidence.exchanges import ToolWitness
from sandbox.evidence.observations import AgentInvocation, ContextCompaction
from sandbox.evidence.verdict import Outcome, Tier, failed, judged_by, not_applicable
from sandbox.evidence.view import CellEvidence


@check(
    tier=Tier.P0,
    kind="semantic",
    group="TE-8",
    why="a judge's calls counted as the agent's are trained on, and hide an agent that never asked",
)
def verifier_calls(cell: CellEvidence) -> Outcome:
    """The verifier's own model calls are its, all of them, and none is in the agent's row."""
    asked = [e.exchange_id for e in cell.exchanges if e.caller == "verifier"]
    verifier = cell.witness.verifier
    listed = [] if verifier is None else list(verifier.model_calls)
    wanted = cell.expected.verifier_calls if verifier is not None else 0
    faults = []
    if len(asked) != wanted:
        faults.append(f"expected {wanted} model calls of the verifier, saw {len(asked)}")
    if sorted(listed) != sorted(asked):
        faults.append(f"the verifier had the answers {listed}, the server saw {asked}")
    row = cell.row
    agents = {call.model_call_id for call in row.ng_model_call_capture.calls}
    agents |= {call.model_call_id for call in row.ng_trajectory.model_calls}
    faults += [f"the verifier's call {name} is in the row" for name in asked if name in agents]
    if not wanted and not asked and not faults:
        return not_applicable("the verifier asks no model")
    return judged_by(faults)


@check(
    tier=Tier.P1,
    kind="semantic",
    group="TE-8",
    why="a subagent's work told as the root's hides who did what, and at which cost",
)
def subagents_joined(cell: CellEvidence) -> Outcome:
    """What a subagent did is in an invocation of its own, with its parent and what spawned it."""
    spawned = [tool for tool in cell.scripted_tools if tool.expected.spawned_by is not None]
    asked = {name for exchange in cell.exchanges for name in exchange.tool_call_ids}
    tools = [tool for tool in spawned if tool.expected.spawned_by in asked and tool.requested]
    children = [i for i in cell.invocations if i.parent_invocation_id is not None]
    if not tools:
        return _without_subagent(cell, children)
    faults = []
    for tool in tools:
        faults += _join_faults(cell, tool, children)
    return judged_by(faults)


def _without_subagent(cell: CellEvidence, children: list[AgentInvocation]) -> Outcome:
    if children:
        return failed(f"no subagent was asked for, yet {children[0].invocation_id} is told")
    if cell.expected.subagents and cell.cell.capabilities.get("subagents"):
        return failed("the harness says that it has subagents, and none could be started")
    return not_applicable("no subagent was started")


def _join_faults(
    cell: CellEvidence, tool: ToolWitness, children: list[AgentInvocation]
) -> list[str]:
    name, spawn = tool.expected.tool_call_id, tool.expected.spawned_by
    owners = [record.invocation_id for record in cell.tool_calls if record.tool_call_id == name]
    found = [child for child in children if child.invocation_id in owners]
    if len(owners) != 1 or not found:
        return [f"tool call {name} of a subagent is told of {owners or 'nobody'}"]
    child = found[0]
    faults = []
    if child.parent_invocation_id != cell.root.invocation_id:
        faults.append(f"the subagent's parent is {child.parent_invocation_id}, not the root")
    if child.spawned_by_tool_call_id != spawn:
        seen = child.spawned_by_tool_call_id
        faults.append(f"expected the subagent to be spawned by {spawn}, saw {seen}")
    mine = {ref.model_call_id for ref in child.model_calls}
    behind = {e.exchange_id for e in cell.exchanges if name in e.tool_call_ids}
    faults += [f"model call {call} of the subagent is not its own" for call in behind - mine]
    return faults


@check(
    tier=Tier.P1,
    kind="semantic",
    group="TE-9",
    why="a history that was shortened in silence makes the next answer look like a mistake",
)
def compaction_recorded(cell: CellEvidence) -> Outcome:
    """A shortened history has a record, which names the call that wrote the summary, if one did."""
    records = [r for r in cell.observations.records if isinstance(r, ContextCompaction)]
    if not cell.expected.compaction:
        return not_applicable("the scenario gives no reason to shorten the history")
    if not records:
        if not cell.cell.capabilities.get("compaction"):
            return not_applicable("the harness does not shorten its history")
        return failed("the model claimed a full context, and no compaction is recorded")
    return judged_by(
        [
            f"the compaction of {r.invocation_id} has no outcome"
            for r in records
            if r.outcome is None
        ]
    )


CHECKS = (verifier_calls, subagents_joined, compaction_recorded)
