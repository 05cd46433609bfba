"""Joins a local connection with the streams of a command in a container, both ways."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable
from contextlib import suppress

from sandbox.engine.output import Demultiplexer
from sandbox.engine.stream import Connection

CHUNK = 64 * 1024
TICK_S = 0.5
MAX_WAITING = 1 << 20
LAST_WORDS_S = 10.0


class Splice:
    """What ``near`` says becomes the command's input, the command's output is said to ``near``.

    The command says on standard error, as a line with the number of bytes that it had, that its
    output has ended while its input may go on: an engine passes the two streams on apart, so the
    line may come before the last of those bytes. The end of ``near``'s words ends the command's
    input.

    Args:
        near: a connected socket; made non-blocking here.
        far: the command's connection.
    """

    def __init__(self, near: socket.socket, far: Connection) -> None:
        near.settimeout(0.0)
        self._near, self._far = near, far
        self._to_far, self._to_near = bytearray(), bytearray()
        self._near_reads, self._near_writes, self._far_writes = True, True, True
        self._far_heard = 0
        self._far_count = bytearray()
        self._buffer = memoryview(bytearray(CHUNK))
        self._output = Demultiplexer(stdout=self._hear, stderr=self._far_count.extend)

    def run(self, stopped: Callable[[], bool]) -> None:
        """Copy until the command has ended and its words are said, or ``stopped`` is true."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._near, selectors.EVENT_READ)
            selector.register(self._far, selectors.EVENT_READ)
            while not stopped():
                if not self._take_far():
                    return
                self._settle()
                self._watch(selector)
                for key, events in selector.select(0 if self._far.held else TICK_S):
                    if key.fileobj is self._near and events & selectors.EVENT_READ:
                        self._take_near()

    def _hear(self, data: memoryview) -> None:
        self._far_heard += len(data)
        self._to_near.extend(data)

    def _far_said_all(self) -> bool:
        line, newline, _ = self._far_count.partition(b"\n")
        return bool(newline) and line.strip().isdigit() and self._far_heard >= int(line)

    def _take_far(self) -> bool:
        """Read what the command says; False when it has ended and all is passed on."""
        held = True
        while held:
            if len(self._to_near) > MAX_WAITING:
                return True
            size = self._far.receive_into(self._buffer)
            if size:
                self._output.feed(self._buffer[:size])
            held = bool(size) and self._far.held
        if size != 0:
            return True
        self._near.settimeout(LAST_WORDS_S)
        with suppress(OSError):
            self._near.sendall(self._to_near)
        return False

    def _settle(self) -> None:
        """Write what can be written, and pass the ends on once all before them is written."""
        if self._to_near and self._near_writes:
            try:
                del self._to_near[: self._near.send(self._to_near)]
            except BlockingIOError:
                pass
            except OSError:
                self._near_writes = False
        if not self._near_writes:
            self._to_near.clear()
        if self._near_writes and not self._to_near and self._far_said_all():
            self._near_writes = False
            with suppress(OSError):
                self._near.shutdown(socket.SHUT_WR)
        if self._to_far and self._far_writes:
            try:
                with memoryview(bytes(self._to_far)) as waiting:
                    del self._to_far[: self._far.send(waiting)]
            except OSError:
                self._far_writes = False
        if not self._near_reads and self._far_writes and not self._to_far:
            self._far_writes = False
            with suppress(OSError):
                self._far.close_write()

    def _watch(self, selector: selectors.BaseSelector) -> None:
        near = selectors.EVENT_READ if self._near_reads and len(self._to_far) < CHUNK else 0
        near |= selectors.EVENT_WRITE if self._to_near and self._near_writes else 0
        far = selectors.EVENT_WRITE if self._to_far and self._far_writes else 0
        far |= selectors.EVENT_READ if len(self._to_near) <= MAX_WAITING else 0
        for file, events in ((self._near, near), (self._far, far)):
            known = file in selector.get_map()
            if events and known:
                selector.modify(file, events)
            elif events:
                selector.register(file, events)
            elif known:
                selector.unregister(file)

    def _take_near(self) -> None:
        try:
            data = self._near.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._to_far += data
        self._near_reads = bool(data)
