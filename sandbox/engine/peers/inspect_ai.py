"""inspect_ai's Docker sandbox: a project of ``docker compose``; its client plugin is needed.

It copies single files, so a folder goes as one tar, which the image must be able to unpack. Its
largest file to read is 100 MiB.
"""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from inspect_ai.util._sandbox.docker.docker import DockerSandboxEnvironment

from sandbox.engine.peers.looped import Loop
from sandbox.errors import EngineFailure

_TASK = "bench"
_TAR = "/var/tmp/bench.tar"  # noqa: S108 - in a sandbox


class Contender:
    """One sample's sandbox."""

    def __init__(self, image: str, labels: Mapping[str, str]) -> None:
        self._loop = Loop()
        self._folder = tempfile.TemporaryDirectory()
        self._config = str(Path(self._folder.name) / "compose.yaml")
        service = {
            "image": image,
            "command": ["tail", "-f", "/dev/null"],
            "entrypoint": [],
            "init": True,
            "network_mode": "none",
            "labels": dict(labels),
            "x-local": True,
        }
        Path(self._config).write_text(json.dumps({"services": {"default": service}}))
        self._sandboxes: dict[str, DockerSandboxEnvironment] = {}

    def start(self) -> None:
        """Start the project."""
        self._loop.run(DockerSandboxEnvironment.task_init(_TASK, self._config))
        self._sandboxes = self._loop.run(
            DockerSandboxEnvironment.sample_init(_TASK, self._config, {})
        )

    def exec(self, argv: Sequence[str]) -> None:
        """Run a command."""
        ended = self._loop.run(self._sandboxes["default"].exec(list(argv)))
        if not ended.success:
            raise EngineFailure(f"{argv[0]} ended with {ended.returncode}: {ended.stderr}")

    def put(self, folder: Path, dest: str) -> None:
        """Copy in, as one tar."""
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as tar:
            tar.add(folder, arcname=".")
        self._loop.run(self._sandboxes["default"].write_file(_TAR, data.getvalue()))
        self.exec(["sh", "-c", 'mkdir "$2" && tar -xf "$1" -C "$2"', "sh", _TAR, dest])

    def get(self, path: str, folder: Path) -> None:
        """Copy out, as one tar."""
        self.exec(["tar", "-c", "-f", _TAR, "-C", path, "."])
        data = self._loop.run(self._sandboxes["default"].read_file(_TAR, text=False))
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            tar.extractall(folder, filter="data")

    def close(self) -> None:
        """Remove the project."""
        try:
            self._loop.run(
                DockerSandboxEnvironment.sample_cleanup(
                    _TASK, self._config, self._sandboxes, interrupted=False
                )
            )
            self._loop.run(DockerSandboxEnvironment.task_cleanup(_TASK, self._config, cleanup=True))
        finally:
            self._loop.close()
            self._folder.cleanup()
