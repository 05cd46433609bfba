"""Copying files out of a sandbox through the host's view of them, without trust in what is there.

Where the host sees a sandbox's root folder, it needs no tar of it: nothing is packed and unpacked,
and the kind of mount and the image's tools do not matter. The task may change the tree meanwhile:
each step opens one name below an open folder and follows no link. What is kept and what is left
out is what ``unpack`` says.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from sandbox.engine.place import SAFELY, beneath, open_file
from sandbox.engine.unpack import stays_inside
from sandbox.errors import CouldNotFindOut

MOST_LEVELS = 200  # each holds a folder open


def copy_out(root: Path, path: str, dest: Path) -> tuple[str, ...]:
    """Copy a file or tree whose path has no links any more to ``dest``, which does not exist.

    Args:
        root: the sandbox's root folder as the host sees it.
        path: an absolute path in the sandbox, not "/".
        dest: on the host; its folder is nobody else's.

    Returns:
        Names of what was left out, below the last part of ``path``.

    Raises:
        OSError: it is gone, or cannot be read or written.
        CouldNotFindOut: it is deeper than ``MOST_LEVELS``.
    """
    copier = _Copier()
    with beneath(root, path) as (folder, name):
        copier.copy(folder, name, str(dest), name, MOST_LEVELS)
    return tuple(copier.left_out)


class _Copier:
    """One copy: what was left out, and where files with several names went."""

    def __init__(self) -> None:
        self.left_out: list[str] = []
        self._copied: dict[tuple[int, int], str] = {}

    def copy(self, folder: int, name: str, dest: str, shown: str, levels: int) -> None:
        """Copy what is called ``name`` in the open ``folder``; ``shown`` is its whole name."""
        mode = os.lstat(name, dir_fd=folder).st_mode
        if stat.S_ISREG(mode):
            self._file(folder, name, dest)
        elif stat.S_ISDIR(mode):
            self._tree(folder, name, dest, shown, levels)
        elif not stat.S_ISLNK(mode) or not _link(folder, name, dest, shown):
            self.left_out.append(shown)

    def _tree(self, folder: int, name: str, dest: str, shown: str, levels: int) -> None:
        if not levels:
            raise CouldNotFindOut(f"the folders in {shown.partition('/')[0]} are too deep to copy")
        number = os.open(name, os.O_RDONLY | os.O_DIRECTORY | SAFELY, dir_fd=folder)
        try:
            Path(dest).mkdir()
            for entry in os.listdir(number):  # noqa: PTH208 - of an open folder
                with suppress(FileNotFoundError):  # the task may go on, and remove it
                    self.copy(number, entry, f"{dest}/{entry}", f"{shown}/{entry}", levels - 1)
        finally:
            os.close(number)

    def _file(self, folder: int, name: str, dest: str) -> None:
        with open_file(folder, name) as file:
            status = os.fstat(file.fileno())
            key = (status.st_dev, status.st_ino)
            if key in self._copied:
                os.link(self._copied[key], dest)
                return
            if status.st_nlink > 1:
                self._copied[key] = dest
            target = os.open(dest, os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFELY, 0o600)
            try:
                left = status.st_size
                while left and (sent := os.sendfile(target, file.fileno(), None, left)):
                    left -= sent
                os.fchmod(target, _kept(status.st_mode))
                os.utime(target, (status.st_mtime, status.st_mtime))
            finally:
                os.close(target)


def _link(folder: int, name: str, dest: str, shown: str) -> bool:
    """Copy a symbolic link; False when it would lead out of the tree."""
    target = os.readlink(name, dir_fd=folder)
    if not stays_inside(shown, target):
        return False
    Path(dest).symlink_to(target)
    return True


def _kept(mode: int) -> int:
    """Give the permissions of a copy: those of Python's "data" filter for a file in a tar."""
    kept = stat.S_IMODE(mode) & 0o755
    return (kept if kept & 0o100 else kept & ~0o111) | 0o600
