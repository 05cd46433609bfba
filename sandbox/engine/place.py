"""Where a path in a sandbox really lies: after its symbolic links, and on which kind of mount.

The engine's archive calls see the container's layers and its bind mounts, but neither memory
file systems (a put is lost there, although the engine says it worked) nor /proc and the like.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Literal, Protocol, cast

from sandbox.engine.owner import start_ticks
from sandbox.errors import ContainerGone, EngineFailure

Kind = Literal["file", "folder", "other", "missing"]
HIDDEN = frozenset(
    {"tmpfs", "ramfs", "proc", "sysfs", "devtmpfs", "devpts", "mqueue", "cgroup", "cgroup2"}
)
MAX_LINKS = 40
EVERYBODY = "4294967295"  # as many users as there can be
SAFELY = os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, kw_only=True)
class Located:
    """A path without symbolic links.

    ``existing`` is its deepest part that exists (itself, unless it is missing); ``archived``
    says whether the engine's archive calls see it.
    """

    path: str
    kind: Kind
    existing: str
    archived: bool


class Locator(Protocol):
    """Finds where paths lie in one sandbox."""

    def locate(self, path: str) -> Located:
        """Follow the symbolic links of an absolute path; missing parts stay as they are."""


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo."""

    point: str
    file_system: str


def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    """Read /proc/PID/mountinfo (proc(5)), in order: later mounts hide earlier ones."""
    mounts = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) >= 5 and kind:
            point = fields[4].replace("\\040", " ").replace("\\134", "\\")
            mounts.append(Mount(point, kind[0]))
    return tuple(mounts)


def is_archived(path: str, mounts: Iterable[Mount]) -> bool:
    """Tell whether the archive calls see ``path``, by the innermost mount it is on."""
    pure = PurePosixPath(path)
    best, hidden = -1, False
    for mount in mounts:
        point = PurePosixPath(mount.point)
        if (point == pure or point in pure.parents) and len(point.parts) >= best:
            best, hidden = len(point.parts), mount.file_system in HIDDEN
    return not hidden


class HostLocator:
    """Looks through /proc/PID/root of the container's init, without running anything in it."""

    def __init__(self, pid: int, *, proc: Path = Path("/proc")) -> None:
        self._pid = pid
        self._proc = proc
        self._started = start_ticks(pid, proc=proc)
        self._folder = proc / str(pid)

    @property
    def root(self) -> Path:
        """Give the sandbox's root folder; its links are not to be followed from here."""
        return self._folder / "root"

    @contextmanager
    def opened_root(self) -> Iterator[Path]:
        """Give the sandbox's root folder under a path that never comes to mean another's.

        Raises:
            ContainerGone: the sandbox has ended, or ended within the block.
        """
        number = os.open(self.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._expect_same()
            yield Path(f"/proc/self/fd/{number}")
            self._expect_same()
        finally:
            os.close(number)

    def shares_users(self) -> bool:
        """Tell whether users have the same numbers in the sandbox as here (user_namespaces(7))."""
        try:
            said = (self._folder / "uid_map").read_text() + (self._folder / "gid_map").read_text()
        except OSError:
            return False
        return said.split() == ["0", "0", EVERYBODY] * 2

    def locate(self, path: str) -> Located:
        """Follow the symbolic links of an absolute path; missing parts stay as they are."""
        try:
            mounts = parse_mountinfo((self._folder / "mountinfo").read_text())
        except OSError as error:
            raise ContainerGone(f"the sandbox's init is gone: {error}") from error
        root = self.root
        resolved = resolve(root, path)
        kind = _kind(f"{root}{resolved}")
        existing = resolved
        while existing != "/" and _kind(f"{root}{existing}") == "missing":
            existing = existing.rpartition("/")[0] or "/"
        self._expect_same()
        return Located(
            path=resolved,
            kind=kind,
            existing=existing,
            archived=is_archived(resolved, mounts),
        )

    def read(self, path: str, limit: int) -> bytes:
        """Read at most ``limit`` bytes of a regular file whose path has no links any more.

        Raises:
            OSError: it is gone, or was swapped for something else meanwhile.
            ContainerGone: the sandbox has ended.
        """
        with open_beneath(self.root, path) as file:
            self._expect_same()
            return file.read(limit)

    def _expect_same(self) -> None:
        """Refuse what was just seen when the pid has come to mean another process."""
        if self._started is None or start_ticks(self._pid, proc=self._proc) != self._started:
            raise ContainerGone(f"the sandbox's init (pid {self._pid}) has ended")


@contextmanager
def beneath(root: Path, path: str) -> Iterator[tuple[int, str]]:
    """Open the folder that ``path`` is in without following any link; give it and the last name."""
    parts = PurePosixPath(path).parts[1:]
    with ExitStack() as stack:
        folder = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, folder)
        for part in parts[:-1]:
            folder = os.open(part, os.O_PATH | os.O_DIRECTORY | SAFELY, dir_fd=folder)
            stack.callback(os.close, folder)
        yield folder, parts[-1]


def open_file(folder: int, name: str) -> BinaryIO:
    """Open a regular file in an open folder; what is none, or a link, is an OSError."""
    number = os.open(name, os.O_RDONLY | os.O_NONBLOCK | SAFELY, dir_fd=folder)
    file = os.fdopen(number, "rb", buffering=0)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "no regular file", name)
    return cast("BinaryIO", file)


@contextmanager
def open_beneath(root: Path, path: str) -> Iterator[BinaryIO]:
    """Open a regular file below ``root`` without following any link on the way."""
    with beneath(root, path) as (folder, name), open_file(folder, name) as file:
        yield file


def resolve(root: Path, path: str) -> str:
    """Follow links as a process with root folder ``root`` would; the host's are never followed.

    Raises:
        EngineFailure: too many links.
    """
    top = str(root)
    todo = _steps(path)[::-1]
    done: list[str] = []
    links = 0
    while todo:
        part = todo.pop()
        if part == "..":
            del done[-1:]
            continue
        try:
            target = os.readlink("/".join((top, *done, part)))  # noqa: PTH115 - asked often
        except OSError:  # no link, or nothing
            done.append(part)
            continue
        links += 1
        if links > MAX_LINKS:
            raise EngineFailure(f"too many symbolic links at {path}")
        if target.startswith("/"):
            done.clear()
        todo += _steps(target)[::-1]
    return "/" + "/".join(done)


def _steps(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]


def _kind(place: str) -> Kind:
    try:
        mode = os.lstat(place).st_mode
    except OSError:
        return "missing"
    if stat.S_ISREG(mode):
        return "file"
    return "folder" if stat.S_ISDIR(mode) else "other"


class ProbeLocator:
    """Asks a script in the sandbox."""

    def __init__(self, ask: Callable[[str], str]) -> None:
        self._ask = ask

    def locate(self, path: str) -> Located:
        """Follow the symbolic links of an absolute path; missing parts stay as they are."""
        said = self._ask(path)
        lines = said.split("\n", 3)
        if len(lines) != 4 or lines[0] not in {"file", "folder", "other", "missing"}:
            raise EngineFailure(f"cannot find out where {path} lies: {said[:200]!r}")
        kind, resolved, existing, mounts = lines
        return Located(
            path=resolved,
            kind=kind,  # type: ignore[arg-type]  # checked above
            existing=existing,
            archived=is_archived(resolved, parse_mountinfo(mounts)),
        )
