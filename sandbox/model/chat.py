"""The Chat Completions dialect.

Source: OpenAI API reference, "Chat Completions": create, the chat completion object and the chat
completion chunk object. ``reasoning_content`` is the extension that DeepSeek's API introduced and
OpenAI-compatible clients read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import JsonValue

from sandbox.evidence.exchanges import TokenUsage
from sandbox.model.dialect import (
    Ask,
    AskInvalid,
    Call,
    JsonObject,
    Reply,
    Told,
    Tool,
    count_at,
    objects,
    pieces,
    text_at,
    text_of,
    user_texts,
)
from sandbox.model.errors import openai_error
from sandbox.model.sse import frame, json_events, json_frame

DONE = frame("[DONE]")


class Chat:
    """Chat Completions: ``POST /chat/completions``."""

    name: Literal["chat"] = "chat"

    def parse(self, body: JsonObject) -> Ask:
        """Read a chat completion request."""
        model, messages = body.get("model"), body.get("messages")
        if not isinstance(model, str):
            raise AskInvalid("model must be a string")
        if not isinstance(messages, list) or not messages:
            raise AskInvalid("messages must be a list that is not empty")
        options = body.get("stream_options")
        history = objects(messages)
        return Ask(
            model=model,
            stream=body.get("stream") is True,
            usage=isinstance(options, dict) and options.get("include_usage") is True,
            tools=tuple(_tools(body.get("tools"))),
            results={
                call_id: text_of(message.get("content"))
                for message in history
                if message.get("role") == "tool"
                and isinstance(call_id := message.get("tool_call_id"), str)
            },
            requested=tuple(
                call_id
                for message in history
                for call in objects(message.get("tool_calls"))
                if isinstance(call_id := call.get("id"), str)
            ),
            prompts=user_texts(history),
        )

    def body(self, reply: Reply) -> JsonObject:
        """The chat completion object."""
        return _completion(
            head=_head(reply),
            text=reply.text,
            reasoning=reply.reasoning,
            calls=[_call(call) for call in reply.calls],
            finish_reason=_finish_reason(reply),
            usage=_usage(reply.usage),
        )

    def frames(self, reply: Reply, *, usage: bool) -> tuple[bytes, ...]:
        """Chunks: role, deltas, finish reason, usage when asked for, ``[DONE]``."""
        deltas: list[JsonObject] = [{"role": "assistant", "content": ""}]
        deltas += [{"reasoning_content": piece} for piece in pieces(reply.reasoning)]
        deltas += [{"content": piece} for piece in pieces(reply.text)]
        for index, call in enumerate(reply.calls):
            deltas += _call_deltas(index, call)
        told = _usage(reply.usage) if usage else None
        pending: JsonObject = {"usage": None} if told is not None else {}
        head = _chunk_head(reply)
        chunks: list[JsonObject] = [
            {**head, "choices": [_chunk_choice(delta, None)], **pending} for delta in deltas
        ]
        chunks.append({**head, "choices": [_chunk_choice({}, _finish_reason(reply))], **pending})
        if told is not None:
            chunks.append({**head, "choices": [], "usage": told})
        return (*(json_frame(chunk) for chunk in chunks), DONE)

    def failure_frame(self, reply: Reply, *, message: str, code: str, sequence: int) -> bytes:
        """The error object that OpenAI-compatible servers send in a stream that fails."""
        del reply, sequence
        return json_frame(openai_error(500, message, code))

    def told(self, response: JsonValue) -> Told:
        """Id, finish reason, calls and usage of a chat completion object."""
        if not isinstance(response, dict):
            return Told()
        choice = next(iter(objects(response.get("choices"))), {})
        message = choice.get("message")
        calls = objects(message.get("tool_calls")) if isinstance(message, dict) else []
        return Told(
            response_id=text_at(response, "id"),
            finish_reason=text_at(choice, "finish_reason"),
            calls={
                call_id: text_at(call.get("function"), "name") or ""
                for call in calls
                if (call_id := text_at(call, "id"))
            },
            usage=_told_usage(response.get("usage")),
        )

    def assemble(self, frames: Iterable[bytes]) -> JsonValue:
        """Add the chunks up to one chat completion object (None when no chunk was sent)."""
        sum_ = _Sum()
        for chunk in json_events(frames):
            sum_.add(chunk)
        return sum_.completion()

    def malformed_frame(self, data: str) -> bytes:
        """An event with this data; clients read data whatever the event's name."""
        return frame(data)

    def headers(self, request_id: str) -> Mapping[str, str]:
        """None."""
        del request_id
        return {}

    def error(
        self, status: int, message: str, code: str | None = None, *, request_id: str = ""
    ) -> JsonObject:
        """The error object."""
        del request_id
        return openai_error(status, message, code)


