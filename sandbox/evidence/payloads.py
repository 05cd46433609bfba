"""Request and reply bodies of the three dialects, read as conversation items.

Sources: the OpenAI Responses and Chat Completions references and the Anthropic Messages reference.
Reading is lenient: an item of an unknown shape is left out, since a body is evidence, not input.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Literal, get_args

from pydantic import JsonValue

from sandbox.evidence.observations import (
    ConversationItem,
    MessageItem,
    ReasoningItem,
    ToolRequestItem,
    ToolResultItem,
)

Dialect = Literal["responses", "chat", "messages"]
_Role = Literal["system", "developer", "user", "assistant"]
_Object = dict[str, JsonValue]


def history(dialect: Dialect, request: JsonValue) -> tuple[ConversationItem, ...]:
    """Return what a request shows the model, oldest first, without its instructions field."""
    body = _object(request)
    if dialect == "responses":
        given = body.get("input")
        if isinstance(given, str):
            return (MessageItem(role="user", text=given),)
        return tuple(item for raw in _objects(given) for item in _responses_item(raw))
    read = _chat_message if dialect == "chat" else _messages_message
    return tuple(item for raw in _objects(body.get("messages")) for item in read(raw))


def answer(dialect: Dialect, response: JsonValue) -> tuple[ConversationItem, ...]:
    """Return what a reply says: texts, reasoning and tool requests; empty for an error body."""
    body = _object(response)
    if dialect == "responses":
        return tuple(i for raw in _objects(body.get("output")) for i in _responses_item(raw))
    if dialect == "chat":
        choices = _objects(body.get("choices"))
        first = next(choices, {})
        return tuple(_chat_message({"role": "assistant", **_object(first.get("message"))}))
    return tuple(_messages_message({"role": "assistant", "content": body.get("content")}))


def tool_results(dialect: Dialect, request: JsonValue) -> dict[str, str]:
    """Return the tool results that a request carries, by tool call id, as the model reads them."""
    return {
        item.tool_call_id: item.output
        for item in history(dialect, request)
        if isinstance(item, ToolResultItem)
    }


def marked_failures(dialect: Dialect, request: JsonValue) -> set[str]:
    """Return the tool call ids whose results a request marks as errors (Messages: ``is_error``)."""
    if dialect != "messages":
        return set()
    return {
        _str(block.get("tool_use_id"))
        for raw in _objects(_object(request).get("messages"))
        for block in _objects(raw.get("content"))
        if block.get("type") == "tool_result" and block.get("is_error") is True
    }


def tool_names(request: JsonValue) -> tuple[str, ...]:
    """Return the names of the tools that a request advertises, those in a namespace included."""
    return tuple(
        _str(tool.get("name"))
        for given in _objects(_object(request).get("tools"))
        for tool in (given, _object(given.get("function")), *_objects(given.get("tools")))
        if tool.get("name")
    )


def question(items: tuple[ConversationItem, ...]) -> str:
    """Return the newest user text, or an empty text."""
    texts = [i.text for i in items if isinstance(i, MessageItem) and i.role == "user"]
    return texts[-1] if texts else ""


def reasoning(items: tuple[ConversationItem, ...]) -> str | None:
    """Return the reasoning texts joined by newlines; None when there are none."""
    texts = [item.text for item in items if isinstance(item, ReasoningItem)]
    return "\n".join(texts) if texts else None


def _object(value: JsonValue) -> _Object:
    return value if isinstance(value, dict) else {}


def _objects(value: JsonValue) -> Iterator[_Object]:
    return (
        (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())
    )


def _str(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _text(content: JsonValue) -> str:
    """Join the texts of a content field: a string, or parts with a ``text``."""
    if isinstance(content, str):
        return content
    return "".join(_str(part.get("text")) for part in _objects(content))


def _role(value: JsonValue) -> _Role | None:
    for role in get_args(_Role):
        if value == role:
            return role  # type: ignore[no-any-return]
    return None


def _message(role: JsonValue, content: JsonValue) -> Iterator[ConversationItem]:
    known = _role(role)
    text = _text(content)
    if known is not None and text:
        yield MessageItem(role=known, text=text)


def _responses_item(raw: _Object) -> Iterator[ConversationItem]:
    kind = raw.get("type", "message")
    if kind == "message":
        yield from _message(raw.get("role"), raw.get("content"))
    elif kind == "reasoning":
        text = _text(raw.get("content")) or _text(raw.get("summary"))
        if text:
            yield ReasoningItem(text=text)
    elif kind in ("function_call", "custom_tool_call"):
        yield ToolRequestItem(
            tool_call_id=_str(raw.get("call_id")),
            tool_name=_str(raw.get("name")),
            arguments=_str(raw.get("arguments")) or _str(raw.get("input")),
        )
    elif kind in ("function_call_output", "custom_tool_call_output"):
        yield ToolResultItem(
            tool_call_id=_str(raw.get("call_id")), output=_responses_output(raw.get("output"))
        )


def _responses_output(value: JsonValue) -> str:
    return _text(value.get("content")) if isinstance(value, dict) else _text(value)


def _chat_message(raw: _Object) -> Iterator[ConversationItem]:
    if raw.get("role") == "tool":
        yield ToolResultItem(
            tool_call_id=_str(raw.get("tool_call_id")), output=_text(raw.get("content"))
        )
        return
    thought = _str(raw.get("reasoning_content")) or _str(raw.get("reasoning"))
    if thought:
        yield ReasoningItem(text=thought)
    yield from _message(raw.get("role"), raw.get("content"))
    for call in _objects(raw.get("tool_calls")):
        function = _object(call.get("function"))
        yield ToolRequestItem(
            tool_call_id=_str(call.get("id")),
            tool_name=_str(function.get("name")),
            arguments=_str(function.get("arguments")),
        )


def _messages_message(raw: _Object) -> Iterator[ConversationItem]:
    content = raw.get("content")
    if isinstance(content, str):
        yield from _message(raw.get("role"), content)
        return
    for block in _objects(content):
        kind = block.get("type")
        if kind == "text":
            yield from _message(raw.get("role"), block.get("text"))
        elif kind == "thinking" and (thought := _str(block.get("thinking"))):
            yield ReasoningItem(text=thought)
        elif kind == "tool_use":
            yield ToolRequestItem(
                tool_call_id=_str(block.get("id")),
                tool_name=_str(block.get("name")),
                arguments=_input_text(block.get("input")),
            )
        elif kind == "tool_result":
            yield ToolResultItem(
                tool_call_id=_str(block.get("tool_use_id")), output=_text(block.get("content"))
            )


def _input_text(given: JsonValue) -> str:
    """The text of a parsed input: as the scripted model writes its own; a text stays as it is."""
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
