"""Which programs of a sandbox the engine's runtime is known to start.

A shell that cannot run a file says so in its own words, and runs a file without a "#!" as a script;
the runtime does neither. So a kept shell gets only programs which the runtime has started before,
the very same file, unchanged. Everything else is the engine's to start or to refuse.
"""

from __future__ import annotations

import stat
from pathlib import Path, PurePosixPath

from sandbox.engine.place import resolve
from sandbox.errors import SandboxError

ANYBODY = 0o111
Program = tuple[int, int, int]


class Programs:
    """The programs of one sandbox that were started before.

    Args:
        root: the sandbox's root folder as the host sees it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._started: set[Program] = set()

    def find(self, word: str, path: str | None, folder: str) -> Program | None:
        """Find the file that running ``word`` would start, as execvp(3) does.

        Args:
            word: the first word of a command.
            path: the command's PATH.
            folder: where it runs.

        Returns:
            The file and its last change; None when there is none that everybody may run.
        """
        if word.startswith("-") or "=" in word:
            return None  # some tool on the way would take it for an option or a variable
        if "/" in word:
            return self._at(str(PurePosixPath(folder, word)))
        places = (path or "").split(":")
        if not all(place.startswith("/") for place in places):
            return None
        return next((found for place in places if (found := self._at(f"{place}/{word}"))), None)

    def add(self, program: Program | None) -> None:
        """Note that the runtime has started this program."""
        if program is not None:
            self._started.add(program)

    def knows(self, program: Program | None) -> bool:
        """Tell whether the runtime has started this program, unchanged since."""
        return program in self._started

    def _at(self, path: str) -> Program | None:
        try:
            status = (self._root / resolve(self._root, path)[1:]).lstat()
        except (OSError, SandboxError):
            return None
        if not stat.S_ISREG(status.st_mode) or status.st_mode & ANYBODY != ANYBODY:
            return None
        return status.st_dev, status.st_ino, status.st_ctime_ns
