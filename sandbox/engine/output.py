"""A command's output: frames of the engine's stream taken apart, and bounded in memory.

The stream's format is the engine API's "attach" format: frames of an 8-byte header (stream
number, three zero bytes, big-endian length) and that many bytes.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from dataclasses import dataclass

from sandbox.errors import EngineFailure

STDIN = 0  # the engine's own copy treats it as standard output
STDOUT = 1
STDERR = 2
ENGINE_ERROR = 3
HEADER = 8

Sink = Callable[[memoryview], object]


@dataclass(frozen=True)
class Stream:
    """What one stream of a command held: all of it, or its first and last bytes.

    ``total`` counts all bytes the command wrote. When ``truncated``, ``head`` and ``tail`` are
    the first and the last bytes and the middle is gone; otherwise ``head`` is everything.
    """

    head: bytes = b""
    tail: bytes = b""
    total: int = 0

    @property
    def truncated(self) -> bool:
        """Tell whether bytes between head and tail were dropped."""
        return self.total > len(self.head) + len(self.tail)

    @property
    def data(self) -> bytes:
        """Give the kept bytes; without the middle when ``truncated``."""
        return self.head + self.tail

    @property
    def text(self) -> str:
        """Give the kept bytes as UTF-8; bytes that are none become U+FFFD.

        When ``truncated``, a line between head and tail says how much is missing, and no
        character is cut in halves there.
        """
        if not self.truncated:
            return self.data.decode(errors="replace")
        head = codecs.getincrementaldecoder("utf-8")(errors="replace").decode(self.head)
        tail = self.tail
        for _ in range(3):  # a UTF-8 character has at most three continuation bytes
            if tail[:1] and 0x80 <= tail[0] <= 0xBF:
                tail = tail[1:]
        gone = self.total - len(self.head) - len(self.tail)
        return f"{head}\n[... {gone} bytes left out ...]\n{tail.decode(errors='replace')}"


EMPTY = Stream()


class BoundedOutput:
    """Collects one stream in at most about twice ``cap`` bytes of memory."""

    def __init__(self, cap: int) -> None:
        self._head_cap = cap - cap // 2
        self._tail_cap = cap // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def write(self, data: memoryview) -> None:
        """Take the next bytes; ``data`` is not kept."""
        self._total += len(data)
        room = self._head_cap - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if self._tail_cap and len(data):
            self._tail += data[-self._tail_cap :]
            if len(self._tail) >= 2 * self._tail_cap:
                del self._tail[: -self._tail_cap]

    def stream(self) -> Stream:
        """Give what was collected so far."""
        tail = bytes(self._tail[-self._tail_cap :]) if self._tail_cap else b""
        head = bytes(self._head)
        if len(head) + len(tail) == self._total:
            return Stream(head=head + tail, total=self._total)
        return Stream(head=head, tail=tail, total=self._total)


class Demultiplexer:
    """Takes the engine's frames apart, whatever chunks they arrive in."""

    def __init__(self, *, stdout: Sink, stderr: Sink) -> None:
        self._sinks = {STDIN: stdout, STDOUT: stdout, STDERR: stderr, ENGINE_ERROR: self._complain}
        self._header = bytearray()
        self._stream = 0
        self._left = 0
        self._said = bytearray()

    def feed(self, data: memoryview) -> None:
        """Take the next bytes of the stream; ``data`` is not kept.

        Raises:
            EngineFailure: the bytes are no frames, or the engine reports an error in one.
        """
        while len(data):
            if self._left == 0:
                data = self._take_header(data)
                continue
            part, data = data[: self._left], data[self._left :]
            self._left -= len(part)
            self._sinks[self._stream](part)

    def finished(self) -> bool:
        """Tell whether the stream may end here: not within a frame."""
        return self._left == 0 and not self._header

    def _take_header(self, data: memoryview) -> memoryview:
        missing = HEADER - len(self._header)
        self._header += data[:missing]
        if len(self._header) == HEADER:
            self._stream = self._header[0]
            self._left = int.from_bytes(self._header[4:], "big")
            if self._header[1:4] != b"\0\0\0" or self._stream not in self._sinks:
                raise EngineFailure(
                    f"the engine's output stream is broken: header {bytes(self._header).hex()}"
                )
            self._header.clear()
        return data[missing:]

    def _complain(self, part: memoryview) -> None:
        self._said += part
        if self._left == 0:
            raise EngineFailure(f"the engine says: {self._said.decode(errors='replace')}")
