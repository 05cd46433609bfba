"""The raw two-way connection of one exec: the only place that reaches into the SDK's sockets."""

from __future__ import annotations

import contextlib
import socket
from typing import Any, Protocol

from sandbox.engine.tls import is_tls
from sandbox.engine.tlsexec import start_exec as start_exec_by_tls


class Connection(Protocol):
    """A non-blocking connection whose writing half can be closed."""

    @property
    def held(self) -> bool:
        """Whether bytes may be here already, of which no selector tells: read again first."""

    def fileno(self) -> int:
        """Give the number to wait for with a selector."""

    def receive_into(self, buffer: memoryview) -> int | None:
        """Read what is there; 0 at the end, None when nothing is there yet."""

    def send(self, data: memoryview) -> int:
        """Write what fits now and tell how much that was."""

    def close_write(self) -> None:
        """Tell the other side that its standard input ends."""

    def close(self) -> None:
        """Give the connection up; twice is fine."""


class HijackedConnection:
    """The connection the engine leaves to us after an exec's HTTP request was answered."""

    def __init__(self, sock: Any, response: Any, early: bytes) -> None:
        self._sock = sock
        self._response = response
        self._early = early  # bytes that came in one piece with the HTTP header

    @property
    def held(self) -> bool:
        """Whether some of what came with the header is still to be read."""
        return bool(self._early)

    @classmethod
    def start(cls, api: Any, exec_id: str) -> HijackedConnection:
        """Start exec ``exec_id`` and take over its connection.

        Raises what the SDK raises.
        """
        raw = api.exec_start(exec_id, socket=True)
        sock = getattr(raw, "_sock", raw)
        response = getattr(raw, "_response", None)
        sock.settimeout(0.0)
        early = b""
        if response is not None:
            with contextlib.suppress(AttributeError, BlockingIOError):
                early = response.raw._fp.fp.read1(1 << 16) or b""  # noqa: SLF001
        return cls(sock, response, early)

    def fileno(self) -> int:
        """Give the socket's number."""
        return int(self._sock.fileno())

    def receive_into(self, buffer: memoryview) -> int | None:
        """Read what is there; 0 at the end, None when nothing is there yet."""
        if self._early:
            taken = self._early[: len(buffer)]
            self._early = self._early[len(taken) :]
            buffer[: len(taken)] = taken
            return len(taken)
        try:
            return int(self._sock.recv_into(buffer))
        except BlockingIOError:
            return None
        except ConnectionResetError:
            return 0

    def send(self, data: memoryview) -> int:
        """Write what fits now; 0 when nothing fits."""
        try:
            return int(self._sock.send(data))
        except BlockingIOError:
            return 0

    def close_write(self) -> None:
        """Shut the writing half, which is how the engine learns that standard input ends."""
        self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close socket and response."""
        with contextlib.suppress(OSError):
            self._sock.close()
        if self._response is not None:
            self._response.close()


def start_exec(api: Any, exec_id: str) -> Connection:
    """Start exec ``exec_id`` and give its connection, by TLS where the SDK's client talks that.

    Raises what the SDK raises.
    """
    if is_tls(api):
        return start_exec_by_tls(api, exec_id)
    return HijackedConnection.start(api, exec_id)
