"""The capture: every exchange that reaches the server becomes a record, whatever its status."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from sandbox.evidence.exchanges import Exchange, TokenUsage

SECRET_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"}
)
# Best first: a subagent's own id goes before that of the session it shares (Codex, Claude Code).
SESSION_HEADERS = (
    "thread-id",
    "session-id",
    "x-session-id",
    "x-claude-code-agent-id",
    "x-claude-code-session-id",
)


@dataclass
class Draft:
    """An exchange while it is under way; becomes a record when it ends."""

    exchange_id: str
    rollout_id: str | None
    method: str
    path: str
    headers: dict[str, str]
    client_session_id: str | None
    started_at: float
    caller: Literal["agent", "verifier"] = "agent"
    dialect: Literal["responses", "chat", "messages", "none"] = "none"
    streamed: bool = False
    request: JsonValue = None
    response: JsonValue = None
    response_id: str | None = None
    tools_asked: dict[str, str] = field(default_factory=dict)
    usage: TokenUsage | None = None
    finish_reason: str | None = None
    fault: str | None = None

    def ended(self, *, status_code: int, disconnected: bool, completed_at: float) -> Exchange:
        """The record; ``status_code`` is 0 when no status was sent."""
        return Exchange(
            exchange_id=self.exchange_id,
            rollout_id=self.rollout_id,
            dialect=self.dialect,
            method=self.method,
            path=self.path,
            headers=self.headers,
            streamed=self.streamed,
            started_at=self.started_at,
            completed_at=completed_at,
            request=self.request,
            status_code=status_code,
            response=self.response,
            response_id=self.response_id,
            tool_call_ids=tuple(self.tools_asked),
            usage=self.usage,
            finish_reason=self.finish_reason,
            fault=self.fault,
            disconnected=disconnected,
            client_session_id=self.client_session_id,
            caller=self.caller,
        )


class Capture:
    """Keeps the exchanges that have ended, in the order in which they began."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended: list[Exchange] = []
        self._tools: dict[str, str] = {}

    def add(self, exchange: Exchange, tools_asked: dict[str, str]) -> None:
        """Keep an exchange and the names of the tools that it asked for."""
        with self._lock:
            self._ended.append(exchange)
            for call_id, name in tools_asked.items():
                self._tools.setdefault(call_id, name)

    def exchanges(self) -> tuple[Exchange, ...]:
        """The exchanges so far."""
        with self._lock:
            return tuple(sorted(self._ended, key=lambda exchange: exchange.exchange_id))

    def tools_asked(self) -> dict[str, str]:
        """Tool call ids that replies asked for, with the tool's name."""
        with self._lock:
            return dict(self._tools)


def saved_headers(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers in lower case, repeated ones joined, secret values replaced by a hash.

    Of a secret only a prefix of its sha256 stays, so that a check can tell whether it was the
    right one: ``Bearer sha256:0123456789ab``.
    """
    saved: dict[str, str] = {}
    for name, value in headers:
        key = name.lower()
        shown = hide(value) if key in SECRET_HEADERS else value
        saved[key] = f"{saved[key]}, {shown}" if key in saved else shown
    return saved


def hide(secret: str) -> str:
    """A secret header value as it is saved; an authentication scheme stays readable."""
    scheme, space, value = secret.partition(" ")
    if not space:
        scheme, value = "", secret
    return f"{scheme}{space}sha256:{hashlib.sha256(value.encode()).hexdigest()[:12]}"


def session_of(headers: dict[str, str]) -> str | None:
    """The client's session id: from a session header, else the trace id of ``traceparent``."""
    for name in SESSION_HEADERS:
        if headers.get(name):
            return headers[name]
    trace = headers.get("traceparent", "").split("-")
    return trace[1] if len(trace) >= 3 and trace[1] else None
