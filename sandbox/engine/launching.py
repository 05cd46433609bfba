"""Launches in one container: one at a time, and what each of them brings."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

TURN_POLL_S = 0.002


class Turn:
    """The turn to launch in one container: one at a time, of all who track commands there.

    Several sandboxes, of this process and of others, may be the same container (a lent one): its
    folder is locked (flock(2)), which also ends with a process that dies.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._threads = threading.Lock()
        self._file: int | None = None

    def take(self, until: float) -> bool:
        """Wait for the turn; False when monotonic time ``until`` passes before.

        Raises:
            FileNotFoundError: there is no such folder any more.
        """
        if not self._threads.acquire(timeout=max(0.0, until - time.monotonic())):
            return False
        try:
            self._file = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            while not _locked(self._file):
                if time.monotonic() >= until:
                    self.give_back()
                    return False
                time.sleep(TURN_POLL_S)
        except BaseException:
            self.give_back()
            raise
        return True

    def give_back(self) -> None:
        """Let the next one launch."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)
        self._threads.release()


def _locked(file: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


class Newcomers:
    """Takes what appears in a place out of it, each once.

    Args:
        look: names the processes that are there now, each by pid and start.
        move: takes one of them, by its pid, out of the place; False when it is gone.
    """

    def __init__(
        self, look: Callable[[], set[tuple[int, int | None]]], move: Callable[[int], bool]
    ) -> None:
        self._look = look
        self._move = move
        self._seen: set[tuple[int, int | None]] = set()

    def begin(self) -> None:
        """Note what is there already."""
        self._seen = self._look()

    def take(self) -> bool:
        """Move what is new; tell whether any of it was still there."""
        return self._moved(self._new())

    def take_all(self) -> None:
        """Move what is new until nothing is: what is gone may have left a child meanwhile."""
        while new := self._new():
            self._moved(new)

    def _new(self) -> set[tuple[int, int | None]]:
        new = self._look() - self._seen
        self._seen |= new
        return new

    def _moved(self, new: set[tuple[int, int | None]]) -> bool:
        moved = [self._move(pid) for pid, _ in new]
        return any(moved)
