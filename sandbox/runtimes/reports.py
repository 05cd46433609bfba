"""What the commands of this room answer with: one record a line, also as JSON."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import Field

from sandbox.evidence.records import Record
from sandbox.runtimes.needs import Needs


class Bundle(Record):
    """A verified bundle on this machine; ``path`` is its tar, ``size`` its bytes."""

    harness: str
    version: str
    platform: str
    path: Path
    sha256: str
    size: int
    version_argv: tuple[str, ...]
    version_output: str
    version_first_line: bool = False
    version_env: dict[str, str] = Field(default_factory=dict)


class RuntimeEntry(Record):
    """One line of `pins list`: a bundle as locked, and whether its file is here.

    ``redistributable`` is False when a part of it may be fetched, but not passed on.
    """

    harness: str
    version: str
    platform: str
    licence: str
    size: int
    sha256: str
    artifacts: tuple[str, ...]
    needs: Needs
    released: datetime | None = None
    redistributable: bool
    cached: bool


class FetchEntry(Record):
    """One line of `runtimes fetch`: a bundle that is here now, and how long that took."""

    bundle: Bundle
    already_here: bool
    duration_s: float


class VerifyEntry(Record):
    """One line of `pins verify`: a cached file, hashed; ``detail`` says what is wrong."""

    kind: Literal["lock", "artifact", "bundle", "tree"]
    name: str
    status: Literal["ok", "absent", "corrupt"]
    detail: str = ""


class CacheEntry(Record):
    """One line of `cache list`: something in the cache folder, ``size`` in bytes on the disk.

    A ``baked`` one is an image on the engine: ``path`` is its reference, ``size`` the engine's.

    ``state``: needed by a lock or recipe of today; used by a living process; or neither, so that
    `cache prune` removes it.
    """

    kind: Literal[
        "artifact", "bundle", "tree", "tool", "proof", "image", "wheel", "baked", "temporary"
    ]
    path: Path
    size: int
    state: Literal["needed", "used", "unneeded"]


class LockEntry(Record):
    """What `pins lock` did: the lock's path, and whether the file changed."""

    path: Path
    changed: bool
