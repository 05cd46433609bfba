"""What changed in a container's writable layer, read from the layer itself.

The engine's own answer compares two whole trees, file by file, which takes as long as the image is
big; the layer holds nothing but changes. What counts as one is the engine's rule (moby,
``pkg/archive/changes.go``): for files mode, owner, device, size, modification time and capability;
for folders mode and owner, and any change below. Layer format: Documentation/filesystems/overlayfs.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sandbox.evidence.records import FileChange

_OPAQUE = "trusted.overlay.opaque"
_REDIRECT = "trusted.overlay.redirect"
_CAPABILITY = "security.capability"


class Unreadable(Exception):
    """The layer cannot be read by itself: what is in it refers to elsewhere."""


@dataclass(frozen=True)
class _Below:
    """What the layers below have at one path: its state, and where its content is."""

    state: os.stat_result
    place: str
    folders: tuple[str, ...]


def layer_changes(upper: Path, lowers: Sequence[Path]) -> tuple[FileChange, ...]:
    """Compare a writable layer with the layers below it, topmost first.

    Returns:
        The changes by path, as ``parse_changes`` gives them.

    Raises:
        Unreadable: a folder was renamed without its content, or the layer may not be read.
    """
    try:
        found = _changes(str(upper), tuple(str(lower) for lower in lowers), "")
        return tuple(sorted(found, key=lambda change: change.path))
    except OSError as error:
        raise Unreadable(f"{error.filename}: {error.strerror}") from error


def _changes(upper: str, belows: tuple[str, ...], path: str) -> Iterator[FileChange]:
    """Give what differs below one folder."""
    names = set()
    with os.scandir(upper) as entries:
        for entry in entries:
            names.add(entry.name)
            with suppress(FileNotFoundError):  # it went while we looked
                yield from _change(entry, _look(entry.name, belows), f"{path}/{entry.name}")
    if _attribute(upper, _OPAQUE) == b"y":
        for name in {one.name for below in belows for one in os.scandir(below)} - names:
            if _look(name, belows) is not None:
                yield FileChange(path=f"{path}/{name}", change="deleted")


def _change(entry: os.DirEntry[str], below: _Below | None, path: str) -> Iterator[FileChange]:
    state = entry.stat(follow_symlinks=False)
    if _is_whiteout(state):
        if below is not None:
            yield FileChange(path=path, change="deleted")
        return
    content: list[FileChange] = []
    if stat.S_ISDIR(state.st_mode):
        if _attribute(entry.path, _REDIRECT) is not None:
            raise Unreadable(f"{path} is a renamed folder")
        folders = () if below is None else below.folders
        content = list(_changes(entry.path, folders, path))
    if below is None:
        yield FileChange(path=path, change="added")
    elif content or _differs(entry.path, state, below):
        yield FileChange(path=path, change="modified")
    yield from content


def _look(name: str, belows: tuple[str, ...]) -> _Below | None:
    """Find what the layers below show under ``name``: the topmost, folders of all together."""
    state: os.stat_result | None = None
    place, folders = "", list[str]()
    for below in belows:
        here = os.path.join(below, name)  # noqa: PTH118 - thousands of times a cell
        try:
            found = os.lstat(here)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if _is_whiteout(found):
            break
        if state is None:
            state, place = found, here
        if not stat.S_ISDIR(found.st_mode):
            break
        folders.append(here)
        if _attribute(here, _OPAQUE) == b"y":
            break
    return None if state is None else _Below(state, place, tuple(folders))


def _is_whiteout(state: os.stat_result) -> bool:
    return stat.S_ISCHR(state.st_mode) and state.st_rdev == 0


def _differs(path: str, state: os.stat_result, below: _Below) -> bool:
    old = below.state
    if (state.st_mode, state.st_uid, state.st_gid, state.st_rdev) != (
        *(old.st_mode, old.st_uid, old.st_gid),
        old.st_rdev,
    ):
        return True
    if not stat.S_ISDIR(state.st_mode) and (state.st_size, state.st_mtime_ns) != (
        old.st_size,
        old.st_mtime_ns,
    ):
        return True
    return _attribute(path, _CAPABILITY) != _attribute(below.place, _CAPABILITY)


def _attribute(path: str, name: str) -> bytes | None:
    try:
        return os.getxattr(path, name, follow_symlinks=False)
    except OSError:
        return None
