"""Pieces of a large report kept on disk until what stands before them is known."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, NamedTuple, Self

_CHUNK = 1 << 20


class Span(NamedTuple):
    """Where a piece is: bytes from the beginning, and how many."""

    start: int
    length: int


class Spool:
    """A file without a name that grows at its end; a context manager.

    Args:
        folder: on whose disk it is (None: the system's folder for such files).
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - __exit__ closes it
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, text: str) -> Span:
        """Append a piece."""
        data = text.encode("utf-8", "replace")
        self._file.write(data)
        span = Span(self._size, len(data))
        self._size += len(data)
        return span

    @property
    def all(self) -> tuple[Span, ...]:
        """Everything, as one piece."""
        return (Span(0, self._size),)

    def copy(self, spans: Iterable[Span], to: IO[bytes]) -> None:
        """Write the pieces in the order given."""
        for start, length in spans:
            self._file.seek(start)
            left = length
            while left:
                data = self._file.read(min(left, _CHUNK))
                to.write(data)
                left -= len(data)
        self._file.seek(self._size)


def joined(spans: list[Span], span: Span) -> None:
    """Append a span to a list; one that goes on where the last one ends makes that longer."""
    if spans and sum(spans[-1]) == span.start:
        spans[-1] = Span(spans[-1].start, spans[-1].length + span.length)
    else:
        spans.append(span)
