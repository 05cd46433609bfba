"""One look at the folders that matter to a session, before anything is written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from sandbox.agents.overlap import Folder, Mount, parse_mounts
from sandbox.agents.ports import Place
from sandbox.errors import CouldNotFindOut

# For each path: resolved path, y or n for writable, the line of df; then the mount table.
_LOOK = r"""
for path do
    resolved=$(cd -P -- "$path" 2>/dev/null && pwd -P && printf .) || resolved=
    [ -w "$path" ] && [ -x "$path" ] && writable=y || writable=n
    printf '%s\0%s\0%s\0' "$resolved" "$writable" "$(df -Pk -- "$path" 2>/dev/null)"
done
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
    *fields, mountinfo = ended.stdout.text.split("\0")
    if ended.exit_code != 0 or len(fields) != 3 * len(paths):
        raise CouldNotFindOut(
            f"cannot look at the folders of sandbox {place.id}: {ended.stderr.text.strip()[-500:]}"
        )
    rows = zip(paths, fields[0::3], fields[1::3], fields[2::3], strict=True)
    return Look(folders=tuple(_folder(*row) for row in rows), mounts=parse_mounts(mountinfo))


def _folder(path: str, resolved: str, writable: str, df: str) -> Folder:
    free = _FREE.search(df)
    return Folder(
        path=path,
        resolved=PurePosixPath(resolved.removesuffix("\n.")) if resolved else None,
        writable=writable == "y",
        free_kib=max(0, int(free[1])) if free else None,
    )
