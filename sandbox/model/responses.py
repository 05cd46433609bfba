"""The Responses dialect: requests and the response object.

Source: OpenAI API reference, "Responses": create and the response object. The stream is in
``responses_stream``. Item ids carry the API's prefixes without its underscore: letters and digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
from sandbox.model.errors import openai_error
from sandbox.model.responses_object import output_items, response_object
from sandbox.model.responses_stream import assemble, failure_frame, stream_frames
from sandbox.model.sse import frame

_RESULT_TYPES = ("function_call_output", "local_shell_call_output", "custom_tool_call_output")
_CALL_TYPES = ("function_call", "local_shell_call", "custom_tool_call")


class Responses:
    """Responses: ``POST /responses``."""

    name: Literal["responses"] = "responses"

    def parse(self, body: JsonObject) -> Ask:
        """Read a response request; ``input`` may be a plain text."""
        model, history = body.get("model"), body.get("input")
        if not isinstance(model, str):
            raise AskInvalid("model must be a string")
        if not isinstance(history, (str, list)) or not history:
            raise AskInvalid("input must be a text or a list that is not empty")
        items = objects(history)
        return Ask(
            model=model,
            stream=body.get("stream") is True,
            usage=True,
            tools=tuple(_tools(body.get("tools"))),
            results={
                call_id: text_of(item.get("output"))
                for item in items
                if item.get("type") in _RESULT_TYPES and (call_id := _call_id(item))
            },
            requested=tuple(
                call_id
                for item in items
                if item.get("type") in _CALL_TYPES and (call_id := _call_id(item))
            ),
            prompts=(history,) if isinstance(history, str) else user_texts(items),
        )

    def body(self, reply: Reply) -> JsonObject:
        """The response object."""
        status = "incomplete" if reply.length_stop else "completed"
        return response_object(reply, status, output_items(reply))

    def frames(self, reply: Reply, *, usage: bool) -> tuple[bytes, ...]:
        """Semantic events up to ``response.completed`` or ``response.incomplete``."""
        del usage
        return stream_frames(reply, self.body(reply))

    def failure_frame(self, reply: Reply, *, message: str, code: str, sequence: int) -> bytes:
        """The ``response.failed`` event."""
        return failure_frame(reply, message=message, code=code, sequence=sequence)

    def told(self, response: JsonValue) -> Told:
        """Id, finish reason, calls and usage of a response object."""
        if not isinstance(response, dict):
            return Told()
        return Told(
            response_id=text_at(response, "id"),
            finish_reason=_finish_reason(response),
            calls={
                call_id: text_at(item, "name") or "local_shell"
                for item in objects(response.get("output"))
                if item.get("type") in _CALL_TYPES and (call_id := _call_id(item))
            },
            usage=_told_usage(response.get("usage")),
        )

    def assemble(self, frames: Iterable[bytes]) -> JsonValue:
        """The response that the sent events add up to (None when none was sent)."""
        return assemble(frames)

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


def _call_id(item: JsonObject) -> str:
    found = item.get("call_id") or item.get("id")
    return found if isinstance(found, str) else ""


def _finish_reason(response: JsonObject) -> str | None:
    """``completed``, or why it is incomplete; None for a response that did not end well."""
    if response.get("status") == "completed":
        return "completed"
    return text_at(response.get("incomplete_details"), "reason")


def _told_usage(usage: JsonValue) -> TokenUsage | None:
    if not isinstance(usage, dict):
        return None
    return TokenUsage(
        input_tokens=count_at(usage, "input_tokens"),
        output_tokens=count_at(usage, "output_tokens"),
        total_tokens=count_at(usage, "total_tokens"),
        reasoning_tokens=count_at(usage, "output_tokens_details", "reasoning_tokens"),
        cached_tokens=count_at(usage, "input_tokens_details", "cached_tokens"),
    )


def _tools(value: JsonValue, namespace: str | None = None) -> Iterable[Tool]:
    """The tools of a request; those in a namespace follow with its name."""
    for tool in objects(value):
        name, schema = tool.get("name"), tool.get("parameters")
        if tool.get("type") == "namespace" and isinstance(name, str):
            yield from _tools(tool.get("tools"), name)
        elif tool.get("type") == "local_shell":
            yield Tool(name="local_shell", schema={}, form="local_shell")
        elif tool.get("type") == "function" and isinstance(name, str):
            yield Tool(
                name=name,
                schema=schema if isinstance(schema, dict) else {},
                namespace=namespace,
            )
