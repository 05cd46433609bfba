"""How the benches measure: clocks, medians as ratios, and the docker command-line client."""

from __future__ import annotations

import secrets
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Self

from sandbox.engine.owner import Ownership
from sandbox.errors import EngineFailure, PrerequisiteMissing, SandboxError
from sandbox.evidence.records import Record

CALL_DEADLINE_S = 120.0
_KEEP = ("sh", "-c", "sleep 2147483647")


class Measure(Record):
    """Medians of one operation in seconds; ``ratio`` is ours over theirs."""

    operation: str
    image: str
    ours_s: float
    docker_s: float
    rounds: int

    @property
    def ratio(self) -> float:
        """How many times the docker client's time we take."""
        return self.ours_s / self.docker_s


class Unmeasured(Record):
    """An operation that broke or was not done in time, and why."""

    operation: str
    image: str
    failed: str

    @classmethod
    def because(cls, operation: str, image: str, error: SandboxError) -> Self:
        """Tell it by what went wrong."""
        return cls(operation=operation, image=image, failed=error.message)


def median_of(
    operation: str, image: str, ours: Sequence[float], theirs: Sequence[float]
) -> Measure:
    """Return the medians of what was measured in turn."""
    return Measure(
        operation=operation,
        image=image,
        ours_s=statistics.median(ours),
        docker_s=statistics.median(theirs),
        rounds=len(ours),
    )


class Clock:
    """Seconds between entering and leaving."""

    seconds: float = 0.0

    def __enter__(self) -> Self:
        self._started = time.perf_counter()
        return self

    def __exit__(self, *args: object) -> None:
        self.seconds = time.perf_counter() - self._started


@dataclass(frozen=True)
class DockerCli:
    """The docker command-line client: what is compared with."""

    path: str

    @classmethod
    def found(cls) -> Self:
        """Find it on PATH.

        Raises:
            PrerequisiteMissing: there is none.
        """
        path = shutil.which("docker")
        if path is None:
            raise PrerequisiteMissing(
                "the bench compares with the docker command-line client, and there is none",
                cure="install it, for instance: apt-get install docker.io docker-cli",
            )
        return cls(path)

    @contextmanager
    def container(self, ref: str, owner: Ownership) -> Iterator[str]:
        """Run a container of an image while inside, and give its name."""
        name = f"sandbox-bench-{secrets.token_hex(6)}"
        labels = [f"--label={key}={value}" for key, value in owner.labels().items()]
        try:
            self.call(
                *("run", "--detach", "--init", "--network=none", f"--name={name}"),
                *("--security-opt=no-new-privileges", "--entrypoint=", *labels),
                *(ref, *_KEEP),
            )
            yield name
        except BaseException:
            with suppress(EngineFailure):  # the first error is the one to tell
                self.call("rm", "--force", "--volumes", name)
            raise
        self.call("rm", "--force", "--volumes", name)

    def call(self, *words: str, deadline_s: float = CALL_DEADLINE_S) -> None:
        """Run the client; raises EngineFailure with what it says, or at the deadline."""
        try:
            ended = subprocess.run(
                [self.path, *words],
                capture_output=True,
                text=True,
                check=False,
                timeout=deadline_s,
            )
        except subprocess.TimeoutExpired as error:
            raise EngineFailure(
                f"docker {words[0]} is not done after {deadline_s:.0f} s",
                cure="the machine is overloaded: measure when it is quiet",
            ) from error
        if ended.returncode != 0:
            raise EngineFailure(f"docker {words[0]} failed: {ended.stderr.strip()}")
