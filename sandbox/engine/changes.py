"""What changed in a sandbox's file system since its start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from sandbox.evidence.records import FileChange

KINDS: dict[int, Literal["modified", "added", "deleted"]] = {
    0: "modified",
    1: "added",
    2: "deleted",
}


def parse_changes(said: Iterable[Mapping[str, object]] | None) -> tuple[FileChange, ...]:
    """Read the engine's answer to "changes" (``Kind`` 0, 1, 2; null for none), by path.

    Folders count as modified with their content.
    """
    changes = [
        FileChange(path=str(change["Path"]), change=KINDS[int(str(change["Kind"]))])
        for change in said or ()
    ]
    return tuple(sorted(changes, key=lambda change: change.path))
