"""The seam between wire dialects and the script: a request as an Ask, an answer as a Reply.

A dialect turns a JSON request into an ``Ask`` and a ``Reply`` into the exact wire form, streamed
or not. The rest of the room sees only these values, so a further dialect is one more module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pydantic import JsonValue

from sandbox.evidence.exchanges import TokenUsage

JsonObject = dict[str, JsonValue]


class AskInvalid(ValueError):
    """The request is JSON, but not a request of its dialect."""


@dataclass(frozen=True)
class Tool:
    """An advertised tool; ``namespace`` and ``form`` are how a call of it is written."""

    name: str
    schema: Mapping[str, JsonValue]
    namespace: str | None = None
    form: Literal["function", "local_shell"] = "function"

    @property
    def full_name(self) -> str:
        """Name with its namespace, for messages and records."""
        return self.name if self.namespace is None else f"{self.namespace}.{self.name}"


@dataclass(frozen=True)
class Ask:
    """What a request says, whatever its dialect.

    ``results`` maps tool call ids to the result text that the request carries, ``requested`` are
    the ids of the tool calls in its assistant messages, ``prompts`` the texts of its user
    messages. ``usage`` is whether a stream may tell token usage.
    """

    model: str
    stream: bool
    usage: bool
    tools: tuple[Tool, ...] = ()
    results: Mapping[str, str] = field(default_factory=dict)
    requested: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Call:
    """A tool call of a reply; ``arguments`` is the text as it goes over the wire."""

    call_id: str
    name: str
    arguments: str
    namespace: str | None = None
    form: Literal["function", "local_shell"] = "function"


@dataclass(frozen=True)
class Reply:
    """What the model says. ``id`` is unique per exchange, letters and digits only.

    ``request_id`` is the id of the exchange, for dialects that tell the client of it.
    """

    id: str
    model: str
    created: int
    request_id: str = ""
    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    length_stop: bool = False
    usage: TokenUsage | None = None


@dataclass(frozen=True)
class Told:
    """What a reply told the client: ``calls`` maps the ids of tool calls to the tools' names."""

    response_id: str | None = None
    finish_reason: str | None = None
    calls: Mapping[str, str] = field(default_factory=dict)
    usage: TokenUsage | None = None


class Dialect(Protocol):
    """One wire form of a model API."""

    @property
    def name(self) -> Literal["responses", "chat", "messages"]:
        """Name as an exchange records it."""
        ...

    def parse(self, body: JsonObject) -> Ask:
        """Read a request. Raises AskInvalid."""
        ...

    def body(self, reply: Reply) -> JsonObject:
        """The complete reply, as it is sent when the request does not stream."""
        ...

    def frames(self, reply: Reply, *, usage: bool) -> tuple[bytes, ...]:
        """The reply as server-sent events, one frame an event, the end mark included."""
        ...

    def failure_frame(self, reply: Reply, *, message: str, code: str, sequence: int) -> bytes:
        """The event that ends a stream with an error."""
        ...

    def malformed_frame(self, data: str) -> bytes:
        """An event that clients read like any of the dialect's, with ``data`` that is not JSON."""
        ...

    def headers(self, request_id: str) -> Mapping[str, str]:
        """Headers that every reply to an exchange carries beside those of HTTP itself."""
        ...

    def told(self, response: JsonValue) -> Told:
        """What a reply body, complete or not, tells."""
        ...

    def assemble(self, frames: Iterable[bytes]) -> JsonValue:
        """The reply that the sent frames add up to; equals ``body`` for a complete stream."""
        ...

    def error(
        self, status: int, message: str, code: str | None = None, *, request_id: str = ""
    ) -> JsonObject:
        """Body of an HTTP error."""
        ...


def text_of(content: JsonValue) -> str:
    """Text of a message or result: a string, or the texts of its parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") if isinstance(part, dict) else part for part in content)
    return "".join(text for text in texts if isinstance(text, str))


def user_texts(messages: list[JsonObject]) -> tuple[str, ...]:
    """Texts of the messages of the role user, oldest first; tool results have none."""
    texts = (text_of(item.get("content")) for item in messages if item.get("role") == "user")
    return tuple(text for text in texts if text)


def objects(value: JsonValue) -> list[JsonObject]:
    """The objects of a JSON list; anything else in it, or no list, gives none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def pieces(text: str, size: int = 24) -> list[str]:
    """A text cut into deltas of at most ``size`` characters; none for an empty text."""
    return [text[start : start + size] for start in range(0, len(text), size)]


def text_at(value: JsonValue, key: str) -> str | None:
    """The text under a key of an object; None when it is no object or holds no text there."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else None


def count_at(value: JsonValue, *keys: str) -> int | None:
    """The whole number at the end of a path of keys; None when it is not there."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
