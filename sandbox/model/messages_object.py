"""The message object of the Messages dialect and its content blocks."""

from __future__ import annotations

from pydantic import JsonValue

from sandbox.evidence.exchanges import TokenUsage
from sandbox.model.body import parse_body
from sandbox.model.dialect import Call, JsonObject, Reply


def message_object(
    reply: Reply, content: list[JsonObject], stop_reason: str | None, usage: JsonObject | None
) -> JsonObject:
    """The message in a given state; ``stop_reason`` None: it has not ended."""
    told: JsonObject = {} if usage is None else {"usage": usage}
    return {
        "id": f"msg{reply.id}",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": list(content),
        "stop_reason": stop_reason,
        "stop_sequence": None,
        **told,
    }


def content_blocks(reply: Reply) -> list[JsonObject]:
    """Content blocks in order: thinking, text, calls."""
    blocks: list[JsonObject] = []
    if reply.reasoning:
        blocks.append(thinking_block(reply.reasoning, f"signature{reply.id}"))
    if reply.text:
        blocks.append(text_block(reply.text))
    return blocks + [call_block(call, tool_input(call.arguments)) for call in reply.calls]


def thinking_block(text: str, signature: str) -> JsonObject:
    """A thinking block; the signature is opaque to clients, who send it back as it was."""
    return {"type": "thinking", "thinking": text, "signature": signature}


def text_block(text: str) -> JsonObject:
    """A text block."""
    return {"type": "text", "text": text}


def call_block(call: Call, given: JsonValue) -> JsonObject:
    """A ``tool_use`` block with its ``input``."""
    return {"type": "tool_use", "id": call.call_id, "name": call.name, "input": given}


def tool_input(arguments: str) -> JsonValue:
    """The ``input`` that argument text adds up to; no text at all is an empty object.

    Text that is no JSON object has no form outside a stream: it stays a text, so that neither a
    client nor a capture takes it for a good input.
    """
    if not arguments:
        return {}
    value = parse_body(arguments.encode())
    return value if isinstance(value, dict) else arguments


def stop_reason(reply: Reply) -> str:
    """Why the reply ends."""
    if reply.length_stop:
        return "max_tokens"
    return "tool_use" if reply.calls else "end_turn"


def usage_object(usage: TokenUsage | None) -> JsonObject | None:
    """Token usage; counts that are not known are left out, and there is no total."""
    if usage is None:
        return None
    cached = usage.cached_tokens
    counts: dict[str, int | None] = {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": None if cached is None else 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.output_tokens,
    }
    known: JsonObject = {key: count for key, count in counts.items() if count is not None}
    if usage.reasoning_tokens is not None:
        known["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return {**known, "service_tier": "standard"}
