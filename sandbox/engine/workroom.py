"""The temporary files of one process, in a folder that the next start removes if it was killed."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.cache import writable
from sandbox.engine.owner import boot_id, machine, pid_namespace, start_ticks

PREFIX = "sandbox-work-"
_NAME = re.compile(rf"{PREFIX}(?P<pid>\d+)-(?P<ticks>\d+)-(?P<where>[0-9a-f]{{12}})-")


@contextmanager
def workroom() -> Iterator[Path]:
    """Let everything that this process makes in the temporary folder be in one folder of its own.

    Its name says whose it is. Folders of processes that are proved dead are removed first: of this
    machine, this boot and this pid namespace, where a pid and its start time name one process.

    Raises:
        CacheUnusable: no temporary folder can be written.
    """
    above, before = Path(tempfile.gettempdir()), tempfile.tempdir
    remove_abandoned(above)
    with writable(above):
        own = tempfile.mkdtemp(prefix=own_prefix(), dir=above)
    tempfile.tempdir = own
    try:
        yield Path(own)
    finally:
        tempfile.tempdir = before
        shutil.rmtree(own, ignore_errors=True)


def own_prefix() -> str:
    """Give the beginning of a folder's name that says that it is this process's."""
    pid = os.getpid()
    return f"{PREFIX}{pid}-{start_ticks(pid) or 0}-{_where()}-"


def remove_abandoned(above: Path) -> tuple[Path, ...]:
    """Remove the work folders of dead processes from a temporary folder; return which."""
    here, gone = _where(), []
    for folder in above.glob(f"{PREFIX}*"):
        named = _NAME.match(folder.name)
        if named is None or named["where"] != here:
            continue
        if start_ticks(int(named["pid"])) != int(named["ticks"]):
            shutil.rmtree(folder, ignore_errors=True)
            gone.append(folder)
    return tuple(gone)


def _where() -> str:
    """Name machine, boot and pid namespace in a few letters."""
    text = f"{machine()}\n{boot_id()}\n{pid_namespace()}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]
