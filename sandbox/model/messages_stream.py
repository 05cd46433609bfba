"""The event stream of the Messages dialect.

Source: Anthropic API documentation, "Streaming messages". Every event has its type as the SSE
event name too; clients pass over an event whose name they do not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pydantic import JsonValue

from sandbox.model.dialect import JsonObject, Reply, pieces, text_at
from sandbox.model.messages_object import (
    call_block,
    content_blocks,
    message_object,
    stop_reason,
    text_block,
    thinking_block,
    tool_input,
    usage_object,
)
from sandbox.model.sse import json_events, json_frame


def stream_frames(reply: Reply) -> tuple[bytes, ...]:
    """All events of a reply: start, ping, blocks, delta with the stop reason and usage, stop."""
    usage = usage_object(reply.usage)
    started = message_object(reply, [], None, None if usage is None else _early(usage))
    ended: JsonObject = {"stop_reason": stop_reason(reply), "stop_sequence": None}
    told: JsonObject = {} if usage is None else {"usage": _counts(usage)}
    events: list[JsonObject] = [
        {"type": "message_start", "message": started},
        {"type": "ping"},
        *_block_events(reply),
        {"type": "message_delta", "delta": ended, **told},
        {"type": "message_stop"},
    ]
    return tuple(event_frame(event) for event in events)


def event_frame(event: JsonObject) -> bytes:
    """One event, named after its type."""
    return json_frame(event, event=str(event["type"]))


def assemble(frames: Iterable[bytes]) -> JsonValue:
    """The message that the sent events add up to, each block as far as its deltas came.

    An error event adds its ``error``; without a message before it, it is the whole reply.
    """
    message: JsonObject | None = None
    failure: JsonObject | None = None
    blocks = _Blocks()
    for event in json_events(frames):
        kind, found, delta = event.get("type"), event.get("message"), event.get("delta")
        if kind == "message_start" and isinstance(found, dict):
            message = found
        elif kind == "message_delta" and message is not None and isinstance(delta, dict):
            message = {**message, **delta, **_usage_so_far(message, event)}
        elif kind == "error":
            failure = event
        else:
            blocks.add(event)
    if message is None:
        return failure
    whole: JsonObject = {**message, "content": list(blocks.content())}
    return whole if failure is None else {**whole, "error": failure.get("error")}


class _Blocks:
    """Adds content blocks up, the way the official clients do."""

    def __init__(self) -> None:
        self._blocks: dict[int, JsonObject] = {}
        self._inputs: dict[int, str] = {}

    def add(self, event: JsonObject) -> None:
        index, block, delta = event.get("index"), event.get("content_block"), event.get("delta")
        if not isinstance(index, int):
            return
        if isinstance(block, dict):
            self._blocks[index] = block
        elif isinstance(delta, dict) and index in self._blocks:
            self._add_delta(index, delta)

    def _add_delta(self, index: int, delta: JsonObject) -> None:
        part = text_at(delta, "partial_json")
        if part is not None:
            self._inputs[index] = self._inputs.get(index, "") + part
            return
        known = self._blocks[index]
        for key in ("text", "thinking", "signature"):
            piece = text_at(delta, key)
            if piece is not None:
                self._blocks[index] = known | {key: (text_at(known, key) or "") + piece}

    def content(self) -> Iterator[JsonObject]:
        for index, block in sorted(self._blocks.items()):
            given = self._inputs.get(index)
            yield block if given is None else {**block, "input": tool_input(given)}


def _early(usage: JsonObject) -> JsonObject:
    """Usage as a stream begins with it: of the output only that it has begun."""
    begun = {key: count for key, count in usage.items() if key != "output_tokens_details"}
    return begun | ({"output_tokens": 1} if "output_tokens" in usage else {})


def _counts(usage: JsonObject) -> JsonObject:
    """Usage as a stream ends with it: the counts alone."""
    return {key: count for key, count in usage.items() if key != "service_tier"}


def _usage_so_far(message: JsonObject, event: JsonObject) -> JsonObject:
    """Usage after a delta, whose counts are running totals; nothing when none was told."""
    before, after = message.get("usage"), event.get("usage")
    if not isinstance(after, dict):
        return {}
    return {"usage": {**(before if isinstance(before, dict) else {}), **after}}


def _block_events(reply: Reply) -> Iterator[JsonObject]:
    blocks = content_blocks(reply)
    for index, block in enumerate(blocks):
        match block["type"]:
            case "thinking":
                empty = thinking_block("", "")
                deltas = _thinking_deltas(reply.reasoning, block["signature"])
            case "text":
                empty = text_block("")
                deltas = [{"type": "text_delta", "text": piece} for piece in pieces(reply.text)]
            case _:
                call = reply.calls[index - len(blocks) + len(reply.calls)]
                empty = call_block(call, {})
                deltas = _input_deltas(call.arguments)
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}


def _thinking_deltas(text: str, signature: JsonValue) -> list[JsonObject]:
    deltas: list[JsonObject] = [
        {"type": "thinking_delta", "thinking": piece} for piece in pieces(text)
    ]
    return [*deltas, {"type": "signature_delta", "signature": signature}]


def _input_deltas(arguments: str) -> list[JsonObject]:
    """Pieces of the arguments after an empty one, with which the API begins."""
    return [
        {"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces(arguments))
    ]
