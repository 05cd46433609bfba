"""One look at the folders that matter to a session, before anything is written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from sandbox.agents.overlap import Folder, Mount, parse_mounts
from sandbox.agents.ports import Place
from sandbox.errors import CouldNotFindOut

# For each path: resolved path, y or n for writable; then the lines of df for those that can be
# entered; then the mount table.
_LOOK = r"""
count=$#
for path do
    resolved=$(cd -P -- "$path" 2>/dev/null && pwd -P && printf .) || resolved=
    [ -w "$path" ] && [ -x "$path" ] && writable=y || writable=n
    printf '%s\0%s\0' "$resolved" "$writable"
    [ -z "$resolved" ] || set -- "$@" "$path"
done
shift "$count"
[ $# = 0 ] || df -Pk -- "$@" 2>/dev/null
printf '\0'
cat /proc/self/mountinfo
"""
_FREE = re.compile(r"\s\d+\s+\d+\s+(-?\d+)\s+(?:\d+%|-)\s+/")


@dataclass(frozen=True, kw_only=True)
class Look:
    """What was seen, in the order of the paths that were asked for."""

    folders: tuple[Folder, ...]
    mounts: tuple[Mount, ...]


def look_at(place: Place, paths: Sequence[str]) -> Look:
    """Resolve ``paths`` in the sandbox and read its mount table, in one command.

    Raises:
        CouldNotFindOut: the sandbox could not be asked.
    """
    ended = place.exec(["sh", "-c", _LOOK, "sh", *paths], cwd="/", deadline_s=30)
    said = ended.stdout.text.split("\0")
    if ended.exit_code != 0 or len(said) != 2 * len(paths) + 2:
        raise CouldNotFindOut(
            f"cannot look at the folders of sandbox {place.id}: {ended.stderr.text.strip()[-500:]}"
        )
    *fields, df, mountinfo = said
    resolved, writable = fields[0::2], fields[1::2]
    there = [path for path, where in zip(paths, resolved, strict=True) if where]
    free = _free(there, df)
    rows = zip(paths, resolved, writable, strict=True)
    return Look(
        folders=tuple(_folder(*row, free.get(row[0])) for row in rows),
        mounts=parse_mounts(mountinfo),
    )


def _free(paths: Sequence[str], df: str) -> dict[str, int]:
    """Read df's lines, one a path; nothing when some are missing: whose they are is not known."""
    found = _FREE.findall(df)
    if len(found) != len(paths):
        return {}
    return {path: max(0, int(free)) for path, free in zip(paths, found, strict=True)}


def _folder(path: str, resolved: str, writable: str, free_kib: int | None) -> Folder:
    return Folder(
        path=path,
        resolved=PurePosixPath(resolved.removesuffix("\n.")) if resolved else None,
        writable=writable == "y",
        free_kib=free_kib,
    )
