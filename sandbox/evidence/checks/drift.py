"""What a harness declares of itself, held against what the cell's evidence shows of it.

A probe says what the evidence shows of one capability, or nothing where the cell gave it no
opportunity to show: then neither "seen" nor "not seen" means anything. Scenarios that give the
opportunity need no name here: their commands leave notes beside their markers (``note_of``), and a
command whose text names a note that is not there has shown the opposite.

Not held against anything: ``response_ids`` (a row's references are those of the join, whoever gave
the identifier; where it is declared, a subagent's calls may do without the header),
``slow_start_s`` and ``peak_memory_mib`` (a matter of the machine) and ``project_instructions``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from pydantic import JsonValue

from sandbox.evidence import payloads
from sandbox.evidence.capture import is_completed
from sandbox.evidence.checks.check import check
from sandbox.evidence.exchanges import Exchange, ToolWitness
from sandbox.evidence.notes import AT_ONCE, BASH, KEY_SEEN, note_of
from sandbox.evidence.observations import ContextCompaction
from sandbox.evidence.records import Record
from sandbox.evidence.verdict import MissingEvidence, Outcome, Tier, judged_by, not_applicable
from sandbox.evidence.view import CellEvidence

SUBAGENT_TOOLS = frozenset(
    {"agent", "delegate_task", "sessions_spawn", "spawn_agent", "subagent", "task"}
)
"""Names (in small letters) of the tools that start a subagent."""

_WITHOUT_ANSWER = ("hold", "stall_headers")
_WITHOUT_END = ("stall_stream",)
# Adapters divide the episode's deadline at most by two (for the wait for an answer), so a request
# that was open for more than this part of a run has outlasted any limit of the harness's own.
_PART_OF_RUN = 0.6


class Shown(Record):
    """What the evidence shows of one capability, and where."""

    value: JsonValue
    where: str


Probe = Callable[[CellEvidence, JsonValue], Shown | None]


@check(
    tier=Tier.P1,
    kind="behavioral",
    group="drift",
    why="other checks apply by what a harness declares: a wrong declaration hides what they find",
)
def drift(cell: CellEvidence) -> Outcome:
    """Every declared capability that the cell could show is as declared, either way."""
    declared = cell.cell.capabilities
    if not declared:
        return not_applicable("the agent declares nothing of itself")
    if lacking := sorted(PROBES.keys() - declared.keys()):
        raise MissingEvidence(f"cell.json does not declare {', '.join(lacking)}")
    seen = {name: probe(cell, declared[name]) for name, probe in PROBES.items()}
    if not any(seen.values()):
        return not_applicable("the cell gave no capability an opportunity to show")
    return judged_by(
        [
            f"{name} is declared {json.dumps(declared[name])}, but {shown.where}"
            for name, shown in seen.items()
            if shown is not None and shown.value != declared[name]
        ]
    )


def _dialect(cell: CellEvidence, declared: JsonValue) -> Shown | None:
    spoken = [call.dialect for call in cell.calls]
    others = [dialect for dialect in spoken if dialect != declared]
    if others:
        return Shown(value=others[0], where=f"{len(others)} model calls speak {others[0]}")
    return Shown(value=declared, where="it is spoken") if spoken else None


def _session_header(cell: CellEvidence, declared: JsonValue) -> Shown | None:
    ids = {call.model_call_id for call in cell.calls}
    asked = [exchange for exchange in cell.exchanges if exchange.exchange_id in ids]
    if not asked:
        return None
    known = {invocation.invocation_id for invocation in cell.invocations}
    if declared is None:
        return _undeclared_header(asked, known)
    name = str(declared)
    for exchange in asked:
        value = exchange.headers.get(name)
        if value is None and exchange.exchange_id in _named_by_subagents(cell):
            continue
        if value is None:
            return Shown(value=None, where=f"model call {exchange.exchange_id} has no {name}")
        if known and value not in known:
            return Shown(value=None, where=f"{name} {value} is the id of no invocation")
    return Shown(value=declared, where="every model call has it")


def _named_by_subagents(cell: CellEvidence) -> set[str]:
    """Return the model calls that subagents' transcripts name: these need no header to be owned."""
    if not cell.cell.capabilities.get("response_ids"):
        return set()
    return {
        ref.model_call_id
        for invocation in cell.invocations
        if invocation.parent_invocation_id is not None
        for ref in invocation.model_calls
        if ref.model_call_id is not None
    }


def _undeclared_header(asked: Sequence[Exchange], known: set[str]) -> Shown:
    for name in sorted(asked[0].headers):
        if all(exchange.headers.get(name) in known for exchange in asked):
            return Shown(value=name, where=f"{name} is the invocation's id in every model call")
    return Shown(value=None, where="no header is the invocation's id")


