"""The two-way connection of one exec with an engine behind TLS.

A command's standard input ends when this side says so by TLS's own word (``close_notify``, RFC 8446
section 6.1) while the other side goes on. Python's TLS sockets cannot do that: their end waits for
the other's, and breaks on what the other still says. So the records are made and read in memory
(``ssl.MemoryBIO``), and the socket below is a plain one; that way a selector's silence about bytes
that are decrypted already can be told too (``held``).
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

CHUNK = 64 * 1024
PIECE = 16 * 1024  # what one record holds
END_S = 10.0
_Result = TypeVar("_Result")


class TlsConnection:
    """A non-blocking connection whose writing half can be ended; see ``stream.Connection``.

    Args:
        sock: a connected socket; closed with this.
        context: how to shake hands.
        name: whom the other side's certificate must name.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, name: str) -> None:
        self._sock = sock
        self._sock.settimeout(0.0)
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._arrived, self._leaving, server_hostname=name)
        self._unsent = memoryview(b"")  # of what left the TLS layer
        self._piece = 0  # bytes of the caller's that are on their way
        self._early = bytearray()
        self.held = False

    def shake_hands(self, until: float) -> None:
        """Agree on keys until monotonic time ``until``.

        Raises:
            OSError: the other side is not the one, refuses this one, or is not there
                (``ssl.SSLError`` where TLS knows why).
        """
        self._waiting(self._tls.do_handshake, until)

    def say(self, data: bytes, until: float) -> None:
        """Write all of ``data``; why the other side takes none is told by what it says itself."""
        self._tls.write(data)
        with suppress(ConnectionError):
            self._drained(until)

    def hear(self, until: float) -> bytes:
        """Wait for the next bytes; nothing at the end.

        Raises:
            OSError: as of ``shake_hands``.
        """
        return self._waiting(lambda: self._tls.read(CHUNK), until)

    def unhear(self, data: bytes) -> None:
        """Let ``data`` be read again, before all that follows."""
        self._early[:0] = data
        self.held = bool(self._early)

    def fileno(self) -> int:
        """Give the socket's number."""
        return self._sock.fileno()

    def receive_into(self, buffer: memoryview) -> int | None:
        """Read what is there; 0 at the end, None when nothing is there yet.

        Raises:
            ConnectionError: the connection was cut: its end was not said.
        """
        filled = min(len(self._early), len(buffer))
        buffer[:filled] = self._early[:filled]
        del self._early[:filled]
        ended = False
        while filled < len(buffer):
            try:
                size = int(self._tls.read(len(buffer) - filled, buffer[filled:]))
            except ssl.SSLWantReadError:
                if filled or not self._take():
                    break
                continue
            except ssl.SSLEOFError as error:
                raise ConnectionResetError("the engine cut the connection") from error
            except ssl.SSLZeroReturnError:  # both sides have said their end
                size = 0
            if not size:
                ended = True
                break
            filled += size
        self.held = bool(filled) and (ended or filled == len(buffer))
        self._flush()  # an answer of the TLS layer's own
        return filled if filled or ended else None

    def send(self, data: memoryview) -> int:
        """Write what fits now and tell how much that was; the rest is to be offered again.

        A record is sent whole or counts as not sent, so nothing waits here after the last call.
        """
        if not self._piece:
            self._piece = int(self._tls.write(data[:PIECE]))
        if not self._flush():
            return 0
        sent, self._piece = self._piece, 0
        return sent

    def close_write(self) -> None:
        """Say that this side's words end; the other's are still heard."""
        self._keep_what_arrived()
        with suppress(ssl.SSLWantReadError):  # the other side's end, which comes later
            self._tls.unwrap()
        self._drained(time.monotonic() + END_S)

    def close(self) -> None:
        """Give the connection up; twice is fine."""
        self._sock.close()

    def _keep_what_arrived(self) -> None:
        """Read what is in memory: the TLS layer takes its own end for the end of all."""
        with suppress(ssl.SSLWantReadError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
            while data := self._tls.read(CHUNK):
                self._early += data
        self.held = bool(self._early)

    def _take(self) -> bool:
        """Take ciphertext from the socket; False when none is there."""
        try:
            data = self._sock.recv(CHUNK)
        except BlockingIOError:
            return False
        if data:
            self._arrived.write(data)
        else:
            self._arrived.write_eof()
        return True

    def _flush(self) -> bool:
        """Send ciphertext; False when some of it does not fit."""
        while len(self._unsent) or self._leaving.pending:
            if not len(self._unsent):
                self._unsent = memoryview(self._leaving.read())
            try:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
            except BlockingIOError:
                return False
        return True

    def _drained(self, until: float) -> None:
        while not self._flush():
            self._wait(until, writing=True)

    def _waiting(self, step: Callable[[], _Result], until: float) -> _Result:
        """Do ``step`` of the TLS layer, with as many bytes as it wants."""
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                with suppress(ConnectionError):  # what the other side said before is more
                    self._drained(until)
                if not self._take():
                    self._wait(until)
            finally:
                with suppress(ConnectionError):
                    self._flush()

    def _wait(self, until: float, *, writing: bool = False) -> None:
        left = max(0.0, until - time.monotonic())
        mine = [self._sock]
        if not any(select.select(() if writing else mine, mine if writing else (), (), left)):
            raise TimeoutError("the other side says nothing")
