"""Harbor's Docker environment: a project of ``docker compose``; its client plugin is needed.

Its commands run in bash, so the image must have it.
"""

from __future__ import annotations

import secrets
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from harbor.environments.docker.docker import DockerEnvironment
from harbor.models.task.config import EnvironmentConfig
from harbor.models.trial.paths import TrialPaths

from sandbox.engine.peers.looped import Loop
from sandbox.errors import EngineFailure


class Contender:
    """One trial's environment; its containers carry no labels of ours."""

    def __init__(self, image: str, labels: Mapping[str, str]) -> None:  # noqa: ARG002
        self._loop = Loop()
        self._folder = tempfile.TemporaryDirectory()
        base = Path(self._folder.name)
        paths = TrialPaths(trial_dir=base / "trial")
        paths.mkdir()
        (base / "environment").mkdir()
        self._environment = DockerEnvironment(
            environment_dir=base / "environment",
            environment_name="bench",
            session_id=f"bench-{secrets.token_hex(6)}",
            trial_paths=paths,
            task_env_config=EnvironmentConfig(docker_image=image),
        )

    def start(self) -> None:
        """Start the project."""
        self._loop.run(self._environment.start(force_build=False))

    def exec(self, argv: Sequence[str]) -> None:
        """Run a command, which Harbor takes as a line for bash."""
        ended = self._loop.run(self._environment.exec(shlex.join(argv)))
        if ended.return_code != 0:
            raise EngineFailure(f"{argv[0]} ended with {ended.return_code}: {ended.stderr}")

    def put(self, folder: Path, dest: str) -> None:
        """Copy in."""
        self._loop.run(self._environment.upload_dir(folder, dest))

    def get(self, path: str, folder: Path) -> None:
        """Copy out."""
        self._loop.run(self._environment.download_dir(path, folder))

    def close(self) -> None:
        """Remove the project."""
        try:
            self._loop.run(self._environment.stop(delete=True))
        finally:
            self._loop.close()
            self._folder.cleanup()
