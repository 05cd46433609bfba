"""The cache folder outside the repository: where it is, how entries appear whole, who may write.

Every entry is content-addressed and published by one rename, so a killed process leaves at most a
temporary sibling, which the next writer removes. A writer holds an advisory lock (flock(2)), which
the kernel releases when its process dies; a reader that works with an entry for long holds a shared
one (``<entry>.use``), so that nobody prunes it meanwhile.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from sandbox.errors import CacheUnusable

_YOUNG_S = 60.0
_UNUSABLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}


def cache_root() -> Path:
    """Return ``$XDG_CACHE_HOME/sandbox``, or ``~/.cache/sandbox``; it may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "sandbox"


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """Turn "no space", "read-only" and "not permitted" below ``path`` into ``CacheUnusable``."""
    try:
        yield
    except CacheUnusable:
        raise
    except OSError as error:
        if error.errno not in _UNUSABLE:
            raise
        raise CacheUnusable(
            f"cannot write the cache below {path}: {error.strerror}",
            cure="free space there, or point XDG_CACHE_HOME at a folder with space that you own",
        ) from error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the exclusive lock of the entry ``path`` (its file is ``<path>.lock``) while inside."""
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path.with_name(path.name + ".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def in_use(path: Path) -> Iterator[None]:
    """Keep the entry ``path`` from being pruned while inside; it need not be there yet."""
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path.with_name(path.name + ".use"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


class Uses:
    """The entries that a context manager keeps ``in_use`` until it is left; none outside of it."""

    def __init__(self) -> None:
        self._stack: ExitStack | None = None
        self._paths: set[Path] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        return self

    def __exit__(self, *args: object) -> None:
        with self._lock:
            stack, self._stack = self._stack, None
            self._paths.clear()
        if stack is not None:
            stack.close()

    def keep(self, path: Path) -> None:
        """Keep an entry; once is enough."""
        with self._lock:
            if self._stack is not None and path not in self._paths:
                self._stack.enter_context(in_use(path))
                self._paths.add(path)


@contextmanager
def claimed(path: Path) -> Iterator[bool]:
    """Try to have the entry ``path`` alone: True while inside, if nobody writes or uses it."""
    with writable(path), ExitStack() as stack:
        for ending in (".lock", ".use"):
            file = path.with_name(path.name + ending)
            handle = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
            stack.callback(os.close, handle)
            if not _taken(handle):
                yield False
                return
        yield True


def _remove_if_there(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def scratch(
    folder: Path, prefix: str, *, remove: Callable[[Path], None] = _remove_if_there
) -> Iterator[Path]:
    """Give a new folder below ``folder``, removed at the end; ``abandoned`` once its maker died."""
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
        handle = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield made
    finally:
        try:
            remove(made)
        except BaseException:  # an end that is asked for now would leave half of it
            remove(made)
            raise
        finally:
            os.close(handle)


def abandoned(made: Path) -> bool:
    """Tell whether nobody works in a ``scratch`` folder; a very young one may not be locked yet."""
    if time.time() - made.stat().st_mtime < _YOUNG_S:
        return False
    handle = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _taken(handle)
    finally:
        os.close(handle)


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def remove(path: Path) -> None:
    """Remove a file or folder of the cache; one that is gone already is as good."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def published(path: Path) -> Iterator[Path]:
    """Give a temporary sibling to write (a file or a folder) and rename it to ``path`` on success.

    Call it inside ``locked(path)``: leftovers of killed writers are removed first. On an error
    nothing appears at ``path``.
    """
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        for stale in path.parent.glob(f".{path.name}.tmp-*"):
            remove(stale)
        temporary = path.parent / f".{path.name}.tmp-{uuid.uuid4().hex}"
        try:
            yield temporary
            temporary.rename(path)
        finally:
            remove(temporary)
