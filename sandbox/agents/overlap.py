"""Where a private session folder may go: never where the task's own files are, by any path.

Two paths are the same place when their mounts show the same part of the same file system, so bind
mounts are seen through as well as symlinks. Pure: what it knows comes from one look at the sandbox
(``sandbox.agents.look``) before anything is written there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from sandbox.agents.contract import UnprocessableError

SPARE_KIB = 64 * 1024  # for configuration, transcripts and output, beside the runtime

# busybox's test -w looks at modes only, so a read-only mount is told by its options.
_UNFIT_MOUNTS = {"ro": "mounted read-only", "noexec": "mounted noexec"}


@dataclass(frozen=True, kw_only=True)
class Mount:
    """One line of mountinfo: ``root`` is the part of the file system seen at ``point``."""

    device: str
    root: PurePosixPath
    point: PurePosixPath
    options: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A folder as it was found.

    ``resolved`` None: it is not there or may not be entered; ``free_kib`` None: nobody could tell.
    """

    path: str
    resolved: PurePosixPath | None
    writable: bool
    free_kib: int | None


@dataclass(frozen=True)
class Spot:
    """A folder's place on a device, whatever path leads to it."""

    device: str
    path: PurePosixPath

    def holds(self, other: Spot) -> bool:
        """Whether ``other`` is this place or below it."""
        return self.device == other.device and other.path.is_relative_to(self.path)


def parse_mounts(mountinfo: str) -> tuple[Mount, ...]:
    """Read ``/proc/self/mountinfo`` (format: proc(5)); mounts hidden by later ones are left out."""
    by_point: dict[PurePosixPath, Mount] = {}
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        if len(fields) < 7:
            continue
        point = PurePosixPath(_unescape(fields[4]))
        mount = Mount(
            device=fields[2],
            root=PurePosixPath(_unescape(fields[3])),
            point=point,
            options=frozenset(fields[5].split(",")),
        )
        for hidden in [p for p in by_point if p.is_relative_to(point)]:
            del by_point[hidden]
        by_point[point] = mount
    return tuple(by_point.values())


def _unescape(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)


def mount_of(path: PurePosixPath, mounts: Sequence[Mount]) -> Mount | None:
    """Return the mount that ``path`` (resolved) is on."""
    above = [mount for mount in mounts if path.is_relative_to(mount.point)]
    return max(above, key=lambda mount: len(mount.point.parts), default=None)


def spot_of(path: PurePosixPath, mounts: Sequence[Mount]) -> Spot:
    """Return the place of ``path`` (resolved); without mounts the path itself is the place."""
    mount = mount_of(path, mounts)
    if mount is None:
        return Spot("", path)
    return Spot(mount.device, mount.root / path.relative_to(mount.point))


def overlap(one: PurePosixPath, other: PurePosixPath, mounts: Sequence[Mount]) -> str | None:
    """Say how two folders (resolved) share files; None when they do not."""
    for inner, outer in ((one, other), (other, one)):
        if inner == outer:
            return f"{inner} and {outer} are the same folder"
        if inner.is_relative_to(outer):
            return f"{inner} is inside {outer}"
        inner_spot = spot_of(inner, mounts)
        below = [mount.point for mount in mounts if mount.point.is_relative_to(outer)]
        for seen in (outer, *below):
            if spot_of(seen, mounts).holds(inner_spot):
                return f"{inner} is a mount of what is inside {outer}"
    return None


def choose_root(
    candidates: Sequence[Folder],
    *,
    workdir: Folder,
    home: Folder | None,
    mounts: Sequence[Mount],
    need_kib: int = 0,
) -> Folder:
    """Return the first candidate that can hold a session of ``need_kib`` beside the task's files.

    A home of ``/`` is nobody's: users without an entry get it, and it holds everything.

    Raises:
        UnprocessableError: the workdir is missing, or no candidate will do, with all reasons.
    """
    if workdir.resolved is None:
        raise UnprocessableError(
            f"the task workdir {workdir.path} is not there, or its user may not enter it",
            cure="make the workdir before the agent is seeded",
        )
    kept = [("the task workdir", workdir.resolved)]
    if home is not None and home.resolved not in (None, PurePosixPath("/")):
        assert home.resolved is not None
        kept.append(("the task's HOME", home.resolved))
    reasons = []
    for candidate in candidates:
        reason = _unfit(candidate, kept, mounts, need_kib)
        if reason is None:
            return candidate
        reasons.append(f"{candidate.path}: {reason}")
    raise UnprocessableError(
        "there is no folder for the agent's private files: " + "; ".join(reasons),
        cure="give the image's user a writable /tmp or /var/tmp (exec allowed, enough space) "
        "outside the task workdir and HOME",
    )


def _unfit(
    candidate: Folder,
    kept: Sequence[tuple[str, PurePosixPath]],
    mounts: Sequence[Mount],
    need_kib: int,
) -> str | None:
    if candidate.resolved is None:
        return "it is not there"
    if not candidate.writable:
        return "not writable for the task's user"
    mount = mount_of(candidate.resolved, mounts)
    for option, reason in _UNFIT_MOUNTS.items():
        if mount is not None and option in mount.options:
            return reason
    free = candidate.free_kib
    if need_kib and free is not None and free < need_kib + SPARE_KIB:
        return f"{free // 1024} MiB free, {(need_kib + SPARE_KIB) // 1024} MiB needed"
    session = candidate.resolved / "session"
    for name, path in kept:
        if shared := overlap(session, path, mounts):
            return f"not apart from {name}: {shared.replace(str(session), 'it')}"
    return None
