"""The tally: an independent count of what passed the server's outermost layer.

It knows nothing of capture or script; it sees the ASGI messages. A capture that loses, doubles or
alters an exchange therefore differs from it.
"""

from __future__ import annotations

import threading

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandbox.evidence.tally import digest
from sandbox.model.body import parse_body
from sandbox.model.wire import MAX_BODY, request_path


class Tally:
    """ASGI layer around an app that keeps one digest an exchange."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._entries: list[str] = []

    def entries(self) -> tuple[str, ...]:
        """Digests (``sandbox.evidence.tally``) of the exchanges that have ended, sorted."""
        with self._lock:
            return tuple(sorted(self._entries))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything through, and count."""
        seen = bytearray()
        status = size = 0

        async def watched_receive() -> Message:
            nonlocal size
            message = await receive()
            body = message.get("body", b"") if message["type"] == "http.request" else b""
            size += len(body)
            if size <= MAX_BODY:
                seen.extend(body)
            return message

        async def watched_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, watched_receive, watched_send)
        finally:
            entry = digest(
                method=scope["method"],
                path=request_path(scope),
                request=parse_body(bytes(seen)) if size <= MAX_BODY else None,
                status_code=status,
            )
            with self._lock:
                self._entries.append(entry)
