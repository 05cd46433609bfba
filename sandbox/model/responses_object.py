"""The response object of the Responses dialect and its output items."""

from __future__ import annotations

import json

from sandbox.evidence.exchanges import TokenUsage
from sandbox.model.dialect import Call, JsonObject, Reply


def response_object(
    reply: Reply, status: str, output: list[JsonObject], error: JsonObject | None = None
) -> JsonObject:
    """The response object in a given state; usage only once it has ended."""
    ended = status in ("completed", "incomplete")
    return {
        "id": f"resp{reply.id}",
        "object": "response",
        "created_at": reply.created,
        "status": status,
        "background": False,
        "error": error,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {},
        "model": reply.model,
        "output": list(output),
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "service_tier": "default",
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": _usage(reply.usage) if ended else None,
        "user": None,
    }


def output_items(reply: Reply) -> list[JsonObject]:
    """Output items in order: reasoning, message, calls."""
    status = "incomplete" if reply.length_stop else "completed"
    items: list[JsonObject] = []
    if reply.reasoning:
        items.append(reasoning_item(f"rs{reply.id}", reply.reasoning))
    if reply.text:
        items.append(message_item(f"msg{reply.id}", status, reply.text))
    items += [
        call_item(f"fc{reply.id}x{index}", status, call) for index, call in enumerate(reply.calls)
    ]
    return items


def reasoning_item(item_id: str, text: str) -> JsonObject:
    """A reasoning item with its text as summary; empty before its text is known."""
    summary: list[JsonObject] = [{"type": "summary_text", "text": text}] if text else []
    return {"type": "reasoning", "id": item_id, "summary": list(summary)}


def message_item(item_id: str, status: str, text: str) -> JsonObject:
    """An assistant message item; without content before its text is known."""
    content = [text_part(text)] if text else []
    return {
        "type": "message",
        "id": item_id,
        "status": status,
        "role": "assistant",
        "content": list(content),
    }


def text_part(text: str) -> JsonObject:
    """The content part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def call_item(item_id: str, status: str, call: Call) -> JsonObject:
    """A function call item, or a local shell call whose arguments are its action."""
    if call.form == "local_shell":
        return {
            "type": "local_shell_call",
            "id": item_id,
            "status": status,
            "call_id": call.call_id,
            "action": json.loads(call.arguments),
        }
    namespace: JsonObject = {} if call.namespace is None else {"namespace": call.namespace}
    return {
        "type": "function_call",
        "id": item_id,
        "status": status,
        "call_id": call.call_id,
        "name": call.name,
        **namespace,
        "arguments": call.arguments,
    }


def _usage(usage: TokenUsage | None) -> JsonObject | None:
    if usage is None:
        return None
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }
