"""What changed in a sandbox's file system, sorted by who may write there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Literal

from sandbox.evidence.folder import CellFiles
from sandbox.evidence.records import FileChange, Record

Owner = Literal["engine", "task", "private", "temporary", "unexpected"]

_ENGINE = frozenset(
    {
        "/.dockerenv",
        "/etc/hostname",
        "/etc/hosts",
        "/etc/mtab",
        "/etc/resolv.conf",
        "/run/.containerenv",
        "/run/podman-init",
        "/sbin/docker-init",
        "/usr/sbin/docker-init",
    }
)
_PODMANS_OWN = frozenset({"/etc"})
"""Podman mounts files in it without a layer of its own for that, as Docker has one."""
_ENGINE_BELOW = ("/proc", "/sys", "/run/secrets")
_TEMPORARY = ("/tmp", "/var/tmp", "/run", "/var/run", "/dev/shm")  # noqa: S108 - names in a list
_NAMES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("the package database", ("/var/lib/dpkg", "/lib/apk", "/usr/lib/apk", "/var/lib/rpm")),
    (
        "a profile file",
        ("/etc/profile", "/etc/profile.d", "/etc/environment", "/etc/bash.bashrc", "/etc/shells"),
    ),
    ("users", ("/etc/passwd", "/etc/group", "/etc/shadow")),
    (
        "a folder of PATH",
        ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"),
    ),
    ("libraries", ("/lib", "/lib64", "/usr/lib", "/usr/local/lib")),
)


class Change(Record):
    """One change, whose it is, and of an unexpected one what it touches."""

    path: str
    change: Literal["added", "modified", "deleted"]
    owner: Owner
    touches: str = ""


def sorted_changes(files: CellFiles) -> tuple[Change, ...]:
    """Sort the changes of a cell; folders that only hold other changes are left out.

    ``task``: below the workdir, and what the scripted commands write below HOME. ``private``: below
    the session's folder. Whatever else is below HOME is unexpected: it is the task's, not the
    harness's.
    """
    found = files.footprint or ()
    return tuple(_sorted(one, files) for one in found if not _only_holds(one, found))


def counts(changes: Iterable[Change]) -> dict[str, int]:
    """Count changes by owner."""
    return dict(sorted(Counter(one.owner for one in changes).items()))


def _only_holds(one: FileChange, found: Sequence[FileChange]) -> bool:
    inside = f"{one.path.rstrip('/')}/"
    return one.change == "modified" and any(other.path.startswith(inside) for other in found)


def _sorted(one: FileChange, files: CellFiles) -> Change:
    owner = _owner(one.path, files)
    touches = _touched(one.path, files) if owner == "unexpected" else ""
    return Change(path=one.path, change=one.change, owner=owner, touches=touches)


def _owner(path: str, files: CellFiles) -> Owner:
    cell = files.cell
    if path in _ENGINE or _is_below(path, _ENGINE_BELOW):
        return "engine"
    if path in _PODMANS_OWN and cell.engine is not None and cell.engine.product == "podman":
        return "engine"
    if cell.session_dir is not None and _is_below(path, [cell.session_dir]):
        return "private"
    if cell.workdir not in (None, "/") and _is_below(path, [str(cell.workdir)]):
        return "task"
    if any(path.startswith(written) for written in _scripted(files)):
        return "task"
    return "temporary" if _is_below(path, _TEMPORARY) else "unexpected"


def _scripted(files: CellFiles) -> Iterator[str]:
    """Yield how the paths begin that scripted commands write below HOME or the workdir "/"."""
    cell, witness = files.cell, files.witness
    for tool in witness.tools if witness is not None else ():
        marker = tool.expected.marker
        base = cell.task_home if marker.startswith("~/") else cell.workdir
        if marker and base is not None:
            stem = PurePosixPath(base, marker.removeprefix("~/")).with_suffix("")
            yield f"{stem}."


def _touched(path: str, files: CellFiles) -> str:
    home = files.cell.task_home
    if home not in (None, "/") and _is_below(path, [str(home)]):
        return "the task's HOME"
    return next((name for name, places in _NAMES if _is_below(path, places)), "the image")


def _is_below(path: str, places: Iterable[str]) -> bool:
    return any(path == place or path.startswith(f"{place.rstrip('/')}/") for place in places)
