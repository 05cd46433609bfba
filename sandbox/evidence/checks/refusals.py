"""Checks of tool calls that cannot be carried out as they are: refused, told, cut short."""

from __future__ import annotations

import re

from sandbox.evidence.checks import polls
from sandbox.evidence.checks.check import check
from sandbox.evidence.exchanges import ToolWitness
from sandbox.evidence.observations import ToolStatus
from sandbox.evidence.verdict import Outcome, Tier, judged_by, not_applicable
from sandbox.evidence.view import CellEvidence

# The scripted output itself holds none of these.
_TOLD = re.compile(
    r"(?i)truncat|omitted|shortened|too (long|large)|exceed|saved to|full output|limit|elided"
    r"|skipped|\.\.\.|\u2026"
)


@check(
    tier=Tier.P1,
    kind="behavioral",
    group="TE-5",
    why="a call that the model got wrong, run as somebody's guess, does what nobody asked for",
)
def calls_refused(cell: CellEvidence) -> Outcome:
    """An unknown tool or broken arguments run nothing; the model is told, the record says so."""
    if not cell.refused_tools:
        return not_applicable("no reply asked for a call that must be refused")
    faults = []
    for tool in cell.refused_tools:
        name = tool.expected.tool_call_id
        if tool.marker_found:
            faults.append(
                f"tool call {name} was carried out: its file {tool.expected.marker} exists"
            )
        if not polls.sent(cell, name):
            faults.append(f"the model got no result of tool call {name}")
        statuses = [r.status for r in cell.tool_calls if r.tool_call_id == name]
        if len(statuses) != 1:
            faults.append(f"expected one observation of tool call {name}, saw {len(statuses)}")
        elif statuses[0] is ToolStatus.COMPLETED:
            faults.append(f"tool call {name} cannot have run, and is called completed")
    return judged_by(faults)


@check(
    tier=Tier.P1,
    kind="behavioral",
    group="TE-5",
    why="a model that takes a part of an output for the whole of it draws wrong conclusions",
)
def truncation_told(cell: CellEvidence) -> Outcome:
    """Of a huge output the model gets all, or is told what is missing; no letter is broken."""
    huge = [tool for tool in cell.run_tools if tool.expected.output_bytes is not None]
    if not huge:
        return not_applicable("no scripted command prints more than a result can hold")
    faults = []
    for tool in huge:
        name = tool.expected.tool_call_id
        results = polls.sent(cell, name)
        kept = polls.kept(cell, name)
        if not results:
            faults.append(f"the model got no result of tool call {name}")
        if not kept:
            faults.append(f"no result of tool call {name} in the transcript")
        for text in dict.fromkeys((*results, *kept)):
            faults += _cut_faults(text, tool)
    return judged_by(faults)


def _cut_faults(text: str, tool: ToolWitness) -> list[str]:
    name, whole = tool.expected.tool_call_id, tool.expected.output_bytes or 0
    faults = []
    if "\N{REPLACEMENT CHARACTER}" in text:
        faults.append(f"the result of tool call {name} holds a broken character")
    size = len(text.encode(errors="replace"))
    # without the line break at the end nothing is missing
    if size + len("\n") < whole and not _TOLD.search(text):
        faults.append(
            f"the result of tool call {name} has {size} of {whole} bytes, and does not say so"
        )
    return faults


CHECKS = (calls_refused, truncation_told)
