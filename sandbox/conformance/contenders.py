"""Who is measured: a sandbox of ours, and containers that the docker client works on by hand."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from sandbox.conformance.timing import CALL_DEADLINE_S, DockerCli
from sandbox.engine.client import Engine
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import EngineFailure


class OurContender:
    """A sandbox of ours."""

    def __init__(self, engine: Engine, image: str, owner: Ownership) -> None:
        self._sandbox = Sandbox(engine, image, owner=owner)

    def start(self) -> None:
        """Start it."""
        self._sandbox.start()

    def exec(self, argv: Sequence[str]) -> None:
        """Run a command."""
        ended = self._sandbox.exec(argv, deadline_s=CALL_DEADLINE_S)
        if ended.exit_code != 0:
            raise EngineFailure(f"{argv[0]} ended with {ended.exit_code}: {ended.stderr.text}")

    def put(self, folder: Path, dest: str) -> None:
        """Copy in."""
        self._sandbox.put(folder, dest)

    def get(self, path: str, folder: Path) -> None:
        """Copy out."""
        self._sandbox.get(path, folder)

    def close(self) -> None:
        """Remove it."""
        self._sandbox.close()


class DockerContender:
    """A container by hand, with ``docker cp``."""

    def __init__(self, docker: DockerCli, image: str, owner: Ownership) -> None:
        self._docker = docker
        self._image = image
        self._owner = owner
        self._name = docker.name()

    def start(self) -> None:
        """Run it."""
        self._docker.call(
            "run", "--detach", *self._docker.options(self._name, self._image, self._owner)
        )

    def exec(self, argv: Sequence[str]) -> None:
        """Run a command."""
        self._docker.call("exec", self._name, *argv)

    def put(self, folder: Path, dest: str) -> None:
        """Copy in."""
        self._docker.call("cp", "--quiet", str(folder), f"{self._name}:{dest}")

    def get(self, path: str, folder: Path) -> None:
        """Copy out."""
        self._docker.call("cp", "--quiet", f"{self._name}:{path}", str(folder))

    def close(self) -> None:
        """Remove it."""
        self._docker.remove(self._name)


class TarContender(DockerContender):
    """A container by hand, with a tar through ``docker exec``: the way for many files."""

    def put(self, folder: Path, dest: str) -> None:
        """Copy in."""
        self.exec(["mkdir", dest])
        with subprocess.Popen(
            ["tar", "-c", "-f", "-", "-C", str(folder), "."],
            stdout=subprocess.PIPE,
        ) as tar:
            self._docker.call(
                *("exec", "--interactive", self._name, "tar", "-x", "-f", "-", "-C", dest),
                stdin=tar.stdout,
            )

    def get(self, path: str, folder: Path) -> None:
        """Copy out."""
        folder.mkdir()
        with subprocess.Popen(
            ["tar", "-x", "-f", "-", "-C", str(folder)],
            stdin=subprocess.PIPE,
        ) as tar:
            self._docker.call("exec", self._name, "tar", "-c", "-C", path, ".", stdout=tar.stdin)
