"""The entry point of a bundle, ``bin/<harness>``: how it starts the harness's program.

A link where the program starts by itself, otherwise a launcher in sh that finds its own bundle and
passes all arguments on. No launcher sets a variable: it would leak into the harness's tools.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from sandbox.runtimes.words import Line, PlainFile, Said


class LinkEntry(Said):
    """A symlink to ``program``."""

    kind: Literal["link"]
    program: PlainFile


class LoaderEntry(Said):
    """A launcher that starts ``program`` through the image's own ``loader``.

    ``libraries`` is the bundle's folder that the loader searches first.
    """

    kind: Literal["loader"]
    program: PlainFile
    loader: Annotated[str, Field(pattern=r"^/[A-Za-z0-9._/-]+$")]
    libraries: PlainFile


class ExecEntry(Said):
    """A launcher that starts ``program`` with ``options``, then ``script`` of the bundle, if any.

    For what an interpreter of the bundle runs: Node and a script, Python and ``-m module``.
    """

    kind: Literal["exec"]
    program: PlainFile
    options: tuple[Line, ...] = ()
    script: PlainFile | None = None


Entry = Annotated[LinkEntry | LoaderEntry | ExecEntry, Field(discriminator="kind")]


def launcher(entry: LoaderEntry | ExecEntry, template: Path) -> bytes:
    """Return the launcher of ``entry``: ``template`` with its ``@command@`` filled in."""
    return template.read_text("utf-8").replace("@command@", _command(entry)).encode()


def _command(entry: LoaderEntry | ExecEntry) -> str:
    if isinstance(entry, LoaderEntry):
        words = [shlex.quote(entry.loader), "--library-path", _placed(entry.libraries)]
        return " ".join([*words, _placed(entry.program)])
    words = [_placed(entry.program), *map(shlex.quote, entry.options)]
    return " ".join([*words, _placed(entry.script)] if entry.script else words)


def _placed(path: str) -> str:
    return f'"$root/{path}"'
