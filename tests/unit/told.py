"""What an adapter told of its evidence, by kind of record."""

from __future__ import annotations

from sandbox.evidence.observations import AgentInvocation, Observations, ToolCall, ToolResultItem


def invocations(told: Observations) -> list[AgentInvocation]:
    """Return the invocations, the root first."""
    return [record for record in told.records if isinstance(record, AgentInvocation)]


def root(told: Observations) -> AgentInvocation:
    """Return the only invocation."""
    (found,) = invocations(told)
    return found


def tool_calls(told: Observations) -> list[ToolCall]:
    """Return the tool calls in order."""
    return [record for record in told.records if isinstance(record, ToolCall)]


def results(told: Observations) -> dict[str, ToolResultItem]:
    """Return what the model was told of each tool call, by the call's id."""
    return {
        item.tool_call_id: item
        for invocation in invocations(told)
        for item in invocation.conversation
        if isinstance(item, ToolResultItem)
    }


def codes(told: Observations) -> list[str]:
    """Return the codes of all gaps, sorted."""
    return sorted(gap.code for gap in told.gaps)
