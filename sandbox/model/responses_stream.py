"""The event stream of the Responses dialect.

Source: OpenAI API reference, "Responses: streaming events". Every event has its type as the SSE
event name too and a ``sequence_number`` that counts from 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pydantic import JsonValue

from sandbox.model.dialect import Call, JsonObject, Reply, objects, pieces
from sandbox.model.responses_object import (
    call_item,
    message_item,
    output_items,
    reasoning_item,
    response_object,
    text_part,
)
from sandbox.model.sse import json_events, json_frame

_TERMINAL = ("response.completed", "response.incomplete", "response.failed")


def stream_frames(reply: Reply, complete: JsonObject) -> tuple[bytes, ...]:
    """All events of a reply; ``complete`` is the response object that the last one carries."""
    started = response_object(reply, "in_progress", [])
    end = f"response.{complete['status']}"
    events: list[JsonObject] = [
        {"type": "response.created", "response": started},
        {"type": "response.in_progress", "response": started},
        *_item_events(reply),
        {"type": end, "response": complete},
    ]
    return tuple(_frame(event, number) for number, event in enumerate(events))


def failure_frame(reply: Reply, *, message: str, code: str, sequence: int) -> bytes:
    """The ``response.failed`` event that ends a stream."""
    failed = response_object(reply, "failed", [], {"code": code, "message": message})
    return _frame({"type": "response.failed", "response": failed}, sequence)


def assemble(frames: Iterable[bytes]) -> JsonValue:
    """The response object that the sent events add up to.

    The terminal event's response when there is one; otherwise the response as it was created,
    with each item as far as its deltas came.
    """
    response: JsonObject | None = None
    items: dict[int, JsonObject] = {}
    for event in json_events(frames):
        found, index = event.get("response"), event.get("output_index")
        if isinstance(found, dict):
            response = found
            if event.get("type") in _TERMINAL:
                return response
        elif isinstance(index, int):
            _add_item_event(items, index, event)
    if response is None:
        return None
    return {**response, "output": [items[index] for index in sorted(items)]}


def _frame(event: JsonObject, number: int) -> bytes:
    kind = event["type"]
    return json_frame({**event, "sequence_number": number}, event=str(kind))


def _item_events(reply: Reply) -> Iterator[JsonObject]:
    done = output_items(reply)
    for index, item in enumerate(done):
        place: JsonObject = {"output_index": index}
        target: JsonObject = {"item_id": item["id"], **place}
        item_id = str(item["id"])
        match item["type"]:
            case "reasoning":
                added = reasoning_item(item_id, "")
                inner = _reasoning_events(target, reply.reasoning)
            case "message":
                added = message_item(item_id, "in_progress", "")
                inner = _message_events(target, reply.text)
            case _:
                call = reply.calls[index - len(done) + len(reply.calls)]
                added = call_item(item_id, "in_progress", _blank(call))
                inner = _call_events(target, call)
        yield {"type": "response.output_item.added", **place, "item": added}
        yield from inner
        yield {"type": "response.output_item.done", **place, "item": item}


def _blank(call: Call) -> Call:
    """The call as it is announced: a function call has no arguments yet."""
    if call.form == "local_shell":
        return call
    return Call(call.call_id, call.name, "", call.namespace, call.form)


def _reasoning_events(target: JsonObject, text: str) -> Iterator[JsonObject]:
    target = {**target, "summary_index": 0}
    kind = "response.reasoning_summary"
    empty: JsonObject = {"type": "summary_text", "text": ""}
    yield {"type": f"{kind}_part.added", **target, "part": empty}
    for piece in pieces(text):
        yield {"type": f"{kind}_text.delta", **target, "delta": piece}
    yield {"type": f"{kind}_text.done", **target, "text": text}
    yield {"type": f"{kind}_part.done", **target, "part": {**empty, "text": text}}


def _message_events(target: JsonObject, text: str) -> Iterator[JsonObject]:
    target = {**target, "content_index": 0}
    yield {"type": "response.content_part.added", **target, "part": text_part("")}
    for piece in pieces(text):
        yield {"type": "response.output_text.delta", **target, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **target, "text": text, "logprobs": []}
    yield {"type": "response.content_part.done", **target, "part": text_part(text)}


def _call_events(target: JsonObject, call: Call) -> Iterator[JsonObject]:
    if call.form == "local_shell":
        return
    kind = "response.function_call_arguments"
    for piece in pieces(call.arguments):
        yield {"type": f"{kind}.delta", **target, "delta": piece}
    yield {"type": f"{kind}.done", **target, "name": call.name, "arguments": call.arguments}


def _add_item_event(items: dict[int, JsonObject], index: int, event: JsonObject) -> None:
    kind, item, delta = event.get("type"), event.get("item"), event.get("delta")
    if isinstance(item, dict):
        items[index] = item
        return
    known = items.get(index)
    if known is None or not isinstance(delta, str):
        return
    if kind == "response.function_call_arguments.delta":
        items[index] = {**known, "arguments": f"{known.get('arguments', '')}{delta}"}
    elif kind == "response.output_text.delta":
        text = _so_far(known.get("content")) + delta
        items[index] = {**known, "content": [text_part(text)]}
    elif kind == "response.reasoning_summary_text.delta":
        text = _so_far(known.get("summary")) + delta
        items[index] = {**known, "summary": [{"type": "summary_text", "text": text}]}


def _so_far(parts: JsonValue) -> str:
    return "".join(str(part.get("text", "")) for part in objects(parts))
