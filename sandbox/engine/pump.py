"""Moves bytes between a running command and the host until one of them is through."""

from __future__ import annotations

import selectors
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from enum import Enum

from sandbox.engine.output import Demultiplexer
from sandbox.engine.stream import Connection

BUFFER_BYTES = 256 * 1024
CANCEL_POLL_S = 0.05
FIRST_IDLE_S = 0.1
IDLE_S = 1.0
HELD_S = 0.1
"""How long nothing comes from what holds an ended command's output open, until nobody waits."""
ON_ITS_WAY_S = 5.0
"""How long the end of an output may take that nothing holds open; normal: some milliseconds."""


class Ending(Enum):
    """Why the moving of bytes stopped."""

    FINISHED = "finished"
    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"


class _Silence:
    """Judges by silence when a command's output is complete although something holds it open.

    That is when the command has ended, and then nothing came for another while.
    """

    def __init__(self, ended: Callable[[], float | None]) -> None:
        self._ended = ended
        self._since = time.monotonic()
        self._saw_end = False
        self.patience = FIRST_IDLE_S

    def broken(self, now: float) -> None:
        """Note that something came."""
        if self._saw_end:
            self.patience = FIRST_IDLE_S
        self._since, self._saw_end = now, False

    def means_end(self, now: float) -> bool:
        """Tell whether the output counts as complete; asks ``ended`` now and then."""
        if now - self._since < self.patience:
            return False
        self._since = now
        more = self._ended()
        if more is None:
            self.patience = min(2 * self.patience, IDLE_S)
            return False
        if self._saw_end:
            return True
        self._saw_end, self.patience = True, more
        return False


class Pump:
    """Feeds standard input and takes output apart; one command, one thread.

    Args:
        connection: to the command.
        output: takes what comes.
        stdin: what the command reads; None for nothing.
        stays_open: more standard input may follow later, through another pump.
        complete: asked after each read; True ends the run although the output goes on.
    """

    def __init__(
        self,
        connection: Connection,
        output: Demultiplexer,
        stdin: Iterable[bytes] | None,
        *,
        stays_open: bool = False,
        complete: Callable[[], bool] = lambda: False,
    ) -> None:
        self._connection = connection
        self._output = output
        self._chunks: Iterator[bytes] = iter(stdin or ())
        self._pending = memoryview(b"")
        self._writing = stdin is not None
        self._stays_open = stays_open
        self._complete = complete
        self._buffer = memoryview(bytearray(BUFFER_BYTES))

    def run(
        self,
        until: float,
        *,
        cancel: threading.Event | None = None,
        ended: Callable[[], float | None] = lambda: None,
    ) -> Ending:
        """Move bytes until the output ends, monotonic time ``until`` or ``cancel``.

        Args:
            until: when to give up.
            cancel: give up as soon as this is set (within 50 ms).
            ended: asked while nothing comes, first after 0.1 s, later each second: None while the
                command runs, and once it has ended how many seconds more nothing may come until
                the output counts as complete, since a child of it may hold it open for ever.
        """
        silence = _Silence(ended)
        if not self._read():  # bytes that are held wake no selector
            return Ending.FINISHED
        with selectors.DefaultSelector() as selector:
            selector.register(self._connection, self._events())
            while True:
                now = time.monotonic()
                if cancel is not None and cancel.is_set():
                    return Ending.CANCELLED
                if now >= until:
                    return Ending.TIMED_OUT
                if silence.means_end(now) and not selector.select(0):
                    return Ending.FINISHED
                if self._connection.held and not self._read():
                    return Ending.FINISHED
                tick = silence.patience if cancel is None else CANCEL_POLL_S
                for _, events in selector.select(min(tick, until - now)):
                    if events & selectors.EVENT_READ and not self._read():
                        return Ending.FINISHED
                    if events & selectors.EVENT_WRITE:
                        self._write()
                        selector.modify(self._connection, self._events())
                    silence.broken(now)

    def drain(self, timeout_s: float) -> None:
        """Take what output is still on its way from a command that was ended."""
        self._writing = False
        self.run(time.monotonic() + timeout_s)

    def _events(self) -> int:
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._writing else 0)

    def _read(self) -> bool:
        """Read what is there; False at the end of the output, or of what is wanted of it."""
        while True:
            size = self._connection.receive_into(self._buffer)
            if size:
                self._output.feed(self._buffer[:size])
            if size == 0 or self._complete():
                return False
            if not (size and self._connection.held):
                return True

    def _write(self) -> None:
        """Write once; at the end of standard input, say so."""
        try:
            while not len(self._pending):
                self._pending = memoryview(next(self._chunks))
        except StopIteration:
            self._writing = False
            if not self._stays_open:
                self._connection.close_write()
            return
        try:
            self._pending = self._pending[self._connection.send(self._pending) :]
        except BrokenPipeError:  # the command ended, or closed its standard input
            self._writing = False
