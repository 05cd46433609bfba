"""One thread that serves sockets by callbacks, from inside the host's process, until it is closed.

The sockets may be of another network namespace. The thread needs nothing from there: it runs on,
idle, when the container has died.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

IDLE_S = 5.0
"""How long a peer may be silent, and how often ``idle`` is called at least."""

_LAST_ROUNDS = 10_000  # more datagrams than the kernel keeps for a socket
_SO_TIMESTAMPNS = 35  # asm-generic/socket.h; the socket module does not name it
_TIMESPEC = struct.Struct("ll")


class SocketThread:
    """Serves the sockets given to ``watch``, which it owns from then on, after ``begin``.

    Every callback and ``idle`` run one at a time, under ``lock``; another thread may take it.
    ``over``: the sockets are closed.
    """

    def __init__(self, name: str) -> None:
        self.lock = threading.RLock()
        self.over = False
        self._watched: dict[socket.socket, Callable[[], None]] = {}
        self._selector = selectors.DefaultSelector()
        self._wake, self._waker = socket.socketpair()
        self._wake.settimeout(0.0)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._closing = threading.Lock()
        self._closed = False

    def begin(self) -> None:
        """Start the thread."""
        self._thread.start()

    def watch(self, owned: socket.socket, ready: Callable[[], None]) -> None:
        """Call ``ready`` whenever ``owned`` can be read; it is made non-blocking."""
        owned.settimeout(0.0)
        self._watched[owned] = ready
        self._selector.register(owned, selectors.EVENT_READ)

    def drop(self, owned: socket.socket) -> None:
        """Close a socket that was watched."""
        self._selector.unregister(owned)
        del self._watched[owned]
        owned.close()

    def idle(self) -> None:
        """Do what is to be done now and then."""

    def ending(self) -> None:
        """Do what is to be done before the sockets are closed."""

    def close(self) -> None:
        """End the thread and close every socket; a second call does nothing.

        What came before is served before: nobody may have waited for an answer.
        """
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._waker.close()
            self._thread.join()

    def _serve(self) -> None:
        try:
            while self._serve_ready(IDLE_S):
                with self.lock:
                    self.idle()
            for _ in range(_LAST_ROUNDS):
                if not self._serve_ready(0):
                    break
            with self.lock:
                self.ending()
        finally:
            with self.lock:
                self.over = True
                for owned in (*self._watched, self._wake, self._waker):
                    owned.close()
                self._selector.close()

    def _serve_ready(self, wait_s: float) -> bool:
        """Serve what is ready within ``wait_s``; return False when it is time to end.

        That is when ``close`` was called; from then on, when nothing is ready any more.
        """
        ready = [key.fileobj for key, _ in self._selector.select(wait_s)]
        if self._wake in ready:
            self._selector.unregister(self._wake)
            return False
        for source in ready:
            with self.lock:
                # An earlier callback may have dropped it.
                call = self._watched.get(source) if isinstance(source, socket.socket) else None
                if call is not None:
                    call()
        return bool(ready) or wait_s > 0


def stamp_arrivals(receiver: socket.socket) -> None:
    """Let the kernel note when each packet came: a loaded host may read it much later."""
    receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


def receive_stamped(receiver: socket.socket, size: int) -> tuple[bytes, float | None, object]:
    """Return a packet, its arrival in seconds since the epoch (None: unknown), and its sender.

    Raises:
        OSError: there is none (BlockingIOError), or it cannot be had.
    """
    data, told, _, sender = receiver.recvmsg(size, socket.CMSG_SPACE(_TIMESPEC.size))
    for level, kind, value in told:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
            with suppress(struct.error):
                seconds, nanoseconds = _TIMESPEC.unpack(value)
                return data, seconds + nanoseconds / 1e9, sender
    return data, None, sender
