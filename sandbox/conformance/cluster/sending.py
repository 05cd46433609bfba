"""The client's side of what workers fetch: which files there are, and their pieces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from sandbox.cache import cache_root, scratch
from sandbox.conformance.cluster.intake import Picture, Piece, Runtime, Want
from sandbox.conformance.job import CellJob
from sandbox.engine.client import Engine
from sandbox.engine.shipping import export_image
from sandbox.errors import Unsupported
from sandbox.runtimes.collection import RuntimeCollection
from sandbox.runtimes.library import RuntimeLibrary

PIECE = 4 << 20
"""Bytes of one message: what the client, the scheduler and a worker hold at a time."""


def wanted(
    jobs: Iterable[CellJob], library: RuntimeLibrary | RuntimeCollection
) -> tuple[Want, ...]:
    """Return the images and runtimes that the jobs' cells use, each once, in the jobs' order."""
    found: dict[str, Want] = {}
    for job in jobs:
        picture = Picture(image=job.image, content=job.image_content)
        found.setdefault(job.image_content, picture)
        try:
            bundle = library.ensure_bundle(job.spec.adapter, job.image.platform)
        except Unsupported:  # its cells are refused with the reason
            continue
        found.setdefault(
            bundle.sha256,
            Runtime(
                harness=bundle.harness,
                platform=bundle.platform,
                sha256=bundle.sha256,
                size=bundle.size,
            ),
        )
    return tuple(found.values())


@dataclass
class Sending:
    """The files that are sent; a context manager that removes what was exported for it.

    Args:
        engine: has the images.
        library: has the bundles.
    """

    engine: Engine
    library: RuntimeLibrary | RuntimeCollection
    _stack: ExitStack = field(default_factory=ExitStack)
    _exported: dict[str, tuple[Path, str]] = field(default_factory=dict)
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self._stack.close()

    async def pieces(self, want: Want) -> AsyncIterator[tuple[Piece, bytes]]:
        """Give a file's pieces in order; an image is exported when it is first asked for."""
        path, sha256 = await self._file(want)
        size = path.stat().st_size
        with path.open("rb") as stream:
            while data := await asyncio.to_thread(stream.read, PIECE):
                yield Piece(sha256=sha256, size=size, offset=stream.tell() - len(data)), data

    async def _file(self, want: Want) -> tuple[Path, str]:
        if isinstance(want, Runtime):
            bundle = self.library.ensure_bundle(want.harness, want.platform)
            return bundle.path, bundle.sha256
        async with self._one:
            if want.content not in self._exported:
                self._exported[want.content] = await asyncio.to_thread(self._export, want)
        return self._exported[want.content]

    def _export(self, want: Picture) -> tuple[Path, str]:
        folder = self._stack.enter_context(scratch(cache_root() / "runtimes", ".arrive-"))
        path = folder / "image.tar"
        return path, export_image(self.engine, want.image, path)
