"""Canaries: secrets made up for one cell or run, and a search for them where none may be.

The model key of a cell opens nothing and is like no other. A variable in this process's environment
stands for what the host of a fleet has there. Both are looked for in the native evidence, in all
records of the cell, in the engine's description of the container, and in the arguments and the
environment of every process that is seen while the agent works.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from sandbox.engine.sandbox import Sandbox
from sandbox.evidence.cell import SecretSeen
from sandbox.evidence.celltexts import CellTexts
from sandbox.evidence.folder import CellFiles

Secret = Literal["model key", "host environment"]
HOST_VARIABLE = "SANDBOX_HOST_CANARY"
_CHUNK = 1 << 20


@contextmanager
def host_canary() -> Iterator[None]:
    """Put a canary into this process's environment while cells run."""
    before = os.environ.get(HOST_VARIABLE)
    os.environ[HOST_VARIABLE] = before or f"host-canary-{secrets.token_hex(16)}"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(HOST_VARIABLE, None)


class SecretWatch:
    """Looks for the canaries of one cell.

    Args:
        key: the model key.
    """

    def __init__(self, key: str) -> None:
        self._words: dict[str, Secret] = {key: "model key"}
        canary = os.environ.get(HOST_VARIABLE)
        if canary:
            self._words[canary] = "host environment"
        self._found: set[SecretSeen] = set()

    def glance(self, sandbox: Sandbox) -> None:
        """Look at the sandbox's processes of this moment, where the host can see them."""
        for one in sandbox.mentions(tuple(self._words)):
            self._note(one.word, one.place, one.program)

    def look_at_container(self, sandbox: Sandbox) -> None:
        """Look at what the engine tells of the container."""
        self._look("container", {"docker inspect": sandbox.inspected().encode()})

    def all_seen(
        self, files: CellFiles, native: Path | None, texts: CellTexts
    ) -> tuple[SecretSeen, ...]:
        """Look at everything that is about to be written; return all that was ever found."""
        self._look("records", {name: text.encode() for name, text in texts.of(files).items()})
        for path in _files(native):
            self._search(path, str(path.relative_to(native or path)))
        return tuple(sorted(self._found, key=lambda one: (one.place, one.where, one.secret)))

    def _look(self, place: Literal["container", "records"], texts_: Mapping[str, bytes]) -> None:
        for name, data in texts_.items():
            for word in self._words:
                if word.encode() in data:
                    self._note(word, place, name)

    def _search(self, path: Path, name: str) -> None:
        """Search a file in pieces that overlap by the longest word."""
        overlap = max(map(len, self._words))
        kept = b""
        with path.open("rb") as file:
            while piece := file.read(_CHUNK):
                window = kept + piece
                for word in self._words:
                    if word.encode() in window:
                        self._note(word, "native", name)
                kept = window[-overlap:]

    def _note(
        self,
        word: str,
        place: Literal[
            "native", "records", "container", "process arguments", "process environment"
        ],
        where: str,
    ) -> None:
        self._found.add(SecretSeen(secret=self._words[word], place=place, where=where))


def _files(native: Path | None) -> Iterator[Path]:
    if native is None:
        return
    for parent, _, names in os.walk(native):
        for name in sorted(names):
            path = Path(parent) / name
            if path.is_file() and not path.is_symlink():
                yield path
