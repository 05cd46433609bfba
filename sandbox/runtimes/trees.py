"""Dependency trees as pinned: every package of a harness, from the lock file of its own client.

A tree's ``source`` lies beside the pins file and is committed: npm's ``package-lock.json`` (with
integrity, without addresses) or a requirements file with hashes. `sandbox pins lock` turns it
into one lock entry a package; no package's install script ever runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from sandbox.errors import PrerequisiteMissing
from sandbox.runtimes.words import PlainFile, Platform, Said


class NpmTreePin(Said):
    """The packages of a ``package-lock.json``; they land in ``node_modules/``."""

    client: Literal["npm"]
    source: PlainFile


class PipTreePin(Said):
    """The wheels of a hash-locked requirements file, for CPython ``python`` (as "3.13").

    They land in ``lib/python<python>/site-packages/``, so ``put`` is the interpreter's own prefix.
    """

    client: Literal["pip"]
    source: PlainFile
    python: Annotated[str, Field(pattern=r"^3\.[0-9]+$")]


TreePin = Annotated[NpmTreePin | PipTreePin, Field(discriminator="client")]


def source_of(tree: NpmTreePin | PipTreePin, beside: Path) -> Path:
    """Return the path of a tree's source; ``PrerequisiteMissing`` when it is not there."""
    path = beside.parent / tree.source
    if not path.is_file():
        raise PrerequisiteMissing(
            f"no file {path}, which {beside} names as a tree's source",
            cure="commit it beside the pins file: it is part of the pins",
        )
    return path


def digest_of(tree: NpmTreePin | PipTreePin, platforms: Sequence[Platform], source: Path) -> str:
    """Return the sha256 of everything a tree's lock entry follows from."""
    said = json.dumps([tree.model_dump(mode="json"), sorted(platforms)], sort_keys=True)
    return hashlib.sha256(said.encode() + b"\0" + source.read_bytes()).hexdigest()