def _parallel_tools(cell: CellEvidence, _: JsonValue) -> Shown | None:
    """Two commands of one reply ran at once when each saw the other at work."""
    by_id = {tool.expected.tool_call_id: tool for tool in _noting(cell, AT_ONCE)}
    for exchange in _whole_replies(cell):
        asked = [by_id[name] for name in exchange.tool_call_ids if name in by_id]
        if len(asked) < 2:
            continue
        alone = [tool for tool in asked if not _has_note(cell, tool, AT_ONCE)]
        if alone:
            call = alone[0].expected.tool_call_id
            return Shown(value=False, where=f"tool call {call} waited in vain for the other one")
        return Shown(value=True, where=f"{len(asked)} tool calls of one reply ran at once")
    return None


def _whole_replies(cell: CellEvidence) -> list[Exchange]:
    whole = {call.model_call_id for call in cell.calls if is_completed(call)}
    return [exchange for exchange in cell.exchanges if exchange.exchange_id in whole]


def _subagents(cell: CellEvidence, _: JsonValue) -> Shown | None:
    children = [i for i in cell.invocations if i.parent_invocation_id is not None]
    if children:
        return Shown(value=True, where=f"{children[0].invocation_id} is a subagent")
    offers = [payloads.tool_names(call.request) for call in cell.calls]
    names = [name for offer in offers for name in offer if name.lower() in SUBAGENT_TOOLS]
    if names:
        return Shown(value=True, where=f"the tool {names[0]} is advertised")
    return (
        Shown(value=False, where="no tool that starts one is advertised") if any(offers) else None
    )


def _compaction(cell: CellEvidence, _: JsonValue) -> Shown | None:
    seen = any(isinstance(record, ContextCompaction) for record in cell.observations.records)
    return Shown(value=True, where="the history was compacted") if seen else None


def _needs_bash(cell: CellEvidence, _: JsonValue) -> Shown | None:
    """A command that ran in another shell shows that none is needed; bash shows nothing."""
    for tool in _noting(cell, BASH):
        if not _has_note(cell, tool, BASH):
            call = tool.expected.tool_call_id
            return Shown(value=False, where=f"tool call {call} ran in another shell")
    return None


def _tools_see_key(cell: CellEvidence, _: JsonValue) -> Shown | None:
    for tool in _noting(cell, KEY_SEEN):
        call = tool.expected.tool_call_id
        if _has_note(cell, tool, KEY_SEEN):
            return Shown(value=True, where=f"tool call {call} has the key in its environment")
        return Shown(value=False, where=f"tool call {call} has no key in its environment")
    return None


def _request_deadline(cell: CellEvidence, _: JsonValue) -> Shown | None:
    return _ends_by_itself(cell, _WITHOUT_ANSWER, "a request without an answer")


def _stream_deadline(cell: CellEvidence, _: JsonValue) -> Shown | None:
    return _ends_by_itself(cell, _WITHOUT_END, "a stream that stalled")


def _ends_by_itself(cell: CellEvidence, faults: tuple[str, ...], what: str) -> Shown | None:
    """Whether the harness ends a request that hangs: by another one, or by its own end."""
    hung = [exchange for exchange in cell.exchanges if exchange.fault in faults]
    if not hung:
        return None
    first = min(hung, key=lambda exchange: exchange.started_at)
    later = any(call.started_at >= first.completed_at for call in cell.calls)
    lasted = first.completed_at - first.started_at
    if later or not cell.was_stopped:
        return Shown(value=True, where=f"{what} ended after {lasted:.0f} s")
    receipt = cell.files.receipt
    if receipt is not None and lasted > _PART_OF_RUN * (receipt.duration_s or lasted):
        return Shown(value=False, where=f"{what} was open for {lasted:.0f} s, until the run's end")
    return None


def _noting(cell: CellEvidence, note: str) -> list[ToolWitness]:
    """Return the commands that ran and would have left the note."""
    return [
        tool
        for tool in cell.run_tools
        if tool.marker_found and note_of(tool.expected.marker, note) in tool.expected.command
    ]


def _has_note(cell: CellEvidence, tool: ToolWitness, note: str) -> bool:
    files = cell.seen(cell.witness.workdir_files, "the files of the workdir")
    return note_of(tool.expected.marker, note) in files


PROBES: dict[str, Probe] = {
    "dialect": _dialect,
    "session_header": _session_header,
    "parallel_tools": _parallel_tools,
    "subagents": _subagents,
    "compaction": _compaction,
    "needs_bash": _needs_bash,
    "request_deadline": _request_deadline,
    "stream_deadline": _stream_deadline,
    "tools_see_key": _tools_see_key,
}

CHECKS = (drift,)
