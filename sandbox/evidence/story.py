"""The story of one cell in the order in which it happened, from its recorded facts.

Times are seconds since the cell's start. A fact without a recorded time keeps the place at which
it can only have been, and says that its time was not recorded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import JsonValue

from sandbox.evidence import payloads
from sandbox.evidence.egress import destination, way
from sandbox.evidence.exchanges import Exchange
from sandbox.evidence.folder import CellFiles
from sandbox.evidence.observations import (
    ConversationItem,
    MessageItem,
    ToolCall,
    ToolRequestItem,
    ToolResultItem,
)
from sandbox.evidence.records import EgressEvent, Record
from sandbox.evidence.rows import FailureRow

EventKind = Literal["phase", "exchange", "tool", "egress", "end"]


class Part(Record):
    """A labelled text that belongs to an event: what was asked, what was said."""

    label: str
    text: str


class Event(Record):
    """One thing that happened; ``at`` and ``seconds`` are None when they were not recorded."""

    at: float | None
    kind: EventKind
    title: str
    seconds: float | None = None
    parts: tuple[Part, ...] = ()


def story(files: CellFiles) -> tuple[Event, ...]:
    """Return what happened in a cell: phases, exchanges, tool calls, look-ups and the end."""
    start = files.cell.started_at
    exchanges = sorted(files.exchanges or (), key=lambda exchange: exchange.started_at)
    found = [*_phases(files), *_exchanges(exchanges, start), *_tools(files, exchanges, start)]
    found += [
        (event.at - start, Event(at=event.at - start, kind="egress", title=_tried(event)))
        for event in files.egress or ()
    ]
    found.sort(key=lambda placed: placed[0])
    return (*(event for _, event in found), _end(files))


_Placed = tuple[float, Event]


def _tried(event: EgressEvent) -> str:
    often = f", {event.count} times" if event.count > 1 else ""
    if event.kind == "dns":
        return f"the name {event.name} was asked for{often}"
    return f"{destination(event)} was tried ({way(event)}){often}"


def _phases(files: CellFiles) -> Iterator[_Placed]:
    at = 0.0
    for name, seconds in files.cell.phases.items():
        yield at, Event(at=at, kind="phase", title=name, seconds=seconds)
        at += seconds


def _exchanges(exchanges: Sequence[Exchange], start: float) -> Iterator[_Placed]:
    seen: tuple[ConversationItem, ...] = ()
    for number, exchange in enumerate(exchanges, start=1):
        at = exchange.started_at - start
        asked: tuple[ConversationItem, ...] = ()
        if exchange.dialect != "none":
            shown = payloads.history(exchange.dialect, exchange.request)
            asked = shown[len(seen) :] if shown[: len(seen)] == seen else shown
            seen = shown
        yield (
            at,
            Event(
                at=at,
                kind="exchange",
                title=_exchange_title(number, exchange),
                seconds=exchange.completed_at - exchange.started_at,
                parts=(*_asked(asked), *_said(exchange)),
            ),
        )


def _exchange_title(number: int, exchange: Exchange) -> str:
    words = [f"exchange {number}: {exchange.method} {exchange.path} -> {exchange.status_code}"]
    if exchange.fault:
        words.append(f"injected fault {exchange.fault}")
    if exchange.finish_reason:
        words.append(exchange.finish_reason)
    usage = exchange.usage
    if usage is not None and usage.input_tokens is not None:
        words.append(f"{usage.input_tokens} tokens in, {usage.output_tokens} out")
    if exchange.disconnected:
        words.append("the client left before the reply ended")
    return ", ".join(words)


def _asked(items: Sequence[ConversationItem]) -> Iterator[Part]:
    for item in items:
        yield Part(label=f"asked, {item_label(item)}", text=item_text(item))


def _said(exchange: Exchange) -> Iterator[Part]:
    said: tuple[ConversationItem, ...] = ()
    if exchange.dialect != "none":
        said = payloads.answer(exchange.dialect, exchange.response)
    for item in said:
        yield Part(label=f"said, {item_label(item)}", text=item_text(item))
    if not said and exchange.response is not None:
        yield Part(label="said", text=_plain(exchange.response))


def _plain(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def item_label(item: ConversationItem) -> str:
    """Name a conversation item in a few words."""
    match item:
        case MessageItem():
            return item.role
        case ToolRequestItem():
            return f"tool request {item.tool_name} {item.tool_call_id}"
        case ToolResultItem():
            code = "" if item.exit_code is None else f", exit code {item.exit_code}"
            return f"tool result {item.tool_call_id}{code}"
        case _:
            return "reasoning"


def item_text(item: ConversationItem) -> str:
    """Return the text of a conversation item."""
    match item:
        case ToolRequestItem():
            return item.arguments
        case ToolResultItem():
            return item.output
        case _:
            return item.text


def _tools(files: CellFiles, exchanges: Sequence[Exchange], start: float) -> Iterator[_Placed]:
    if files.row is None:
        return
    asked = {call: one.completed_at for one in exchanges for call in one.tool_call_ids}
    witnessed = (
        {}
        if files.witness is None
        else {tool.expected.tool_call_id: tool for tool in files.witness.tools}
    )
    for call in files.row.ng_agent_observations.records:
        if not isinstance(call, ToolCall):
            continue
        at = None if call.started_at is None else call.started_at - start
        place = at if at is not None else asked.get(call.tool_call_id, start) - start
        seen = witnessed.get(call.tool_call_id)
        parts = [Part(label="command", text=seen.expected.command)] if seen is not None else []
        if seen is not None:
            left = "left its marker" if seen.marker_found else "left no marker"
            parts.append(Part(label="witness", text=left))
        yield (
            place,
            Event(
                at=at,
                kind="tool",
                title=_tool_title(call),
                seconds=_tool_seconds(call),
                parts=tuple(parts),
            ),
        )


def _tool_title(call: ToolCall) -> str:
    words = [f"tool call {call.tool_name} {call.tool_call_id}: {call.status}"]
    if call.error_type:
        words.append(call.error_type)
    if call.started_at is None:
        words.append("time not recorded")
    return ", ".join(words)


def _tool_seconds(call: ToolCall) -> float | None:
    return None if call.duration_ms is None else call.duration_ms / 1000


def _end(files: CellFiles) -> Event:
    cell, row = files.cell, files.row
    if cell.refusal is not None:
        title = f"not run, {cell.refusal.kind}: {cell.refusal.reason}"
    elif row is None:
        title = "no row was recorded"
    elif isinstance(row, FailureRow):
        title = f"failure of {row.failure_stage} ({row.failure_kind}): {row.failure_message}"
    else:
        title = f"rollout with reward {row.reward}"
    return Event(at=cell.completed_at - cell.started_at, kind="end", title=title)
