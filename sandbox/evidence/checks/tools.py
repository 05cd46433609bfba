"""Checks of the scripted tool calls: run, with the right status, output and HOME."""

from __future__ import annotations

import json
import re

from sandbox.evidence import payloads
from sandbox.evidence.checks import polls
from sandbox.evidence.checks.check import check
from sandbox.evidence.exchanges import ToolWitness
from sandbox.evidence.observations import ToolCall, ToolStatus
from sandbox.evidence.verdict import Outcome, Tier, failed, judged_by, not_applicable
from sandbox.evidence.view import CellEvidence

_NO_TOOLS = "the scenario has no tool call, and none was seen"
# How a harness says that a full disk cost it an output.
_NO_SPACE = re.compile(r"(?i)disk (is )?full|no space left|enospc")
_UNFINISHED = {
    ToolStatus.TIMEOUT,
    ToolStatus.CANCELLED,
    ToolStatus.INCOMPLETE,
    ToolStatus.FAILED,
}


@check(
    tier=Tier.P0,
    kind="behavioral",
    group="TE-5",
    why="a tool call that never ran, or ran unasked, makes the transcript a story",
)
def tools_executed(cell: CellEvidence) -> Outcome:
    """The scripted calls that must run were asked for and left their markers; no other ran."""
    tools = sorted(cell.scripted_tools, key=lambda tool: tool.expected.step)
    wanted = cell.expected.tools
    if len(tools) < wanted:
        return failed(f"expected {wanted} scripted tool calls, the witness knows {len(tools)}")
    faults = []
    for number, tool in enumerate(tools):
        name, asked = _name(tool), cell.was_asked(tool)
        if not tool.marker_found and _broken_off(cell, tool):
            continue
        if number < wanted and not asked:
            faults.append(f"{name} was never asked for")
        elif asked and not tool.marker_found:
            faults.append(f"{name} was asked for and left no marker {tool.expected.marker}")
        elif number >= wanted and asked:
            faults.append(f"{name} was asked for beyond the {wanted} expected calls")
        if tool.marker_found and not asked:
            faults.append(f"{name} left its marker without being asked for")
    if not wanted and not faults:
        return not_applicable(_NO_TOOLS)
    return judged_by(faults)


@check(
    tier=Tier.P0,
    kind="behavioral",
    group="TE-5",
    why="a failed or killed command that is called completed teaches the model that it worked",
)
def tool_status(cell: CellEvidence) -> Outcome:
    """The observed status and exit code of each tool call are the command's."""
    if not cell.run_tools:
        return _without_tools(cell)
    faults = []
    for tool in cell.run_tools:
        records = [r for r in cell.tool_calls if r.tool_call_id == tool.expected.tool_call_id]
        if not records and (cell.records_lost or _broken_off(cell, tool)):
            continue
        if len(records) != 1:
            faults.append(f"expected one observation of {_name(tool)}, saw {len(records)}")
            continue
        faults += _status_faults(cell, tool, records[0])
    return judged_by(faults)


def _status_faults(cell: CellEvidence, tool: ToolWitness, record: ToolCall) -> list[str]:
    code = tool.expected.exit_code
    accepted = _accepted(code)
    if _broken_off(cell, tool) or cell.result_lost(tool.expected.tool_call_id):
        accepted = {*accepted, ToolStatus.INCOMPLETE}
    if record.status is ToolStatus.UNKNOWN and code is None:
        gaps = {gap.code for gap in cell.observations.gaps}
        return (
            []
            if "tool_outcome_unavailable" in gaps
            else [f"{_name(tool)} has status unknown without a gap that says so"]
        )
    if record.status not in accepted:
        wanted = " or ".join(sorted(accepted))
        ended = "never ends" if code is None else f"exits {code}"
        return [f"{_name(tool)} {ended}: expected status {wanted}, saw {record.status}"]
    seen = [
        item.exit_code
        for item in cell.tool_results
        if item.tool_call_id == tool.expected.tool_call_id and item.exit_code is not None
    ]
    return [
        f"{_name(tool)}: expected exit code {code}, saw {wrong}"
        for wrong in seen
        if code is not None and wrong != code
    ]


def _accepted(code: int | None) -> set[ToolStatus]:
    if code is None:
        return _UNFINISHED
    return {ToolStatus.COMPLETED} if code == 0 else {ToolStatus.FAILED}


