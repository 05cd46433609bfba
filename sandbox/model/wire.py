"""The wire: one request and its reply at ASGI level, with a watch on the client's leaving."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from starlette.types import Receive, Scope, Send

from sandbox.model.delivery import Data, Drop, Move, Pause, Start

MAX_BODY = 32 * 1024 * 1024
_MAX_DRAIN = 8 * MAX_BODY


class BodyTooLarge(ValueError):
    """The request body is larger than MAX_BODY; it was read to its end and thrown away."""


class ClientGone(ConnectionError):
    """The client left before its request was complete; ``args[0]`` is what had arrived."""


def request_path(scope: Scope) -> str:
    """Path with its query, as it came over the wire."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope.get("query_string") or b""
    return (raw + b"?" + query if query else raw).decode("ascii", errors="backslashreplace")


class Wire:
    """One exchange on the wire.

    Args:
        receive, send: the ASGI channels.
        stopping: set when the server stops; ends every pause.
        hang_up: closes the connection at once.
        clock: wall time in seconds since the epoch.
    """

    def __init__(
        self,
        receive: Receive,
        send: Send,
        *,
        stopping: asyncio.Event,
        hang_up: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._receive = receive
        self._send = send
        self._stopping = stopping
        self._hang_up = hang_up
        self._clock = clock
        self._gone = asyncio.Event()
        self._left = False
        self.status = 0
        self.sent: list[bytes] = []
        self.complete = False
        self.ending_at: float | None = None
        """When the last of the reply was about to be sent: what the client does then is later."""

    @property
    def client_left(self) -> bool:
        """Whether the client left before the reply was complete (not: the server stopped)."""
        return self._left and not self.complete

    async def body(self) -> bytes:
        """The request body. Raises BodyTooLarge, ClientGone."""
        parts: list[bytes] = []
        size = 0
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._note_gone()
                raise ClientGone(b"".join(parts))
            part = message.get("body", b"")
            size += len(part)
            if size <= MAX_BODY:
                parts.append(part)
            more = message.get("more_body", False) and size <= _MAX_DRAIN
        if size > MAX_BODY:
            raise BodyTooLarge(f"request body larger than {MAX_BODY} bytes")
        return b"".join(parts)

    async def play(self, moves: Sequence[Move]) -> bool:
        """Carry the moves out until the client leaves. True when the reply went out completely."""
        watch = asyncio.ensure_future(self._watch())
        try:
            await asyncio.sleep(0)  # a client that left while the reply was made is seen now
            for move in moves:
                last = move is moves[-1]
                if self._over() or not await self._move(move, last=last):
                    break
            else:
                self.complete = True
            if not self.complete and self.status == 0:
                self._hang_up()
        finally:
            watch.cancel()
            await asyncio.wait([watch])
        return self.complete

    async def _move(self, move: Move, *, last: bool) -> bool:
        match move:
            case Start():
                self.status = move.status
                headers = [(key.encode(), value.encode()) for key, value in move.headers.items()]
                await self._send(
                    {"type": "http.response.start", "status": move.status, "headers": headers}
                )
            case Data():
                if last:
                    self.ending_at = self._clock()
                await self._send(
                    {"type": "http.response.body", "body": move.body, "more_body": not last}
                )
                self.sent.append(move.body)
                await asyncio.sleep(0)
            case Pause():
                await self._pause(move.seconds)
                return not self._over()
            case Drop():
                return False
        return True

    def _over(self) -> bool:
        return self._gone.is_set() or self._stopping.is_set()

    async def _pause(self, seconds: float | None) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in (self._gone, self._stopping)]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._note_gone()

    def _note_gone(self) -> None:
        self._left = not self._stopping.is_set()
        self._gone.set()
