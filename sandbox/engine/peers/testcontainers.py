"""Testcontainers by itself, as its users start a container (the engine room goes around it)."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from sandbox.engine.unpack import IterReader
from sandbox.errors import EngineFailure

_KEEP = ["-c", "sleep 2147483647"]


class Contender:
    """One container; its reaper is left out, since its image may not be here."""

    def __init__(self, image: str, labels: Mapping[str, str]) -> None:
        testcontainers_config.ryuk_disabled = True
        self._container = DockerContainer(
            image,
            command=_KEEP,
            entrypoint="/bin/sh",
            labels=dict(labels),
            network_mode="none",
            init=True,
        )

    def start(self) -> None:
        """Start the container."""
        self._container.start()

    def exec(self, argv: Sequence[str]) -> None:
        """Run a command."""
        ended = self._container.exec(list(argv))
        if ended.exit_code != 0:
            raise EngineFailure(f"{argv[0]} ended with {ended.exit_code}")

    def put(self, folder: Path, dest: str) -> None:
        """Copy in, as one tar."""
        self._container.copy_into_container(folder, dest)

    def get(self, path: str, folder: Path) -> None:
        """Copy out; Testcontainers' own call does that for single files only."""
        chunks, _ = self._container.get_wrapped_container().get_archive(path)
        with tarfile.open(fileobj=IterReader(chunks), mode="r|") as tar:
            tar.extractall(folder, filter="data")

    def close(self) -> None:
        """Remove the container."""
        self._container.stop()