@check(
    tier=Tier.P0,
    kind="behavioral",
    group="TE-5",
    why="a model that is shown less than the command printed is trained on something else",
)
def tool_output(cell: CellEvidence) -> Outcome:
    """The whole output of each ended command is in the model's next request and the transcript."""
    if not cell.run_tools:
        return _without_tools(cell)
    faults = []
    ended = [tool for tool in cell.run_tools if tool.expected.exit_code is not None]
    huge = [tool for tool in ended if tool.expected.output_bytes is not None]
    ended = [tool for tool in ended if tool not in huge]
    for tool in ended:
        call_id = tool.expected.tool_call_id
        to_model = polls.sent(cell, call_id)
        if cell.expected.lossy and (not to_model or any(map(_NO_SPACE.search, to_model))):
            continue
        kept = polls.kept(cell, call_id)
        faults += _output_faults(f"result of {_name(tool)} sent to the model", to_model, tool)
        if kept or not cell.records_lost:
            faults += _output_faults(f"result of {_name(tool)} in the transcript", kept, tool)
    if not ended and not faults:
        return not_applicable("no scripted command ends by itself")
    return judged_by(faults)


def _output_faults(what: str, texts: list[str], tool: ToolWitness) -> list[str]:
    wanted = tool.expected.output.strip("\n")
    if not texts:
        return [f"no {what}"]
    wrong = [text for text in texts if wanted and _times(text, wanted) != 1]
    if not wrong:
        return []
    return [f"{what}: expected {_quote(wanted)} once and whole, saw {_quote(wrong[0])}"]


def _times(text: str, wanted: str) -> int:
    """Count ``wanted`` in a result: as it is, or in the strings of a result that is JSON."""
    try:
        answer = json.loads(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        answer = None
    strings = answer.values() if isinstance(answer, dict) else ()
    in_strings = sum(value.count(wanted) for value in strings if isinstance(value, str))
    return text.count(wanted) or in_strings


@check(
    tier=Tier.P1,
    kind="behavioral",
    group="TE-5",
    why="a model that is not told that its command failed goes on as if it had worked",
)
def failure_told(cell: CellEvidence) -> Outcome:
    """The model reads of each failed command that it failed: an error mark, or its exit code."""
    failures = [tool for tool in cell.run_tools if tool.expected.exit_code]
    if not failures:
        return not_applicable("no scripted command fails")
    faults = []
    for tool in failures:
        call_id = tool.expected.tool_call_id
        texts = polls.sent(cell, call_id)
        marked = any(
            call_id in payloads.marked_failures(call.dialect, call.request) for call in cell.calls
        )
        told = [text for text in texts if _tells(text, tool)]
        ended = cell.expected.lossy and not texts
        if not marked and not told and not ended:
            faults.append(
                f"{_name(tool)} exited {tool.expected.exit_code}, and its result gives the model "
                "neither that code nor an error mark"
            )
    return judged_by(faults)


def _tells(text: str, tool: ToolWitness) -> bool:
    """Whether a result says the exit code in words beside the command's own output."""
    beside = text.replace(tool.expected.output.strip("\n"), "")
    return (
        re.search(rf"(?i)(exit|code|status)[^0-9\n]{{0,24}}\b{tool.expected.exit_code}\b", beside)
        is not None
    )


@check(
    tier=Tier.P1,
    kind="sandbox",
    group="isolation",
    why="a tool that sees the harness's private HOME finds other files than the task's own shell",
)
def task_home_used(cell: CellEvidence) -> Outcome:
    """Every scripted command saw the task's HOME."""
    ran = [tool for tool in cell.scripted_tools if tool.marker_found]
    if not ran:
        seen = [tool for tool in cell.scripted_tools if tool.home_seen is not None]
        if seen:
            return failed(f"{_name(seen[0])} left no marker but noted HOME {seen[0].home_seen}")
        return _without_tools(cell)
    home = cell.seen(cell.witness.task_home, "the task's HOME")
    return judged_by(
        [
            f"{_name(tool)}: expected HOME {home}, saw {tool.home_seen or 'none noted'}"
            for tool in ran
            if tool.home_seen != home
        ]
    )


def _without_tools(cell: CellEvidence) -> Outcome:
    """Judge a cell in which the witness saw no scripted tool call."""
    if cell.expected.tools:
        return failed(f"expected {cell.expected.tools} scripted tool calls, saw none")
    offered = {name for exchange in cell.exchanges for name in exchange.tool_call_ids}
    told = [call.tool_call_id for call in cell.tool_calls if call.tool_call_id not in offered]
    if told:
        return failed(f"no tool call was asked for, yet {told[0]} is told")
    return not_applicable(_NO_TOOLS)


def _broken_off(cell: CellEvidence, tool: ToolWitness) -> bool:
    return tool.expected.tool_call_id in cell.broken_off


def _name(tool: ToolWitness) -> str:
    return f"tool call {tool.expected.tool_call_id}"


def _quote(text: str, limit: int = 60) -> str:
    short = text if len(text) <= limit else f"{text[: limit // 2]}...{text[-limit // 2 :]}"
    return f"{short!r} ({len(text)} characters)"


CHECKS = (tools_executed, tool_status, tool_output, failure_told, task_home_used)
