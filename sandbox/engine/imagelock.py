"""Pin the base images of Dockerfiles: ask the registry for a name's digest, keep it in the file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from sandbox.engine.client import Engine
from sandbox.engine.imagebuild.definition import FILE, ImageDef, load_definition
from sandbox.engine.imagebuild.pull import digest_of
from sandbox.errors import FetchError, UsageError

State = Literal["locked", "same", "moved", "updated", "unknown"]
_TABLE = re.compile(r"^\[registry\]\s*?\n(?:(?!\[).*\n?)*", re.MULTILINE)
_DIGEST = re.compile(r"^digest\s*=.*$", re.MULTILINE)
_BASE = re.compile(r"^(base\s*=.*)$", re.MULTILINE)


class LockedBase(BaseModel):
    """What became of one base image's pin.

    ``locked``: it had no digest and has one now; ``same``: the name still has the digest that is
    written; ``moved``: it has another one, and nothing was changed; ``updated``: it had another
    one, which is written now; ``unknown``: no registry told, ``reason`` says why.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    image: str
    base: str
    state: State
    before: str | None = None
    digest: str | None = None
    reason: str | None = None


def lock_bases(
    engine: Engine, definitions: Iterable[ImageDef], *, update: bool = False
) -> tuple[LockedBase, ...]:
    """Ask for every base's digest, one after the other; write those that are new.

    Args:
        engine: asks the registries, with its own configuration.
        definitions: those without a base by name are passed over.
        update: write the digest of a name that moved, too.
    """
    return tuple(
        _lock(engine, item, item.registry.base, update=update)
        for item in definitions
        if item.registry is not None and item.registry.base is not None
    )


def _lock(engine: Engine, definition: ImageDef, base: str, *, update: bool) -> LockedBase:
    assert definition.registry is not None
    before = definition.registry.digest
    try:
        now = digest_of(engine, base, what=f"image {definition.name}")
    except FetchError as error:
        return LockedBase(
            image=definition.name, base=base, state="unknown", before=before, reason=str(error)
        )
    state: State = (
        "locked"
        if before is None
        else "same"
        if before == now
        else "updated"
        if update
        else "moved"
    )
    if state in {"locked", "updated"}:
        write_digest(definition.folder / FILE, now)
    return LockedBase(image=definition.name, base=base, state=state, before=before, digest=now)


def write_digest(path: Path, digest: str) -> None:
    """Put the digest into the [registry] table of an ``image.toml``; all else stays as it is.

    Raises:
        UsageError: the file would not be a definition any more; it is left as it was.
    """
    text = path.read_text(encoding="utf-8")
    table = _TABLE.search(text)
    if table is None:
        raise UsageError(f"{path} has no [registry] table")
    line = f'digest = "{digest}"'
    changed, found = _DIGEST.subn(line, table[0], count=1)
    if not found:
        changed = _BASE.sub(rf"\1\n{line}", table[0], count=1)
    path.write_text(text[: table.start()] + changed + text[table.end() :], encoding="utf-8")
    if not _says(path, digest):
        path.write_text(text, encoding="utf-8")
        raise UsageError(f"{path}: the digest cannot be written there", cure="write it by hand")


def _says(path: Path, digest: str) -> bool:
    try:
        written = load_definition(path.parent).registry
    except UsageError:
        return False
    return written is not None and written.digest == digest
