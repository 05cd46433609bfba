"""Runtimes and images that come to a worker in pieces, and are used when they are whole."""

from __future__ import annotations

import hashlib
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from sandbox.cache import locked, published, scratch
from sandbox.engine.client import Engine
from sandbox.engine.images import LoadedImage
from sandbox.engine.shipping import find_same, import_image
from sandbox.errors import IntegrityError
from sandbox.evidence.records import Record
from sandbox.runtimes.integrity import Integrity
from sandbox.runtimes.store import Store


class Runtime(Record):
    """A bundle that a run's cells install; ``size`` is bytes."""

    harness: str
    platform: str
    sha256: str
    size: int

    @property
    def name(self) -> str:
        """Name it in messages."""
        return f"runtime {self.harness} {self.platform}"


class Picture(Record):
    """An image that a run's cells use, as the client's engine has it; ``content`` is a digest."""

    image: LoadedImage
    content: str

    @property
    def name(self) -> str:
        """Name it in messages."""
        return f"image {self.image.name}"


Want = Runtime | Picture


class Piece(Record):
    """A part of a file: where it begins, of how many bytes, with which SHA-256 the whole has."""

    sha256: str
    size: int
    offset: int


class Intake:
    """What arrives at a worker; a context manager that leaves no half file.

    Args:
        engine: where images go.
        store: where bundles go.
    """

    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine = engine
        self._store = store
        self._stack = ExitStack()
        self._arriving: dict[str, _Arrival] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self._stack.close()

    def lacks(self, want: Want) -> bool:
        """Whether it is missing here; a stored file with other bytes is removed."""
        if isinstance(want, Picture):
            return find_same(self._engine, want.image, want.content) is None
        path = self._store.bundle(want.sha256)
        with locked(path):
            self._store.holds_or_drops(path, Integrity.of_sha256(want.sha256), size=want.size)
            return not path.exists()

    def take(self, want: Want, piece: Piece, data: bytes) -> None:
        """Take the next piece; the last one makes the file known.

        Raises:
            IntegrityError: a piece is missing, or the whole has another hash; all is dropped.
            CacheUnusable: there is no room.
            EngineFailure: the engine cannot load the image.
        """
        with self._lock:
            if piece.offset == 0:
                self._arriving[piece.sha256] = self._begin()
            arrival = self._arriving.get(piece.sha256)
        if arrival is None:
            raise IntegrityError(f"{want.name}: its first piece did not come")
        if not arrival.add(want.name, piece, data):
            return
        with self._lock:
            del self._arriving[piece.sha256]
        if isinstance(want, Picture):
            import_image(self._engine, want.image, want.content, arrival.file)
            arrival.file.unlink()
            return
        path = self._store.bundle(want.sha256)
        with locked(path):
            if not path.exists():
                with published(path) as fresh:
                    arrival.file.rename(fresh)

    def _begin(self) -> _Arrival:
        bundles = self._store.bundle("").parent
        folder = self._stack.enter_context(scratch(bundles, ".arrive-"))
        return _Arrival(folder / "file")


class _Arrival:
    """A file that grows from its beginning."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._digest = hashlib.sha256()
        self._size = 0

    def add(self, name: str, piece: Piece, data: bytes) -> bool:
        """Add a piece; True: it was the last one, and the whole is what was announced."""
        if piece.offset != self._size or self._size + len(data) > piece.size:
            raise IntegrityError(f"{name}: the piece at byte {piece.offset} does not fit")
        with self.file.open("ab") as stream:
            stream.write(data)
        self._digest.update(data)
        self._size += len(data)
        if self._size < piece.size:
            return False
        if self._digest.hexdigest() != piece.sha256:
            self.file.unlink()
            raise IntegrityError(f"{name}: what arrived has another hash than {piece.sha256}")
        return True
