"""The cache folder outside the repository: where it is, how entries appear whole, who may write.

Every entry is content-addressed and published by one rename, so a killed process leaves at most a
temporary sibling, which the next writer removes. A writer holds an advisory lock (flock(2)), which
the kernel releases when its process dies.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.errors import CacheUnusable

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
def published(path: Path) -> Iterator[Path]:
    """Give a temporary sibling to write (a file or a folder) and rename it to ``path`` on success.

    Call it inside ``locked(path)``: leftovers of killed writers are removed first. On an error
    nothing appears at ``path``.
    """
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        for stale in path.parent.glob(f".{path.name}.tmp-*"):
            _remove(stale)
        temporary = path.parent / f".{path.name}.tmp-{uuid.uuid4().hex}"
        try:
            yield temporary
            temporary.rename(path)
        finally:
            _remove(temporary)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
