"""SWE-ReX: a server in the container that runs commands, asked over HTTP.

The image must bring the server (``swerex-remote``) or let the package install it, which takes
Python and a package index: give one with ``--peer-image swe-rex=REF``. The server needs a port, so
its container has a network. There is no way to copy a folder out.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from swerex.deployment.docker import DockerDeployment
from swerex.runtime.abstract import Command, UploadRequest

from sandbox.engine.peers.looped import Loop
from sandbox.errors import EngineFailure, Unsupported

_START_S = 60.0


class Contender:
    """One deployment."""

    def __init__(self, image: str, labels: Mapping[str, str]) -> None:
        self._loop = Loop()
        self._deployment = DockerDeployment(
            image=image,
            docker_args=[f"--label={key}={value}" for key, value in labels.items()],
            pull="never",
            startup_timeout=_START_S,
            logger=logging.getLogger(__name__),  # its own writes to standard output
        )

    def start(self) -> None:
        """Start the container and wait for its server."""
        self._loop.run(self._deployment.start())

    def exec(self, argv: Sequence[str]) -> None:
        """Run a command."""
        command = Command(command=list(argv), shell=False)
        ended = self._loop.run(self._deployment.runtime.execute(command))
        if ended.exit_code != 0:
            raise EngineFailure(f"{argv[0]} ended with {ended.exit_code}")

    def put(self, folder: Path, dest: str) -> None:
        """Copy in, as one archive over HTTP."""
        request = UploadRequest(source_path=str(folder), target_path=dest)
        self._loop.run(self._deployment.runtime.upload(request))

    def get(self, path: str, folder: Path) -> None:  # noqa: ARG002 - there is no such call
        """Refuse."""
        raise Unsupported(f"cannot copy {path}: SWE-ReX copies no folder out")

    def close(self) -> None:
        """End the container."""
        try:
            self._loop.run(self._deployment.stop())
        finally:
            self._loop.close()
