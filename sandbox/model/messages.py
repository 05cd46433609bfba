"""The Messages dialect: requests, the message object, token counts.

Source: Anthropic API reference, "Messages": create, the message object, count tokens; "Errors".
The stream is in ``messages_stream``. Ids carry the API's prefix without its underscore: letters
and digits. The ``request-id`` header is the exchange's id, which clients keep beside each answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from pydantic import JsonValue

from sandbox.evidence.exchanges import TokenUsage
from sandbox.model.dialect import (
    Ask,
    AskInvalid,
    JsonObject,
    Reply,
    Told,
    Tool,
    count_at,
    objects,
    text_at,
    text_of,
    user_texts,
)
from sandbox.model.errors import anthropic_error
from sandbox.model.messages_object import content_blocks, message_object, stop_reason, usage_object
from sandbox.model.messages_stream import assemble, event_frame, stream_frames
from sandbox.model.sse import frame

VERSION_HEADER = "anthropic-version"
"""Header that every client of this API sends."""

_ROLES = ("user", "assistant", "system")

# Tools of the API's own that the client runs, by the beginning of their type, with the schema
# they stand for; any other tool with a type runs on the API's side and cannot be called by us.
_CLIENT_TOOLS: Mapping[str, JsonObject] = {
    "bash_": {
        "type": "object",
        "properties": {"command": {"type": "string"}, "restart": {"type": "boolean"}},
        "required": ["command"],
    },
    "text_editor_": {},
    "memory_": {},
    "computer_": {},
}


class Messages:
    """Messages: ``POST /messages``."""

    name: Literal["messages"] = "messages"

    def parse(self, body: JsonObject) -> Ask:
        """Read a message request."""
        ask = self.parse_count(body)
        if count_at(body, "max_tokens") is None:
            raise AskInvalid("max_tokens must be a whole number")
        return ask

    def parse_count(self, body: JsonObject) -> Ask:
        """Read a count request: a message request that needs no ``max_tokens``."""
        model = body.get("model")
        if not isinstance(model, str):
            raise AskInvalid("model must be a string")
        history = _history(body)
        blocks = [block for message in history for block in objects(message.get("content"))]
        return Ask(
            model=model,
            stream=body.get("stream") is True,
            usage=True,
            tools=tuple(_tools(body)),
            results={
                call_id: text_of(block.get("content"))
                for block in blocks
                if block.get("type") == "tool_result" and (call_id := text_at(block, "tool_use_id"))
            },
            requested=tuple(
                call_id
                for block in blocks
                if block.get("type") == "tool_use" and (call_id := text_at(block, "id"))
            ),
            prompts=user_texts(history),
        )

    def body(self, reply: Reply) -> JsonObject:
        """The message object."""
        usage = usage_object(reply.usage)
        return message_object(reply, content_blocks(reply), stop_reason(reply), usage)

    def count(self, tokens: int) -> JsonObject:
        """The answer to a count request."""
        return {"input_tokens": tokens}

    def frames(self, reply: Reply, *, usage: bool) -> tuple[bytes, ...]:
        """Events up to ``message_stop``."""
        del usage
        return stream_frames(reply)

    def failure_frame(self, reply: Reply, *, message: str, code: str, sequence: int) -> bytes:
        """The ``error`` event."""
        del sequence
        return event_frame(anthropic_error(500, message, code, request_id=reply.request_id))

    def malformed_frame(self, data: str) -> bytes:
        """A block's delta with this data: clients read only events that they know by name."""
        return frame(data, event="content_block_delta")

    def told(self, response: JsonValue) -> Told:
        """Id and calls of a message object; once it has ended well, stop reason and usage too."""
        if not isinstance(response, dict):
            return Told()
        reason = None if "error" in response else text_at(response, "stop_reason")
        return Told(
            response_id=text_at(response, "id"),
            finish_reason=reason,
            calls={
                call_id: text_at(block, "name") or ""
                for block in objects(response.get("content"))
                if block.get("type") == "tool_use" and (call_id := text_at(block, "id"))
            },
            usage=None if reason is None else _told_usage(response.get("usage")),
        )

    def assemble(self, frames: Iterable[bytes]) -> JsonValue:
        """The message that the sent events add up to (None when none was sent)."""
        return assemble(frames)

    def headers(self, request_id: str) -> Mapping[str, str]:
        """The request's id."""
        return {"request-id": request_id}

    def error(
        self, status: int, message: str, code: str | None = None, *, request_id: str = ""
    ) -> JsonObject:
        """The error object."""
        return anthropic_error(status, message, code, request_id=request_id)


def _history(body: JsonObject) -> list[JsonObject]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise AskInvalid("messages must be a list that is not empty")
    for place, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            raise AskInvalid(f"messages.{place}.role must be one of {', '.join(_ROLES)}")
        if not isinstance(message.get("content"), (str, list)):
            raise AskInvalid(f"messages.{place}.content must be a text or a list of blocks")
    return objects(messages)


def _tools(body: JsonObject) -> Iterator[Tool]:
    """The tools that the model may call: those that the client runs and ``tool_choice`` allows."""
    choice = body.get("tool_choice")
    kind, only = text_at(choice, "type"), text_at(choice, "name")
    for tool in objects(body.get("tools")):
        name, schema = text_at(tool, "name"), _schema(tool)
        allowed = kind != "none" and (kind != "tool" or name == only)
        if name is not None and schema is not None and allowed:
            yield Tool(name=name, schema=schema)


def _schema(tool: JsonObject) -> JsonObject | None:
    """Input schema of a tool; None for a tool that the API itself runs."""
    kind, schema = tool.get("type") or "custom", tool.get("input_schema")
    if kind == "custom":
        return schema if isinstance(schema, dict) else {}
    known = (given for start, given in _CLIENT_TOOLS.items() if str(kind).startswith(start))
    return next(known, None)


def _told_usage(usage: JsonValue) -> TokenUsage | None:
    if not isinstance(usage, dict):
        return None
    return TokenUsage(
        input_tokens=count_at(usage, "input_tokens"),
        output_tokens=count_at(usage, "output_tokens"),
        reasoning_tokens=count_at(usage, "output_tokens_details", "thinking_tokens"),
        cached_tokens=count_at(usage, "cache_read_input_tokens"),
    )
