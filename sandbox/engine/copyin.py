"""Putting a few small files into a sandbox through the host's view of it, without a tar.

A tar costs an exec of the engine, or a request to it, whatever its size; here a file costs some
system calls. What comes to be is what ``archive`` tells a tar. The task may change the tree
meanwhile: each step opens one name below an open folder and follows no link.

Only small files: the kernel charges what lies in memory to who wrote it, so that a large file would
escape the sandbox's limit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from sandbox.engine.archive import FILE_MODE, FOLDER_MODE, Owner, PutFile
from sandbox.engine.place import SAFELY

MOST_BYTES = 256 * 1024
MOST_FILES = 100
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | SAFELY


def is_small(files: Sequence[PutFile]) -> bool:
    """Tell whether files are all from memory, few and small."""
    return (
        len(files) <= MOST_FILES
        and all(file.data is not None for file in files)
        and sum(len(file.data or b"") for file in files) <= MOST_BYTES
    )


def copy_in(
    root: Path, existing: str, below: str, files: Sequence[PutFile], owner: Owner, *, trusted: bool
) -> None:
    """Write files from memory into a folder.

    Args:
        root: the sandbox's root folder as the host sees it.
        existing: an absolute path in the sandbox without links: a folder that is there.
        below: where the files go, relative to ``existing``; what is missing is made.
        files: what ``is_small`` takes.
        owner: who they will belong to; users are the host's own numbers in the sandbox.
        trusted: the owner may write everywhere; else only in folders of its own.

    Raises:
        OSError: something is in the way, or may not be written; some files may be there.
    """
    writer = _Writer(owner, trusted=trusted)
    with writer.opened(root, existing) as folder, writer.inside(folder, below) as target:
        for file in files:
            pure = PurePosixPath(file.path)
            with writer.inside(target, str(pure.parent)) as parent:
                writer.write(parent, pure.name, file)


class _Writer:
    """Writes for one owner."""

    def __init__(self, owner: Owner, *, trusted: bool) -> None:
        self._owner = owner
        self._trusted = trusted

    @contextmanager
    def opened(self, root: Path, path: str) -> Iterator[int]:
        """Open the folder ``path`` below ``root``; none is made on the way."""
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in PurePosixPath(path).parts[1:]:
                folder = _entered(folder, part)
            self._expect_own(folder)
            yield folder
        finally:
            os.close(folder)

    @contextmanager
    def inside(self, folder: int, below: str) -> Iterator[int]:
        """Open a folder below an open one; all on the way are made, and become the owner's."""
        inner = os.dup(folder)
        try:
            for part in PurePosixPath(below).parts:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=inner)
                    os.chown(
                        part, self._owner.uid, self._owner.gid, dir_fd=inner, follow_symlinks=False
                    )
                inner = _entered(inner, part)
                self._expect_own(inner)
                self._give(inner, FOLDER_MODE)
            yield inner
        finally:
            os.close(inner)

    def write(self, folder: int, name: str, file: PutFile) -> None:
        """Write a file in the place of the one that is there; a folder there is an OSError."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        number = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFELY, 0o600, dir_fd=folder)
        with os.fdopen(number, "wb", buffering=0) as opened:
            left = memoryview(file.data or b"")
            while left:
                left = left[opened.write(left) :]
            self._give(number, FILE_MODE if file.mode is None else file.mode)
            os.utime(number, (0, 0))

    def _give(self, number: int, mode: int) -> None:
        os.fchown(number, self._owner.uid, self._owner.gid)
        os.fchmod(number, mode)

    def _expect_own(self, folder: int) -> None:
        status = os.fstat(folder)
        own = status.st_uid == self._owner.uid and status.st_mode & 0o300 == 0o300
        if not (own or self._trusted):
            raise PermissionError(f"not a folder of user {self._owner.uid}")


def _entered(folder: int, name: str) -> int:
    """Open a folder in an open one, in whose place it comes."""
    inner = os.open(name, _FOLDER, dir_fd=folder)
    os.close(folder)
    return inner
