"""What the pins resolved to, written by tool: the models of ``pins.lock``, its loader and writer.

The lock is sorted JSON beside its pins file. It keeps no download address: names, versions, file
names, sizes and hashes only, so any mirror serves. ``pins_sha256`` ties it to its pins,
``harness_sha256`` each harness to what they said of it, so that one can be locked alone.
"""

from __future__ import annotations

import json
import re
import uuid
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandbox.errors import PrerequisiteMissing, UsageError
from sandbox.runtimes.integrity import IntegrityText
from sandbox.runtimes.needs import Needs
from sandbox.runtimes.pins import Pins, default_pins_path, explain
from sandbox.runtimes.trees import digest_of, source_of
from sandbox.runtimes.words import DebianVersion, Inside, Name, Platform, Word

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+~-]*$")]
Size = Annotated[int, Field(gt=0)]


class _Locked(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Wanted(_Locked):
    """One file to download, by its hash; its size (bytes) when it is known."""

    client: Literal["npm", "pip", "apt"]
    name: str
    version: Word | DebianVersion
    tag: Word | None = None
    file: FileName
    size: Size | None = None
    integrity: IntegrityText


class LockedArtifact(Wanted):
    """One downloaded file: size in bytes, npm's sha512 SRI or a sha256."""

    size: Size


class LockedPackage(LockedArtifact):
    """One package of a tree.

    Attributes:
        licence: what the package says of itself.
        paths: the folders that it fills; empty for a wheel, whose names say it.
        bins: npm's programs: name to file in the package.
        platforms: who gets it.
    """

    licence: str
    paths: tuple[Inside, ...] = ()
    bins: dict[str, Inside] = Field(default_factory=dict)
    platforms: Annotated[tuple[Platform, ...], Field(min_length=1)]


class LockedTree(_Locked):
    """A whole dependency tree; ``digest`` is of its pin, its platforms and its source."""

    digest: Sha256
    packages: tuple[LockedPackage, ...]


class LockedBundle(_Locked):
    """One bundle: what it was made of and needs, and the size (bytes) and sha256 of the tar.

    ``released`` is when the registry says that this version of the harness was published.
    """

    version: Word
    artifacts: tuple[Name, ...]
    trees: tuple[Name, ...] = ()
    needs: Needs
    released: datetime | None = None
    size: Size
    sha256: Sha256


class Lock(_Locked):
    """A whole lock file; ``bundles`` is by harness, then platform."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    pins_sha256: Sha256
    harness_sha256: dict[Name, Sha256] = Field(default_factory=dict)
    artifacts: dict[Name, LockedArtifact]
    trees: dict[Name, LockedTree] = Field(default_factory=dict)
    bundles: dict[Name, dict[Platform, LockedBundle]]

    def text(self) -> str:
        """Return the file's text: sorted, one line a package, so that two runs give the same."""
        data = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        lines: list[str] = []
        for tree in data["trees"].values():
            for at, package in enumerate(tree["packages"]):
                said = {key: value for key, value in package.items() if value not in ([], {})}
                tree["packages"][at] = f"@{len(lines)}@"
                lines.append(json.dumps(said, sort_keys=True))
        for bundle in (one for each in data["bundles"].values() for one in each.values()):
            bundle["needs"] = {key: value for key, value in bundle["needs"].items() if value}
            if not bundle["trees"]:
                del bundle["trees"]
        text = json.dumps(data, indent=2, sort_keys=True) + "\n"
        return re.sub(r'"@(\d+)@"', lambda found: lines[int(found[1])], text)


def lock_path_for(pins_path: Path | None = None) -> Path:
    """Return where the lock of a pins file lies: beside it, ending in ``.lock``."""
    return (pins_path or default_pins_path()).with_suffix(".lock")


def _cure(path: Path) -> str:
    """Say how a lock is written: this project's own, or another package's."""
    of = "" if path == lock_path_for() else f" --pins {path.with_suffix('.toml')}"
    return f"run `sandbox pins lock{of}` and review what it changed"


def load_lock(path: Path | None = None) -> Lock:
    """Read and check a lock file (this project's own when ``path`` is None).

    Raises:
        PrerequisiteMissing: there is none.
        UsageError: it is not a lock; names file and key.
    """
    path = path or lock_path_for()
    try:
        data = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise PrerequisiteMissing(f"no lock file {path}", cure=_cure(path)) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not JSON: {error}", cure=_cure(path)) from error
    try:
        return Lock.model_validate(data)
    except ValidationError as error:
        raise UsageError(explain(path, error), cure=_cure(path)) from error


def check_current(pins: Pins, lock: Lock, path: Path) -> None:
    """Raise ``UsageError`` when the lock was made from other pins, or leaves one of them out."""
    if lock.pins_sha256 != pins.digest():
        raise UsageError(
            f"{path} is stale: the pins changed after it was written", cure=_cure(path)
        )
    if lost := sorted(pins.artifact.keys() - lock.artifacts.keys()):
        raise UsageError(f"{path} lacks artifact {lost[0]}", cure=_cure(path))
    for name, harness in pins.harness.items():
        for platform in harness.platforms:
            if platform not in lock.bundles.get(name, {}):
                raise UsageError(f"{path} lacks the bundle {name} on {platform}", cure=_cure(path))
    for name, tree in pins.tree.items():
        source = source_of(tree, path)
        digest = digest_of(tree, pins.platforms_of_tree(name), source)
        if name not in lock.trees or lock.trees[name].digest != digest:
            raise UsageError(
                f"{path} is stale: {source} changed after it was written", cure=_cure(path)
            )


def write_lock(path: Path, lock: Lock) -> bool:
    """Write the lock by one rename; say whether the file changed."""
    text = lock.text()
    if path.is_file() and path.read_text("utf-8") == text:
        return False
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        temporary.write_text(text, "utf-8")
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)
    return True
