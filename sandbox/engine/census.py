"""What the host sees of a running sandbox in the kernel's files: processes, the dead, disk, words.

Formats: proc(5) for mountinfo, cmdline and environ. Nothing is run in the sandbox.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from sandbox.engine.processes import ProcessInfo, from_host, of_the_task

WordPlace = Literal["process arguments", "process environment"]
_BLOCK = 512
_FILES: tuple[tuple[str, WordPlace], ...] = (
    ("cmdline", "process arguments"),
    ("environ", "process environment"),
)


@dataclass(frozen=True, kw_only=True)
class DiskUse:
    """What is written in the container's layer and in its file systems in memory."""

    bytes: int
    inodes: int


@dataclass(frozen=True, kw_only=True)
class Census:
    """One look: the task's processes, those that are dead and not buried, and the disk.

    ``disk`` None: the layer is not an overlay that this process may read.
    """

    processes: tuple[ProcessInfo, ...]
    zombies: tuple[ProcessInfo, ...]
    disk: DiskUse | None


@dataclass(frozen=True, kw_only=True, order=True)
class Mention:
    """A process that has a word: where, and the name of its program."""

    word: str
    place: WordPlace
    program: str


def census(pids: Iterable[int], *, proc: Path = Path("/proc")) -> Census:
    """Take the census of the container whose processes have these host pids."""
    members = sorted(pids)
    seen = from_host(members, proc=proc)
    return Census(
        processes=of_the_task(seen),
        zombies=tuple(process for process in seen if process.state == "Z"),
        disk=None if not members else disk_use(members[0], proc=proc),
    )


def mentions(
    pids: Iterable[int], words: Sequence[str], *, proc: Path = Path("/proc")
) -> frozenset[Mention]:
    """Find the processes that have one of the words in their arguments or environment."""
    return frozenset(_mentions(pids, words, proc))


def _mentions(pids: Iterable[int], words: Sequence[str], proc: Path) -> Iterator[Mention]:
    for pid in pids:
        texts = {name: _read(proc / str(pid) / name) for name, _ in _FILES}
        first = texts["cmdline"].partition(b"\0")[0].decode(errors="replace")
        program = PurePosixPath(first).name or "?"
        for name, place in _FILES:
            for word in words:
                if word.encode() in texts[name]:
                    yield Mention(word=word, place=place, program=program)


def disk_use(pid: int, *, proc: Path = Path("/proc")) -> DiskUse | None:
    """Sum up the overlay's upper folder and the file systems in memory that process ``pid`` has."""
    try:
        rows = (proc / str(pid) / "mountinfo").read_text().splitlines()
    except OSError:
        return None
    upper, memory = None, []
    for row in rows:
        left, _, right = row.partition(" - ")
        point, kind = left.split()[4], right.split()[0]
        if point == "/" and kind == "overlay":
            upper = _option(right.split()[-1], "upperdir")
        elif kind == "tmpfs" and point in {"/tmp", "/dev/shm"}:  # noqa: S108 - they are measured
            memory.append(proc / str(pid) / "root" / point[1:])
    if upper is None or not os.access(upper, os.R_OK | os.X_OK):
        return None
    below = [_inode(entry) for entry in _entries(Path(upper))]
    held = [_held(path) for path in memory]
    return DiskUse(
        bytes=sum(below) + sum(size for size, _ in held),
        inodes=len(below) + sum(count for _, count in held),
    )


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            entries = list(found)
    except OSError:
        return
    for entry in entries:
        yield entry
        if entry.is_dir(follow_symlinks=False):
            yield from _entries(Path(entry.path))


def _inode(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * _BLOCK
    except OSError:
        return 0


def _held(path: Path) -> tuple[int, int]:
    """Give the bytes and inodes in use of a file system of the sandbox's own; its root is none."""
    try:
        seen = os.statvfs(path)
    except OSError:
        return 0, 0
    return (seen.f_blocks - seen.f_bfree) * seen.f_frsize, max(0, seen.f_files - seen.f_ffree - 1)


def _option(options: str, name: str) -> str | None:
    found = (one.partition("=") for one in options.split(","))
    return next((value for key, _, value in found if key == name), None)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