class _Sum:
    """Adds chunks up, the way the official clients do."""

    def __init__(self) -> None:
        self._head: JsonObject | None = None
        self._text = ""
        self._reasoning = ""
        self._calls: dict[int, Call] = {}
        self._finish_reason: JsonValue = None
        self._usage: JsonValue = None
        self._error: JsonValue = None

    def add(self, chunk: JsonObject) -> None:
        if "error" in chunk:
            self._error = chunk["error"]
            return
        keys = ("id", "created", "model", "service_tier", "system_fingerprint")
        self._head = self._head or {key: chunk.get(key) for key in keys}
        self._usage = chunk.get("usage") or self._usage
        for choice in objects(chunk.get("choices")):
            self._finish_reason = choice.get("finish_reason") or self._finish_reason
            delta = choice.get("delta")
            if isinstance(delta, dict):
                self._add_delta(delta)

    def _add_delta(self, delta: JsonObject) -> None:
        self._text += _text(delta.get("content"))
        self._reasoning += _text(delta.get("reasoning_content"))
        for part in objects(delta.get("tool_calls")):
            index, function = part.get("index"), part.get("function")
            if not isinstance(index, int) or not isinstance(function, dict):
                continue
            known = self._calls.get(index, Call(call_id="", name="", arguments=""))
            self._calls[index] = Call(
                call_id=known.call_id or _text(part.get("id")),
                name=known.name or _text(function.get("name")),
                arguments=known.arguments + _text(function.get("arguments")),
            )

    def completion(self) -> JsonValue:
        error: JsonObject = {} if self._error is None else {"error": self._error}
        if self._head is None:
            return error or None
        completion = _completion(
            head=self._head,
            text=self._text,
            reasoning=self._reasoning,
            calls=[_call(self._calls[index]) for index in sorted(self._calls)],
            finish_reason=self._finish_reason,
            usage=self._usage,
        )
        return {**completion, **error}


def _completion(
    *,
    head: JsonObject,
    text: str,
    reasoning: str,
    calls: list[JsonObject],
    finish_reason: JsonValue,
    usage: JsonValue,
) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": text or (None if calls else "")}
    message |= {"refusal": None, "annotations": []}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = list(calls)
    choice: JsonObject = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": finish_reason,
    }
    told: JsonObject = {} if usage is None else {"usage": usage}
    return {"object": "chat.completion", **head, "choices": [choice], **told}


def _head(reply: Reply) -> JsonObject:
    return {
        "id": f"chatcmpl{reply.id}",
        "created": reply.created,
        "model": reply.model,
        "service_tier": "default",
        "system_fingerprint": None,
    }


def _chunk_head(reply: Reply) -> JsonObject:
    return {"object": "chat.completion.chunk", **_head(reply)}


def _chunk_choice(delta: JsonObject, finish_reason: str | None) -> JsonObject:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _call(call: Call) -> JsonObject:
    function: JsonObject = {"name": call.name, "arguments": call.arguments}
    return {"id": call.call_id, "type": "function", "function": function}


def _call_deltas(index: int, call: Call) -> list[JsonObject]:
    """The first delta of a call has id and name, the following only pieces of arguments."""
    first: JsonObject = {"index": index, **_call(Call(call.call_id, call.name, ""))}
    rest: list[JsonObject] = [
        {"index": index, "function": {"arguments": piece}} for piece in pieces(call.arguments)
    ]
    return [{"tool_calls": [part]} for part in (first, *rest)]


def _finish_reason(reply: Reply) -> str:
    if reply.length_stop:
        return "length"
    return "tool_calls" if reply.calls else "stop"


def _usage(usage: TokenUsage | None) -> JsonObject | None:
    if usage is None:
        return None
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _told_usage(usage: JsonValue) -> TokenUsage | None:
    if not isinstance(usage, dict):
        return None
    return TokenUsage(
        input_tokens=count_at(usage, "prompt_tokens"),
        output_tokens=count_at(usage, "completion_tokens"),
        total_tokens=count_at(usage, "total_tokens"),
        reasoning_tokens=count_at(usage, "completion_tokens_details", "reasoning_tokens"),
        cached_tokens=count_at(usage, "prompt_tokens_details", "cached_tokens"),
    )


def _tools(value: JsonValue) -> Iterable[Tool]:
    for tool in objects(value):
        function = tool.get("function")
        if not isinstance(function, dict) or not isinstance(name := function.get("name"), str):
            continue
        schema = function.get("parameters")
        yield Tool(name=name, schema=schema if isinstance(schema, dict) else {})


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""
