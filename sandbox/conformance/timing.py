"""How the benches measure: clocks, medians as ratios, and the docker command-line client."""

from __future__ import annotations

import re
import secrets
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Self

from sandbox.engine.owner import Ownership
from sandbox.errors import EngineFailure, PrerequisiteMissing, SandboxError
from sandbox.evidence.benches import LIMIT, Measure, Unit, Unmeasured

CALL_DEADLINE_S = 120.0
_KEEP = ("sh", "-c", "sleep 2147483647")


OURS = "ours"
DOCKER = "docker"
Way = Callable[[], Mapping[str, float]]
"""Does something once and gives the seconds of each operation that it consists of."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is measured: the part of the bench, the image, and which ratios are wanted."""

    part: str
    image: str
    most: Mapping[str, float] = field(default_factory=dict)

    def measure(
        self,
        operation: str,
        ours: Sequence[float],
        theirs: Mapping[str, Sequence[float]],
        *,
        limit: float | None = None,
        unit: Unit = "s",
    ) -> Measure:
        """Return the medians of what was measured in turn.

        ``limit`` is what it may take at most, in ``unit``.
        """
        mine = statistics.median(ours)
        others = {name: statistics.median(spent) for name, spent in theirs.items() if spent}
        most = dict(self.most)
        if limit is not None:
            others[LIMIT], most[LIMIT] = limit, 1.0
        return Measure(
            part=self.part,
            operation=operation,
            image=self.image,
            unit=unit,
            ours=mine,
            theirs=others,
            rounds=len(ours),
            ratios={name: mine / spent for name, spent in others.items()},
            most=most,
        )

    def broken(self, operation: str, error: SandboxError, *, by: str = OURS) -> Unmeasured:
        """Tell what could not be measured by what went wrong."""
        return Unmeasured(operation=operation, image=self.image, by=by, failed=error.message)


def in_turn(
    subject: Subject,
    what: str,
    ways: Mapping[str, Way],
    *,
    rounds: int,
    limits: Mapping[str, float] | None = None,
) -> Iterator[Measure | Unmeasured]:
    """Do all ways one after the other, ``rounds`` times, and give each operation's medians.

    A way that breaks is told and not tried again; what others did is given all the same, unless
    it was ours.

    Args:
        subject: what the measures are of.
        what: what is done, for one that breaks.
        ways: by name, ``OURS`` among them, then what is compared with.
        rounds: how often.
        limits: what an operation may take us at most, in seconds.
    """
    spent: dict[str, list[Mapping[str, float]]] = {name: [] for name in ways}
    broken: set[str] = set()
    for _ in range(rounds):
        for name in [one for one in ways if one not in broken]:
            try:
                spent[name].append(ways[name]())
            except SandboxError as error:
                broken.add(name)
                yield subject.broken(what, error, by=name)
    ours = [] if OURS in broken else spent.pop(OURS)
    for operation in ours[0] if ours else ():
        yield subject.measure(
            operation,
            [one[operation] for one in ours],
            {
                name: [one[operation] for one in turns if operation in one]
                for name, turns in spent.items()
                if name not in broken
            },
            limit=(limits or {}).get(operation),
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

    def version(self) -> str:
        """Ask for the client's own version; "unknown" when it does not say."""
        ended = subprocess.run(
            [self.path, "--version"], capture_output=True, text=True, check=False, timeout=30
        )
        found = re.search(r"version ([^ ,]+)", ended.stdout)
        return found[1] if found else "unknown"

    @contextmanager
    def container(self, ref: str, owner: Ownership) -> Iterator[str]:
        """Run a container of an image while inside, and give its name."""
        name = self.name()
        try:
            self.call("run", "--detach", *self.options(name, ref, owner))
            yield name
        except BaseException:
            with suppress(EngineFailure):  # the first error is the one to tell
                self.remove(name)
            raise
        self.remove(name)

    @staticmethod
    def name() -> str:
        """Give a new name for a container."""
        return f"sandbox-bench-{secrets.token_hex(6)}"

    @staticmethod
    def options(name: str, ref: str, owner: Ownership) -> tuple[str, ...]:
        """Give what ``run`` and ``create`` need for a container that stays."""
        return (
            *("--init", "--network=none", f"--name={name}"),
            *("--security-opt=no-new-privileges", "--entrypoint="),
            *(f"--label={key}={value}" for key, value in owner.labels().items()),
            *(ref, *_KEEP),
        )

    def remove(self, name: str) -> None:
        """Kill and remove a container."""
        self.call("rm", "--force", "--volumes", name)

    def call(
        self,
        *words: str,
        deadline_s: float = CALL_DEADLINE_S,
        stdin: IO[bytes] | None = None,
        stdout: IO[bytes] | None = None,
    ) -> None:
        """Run the client; raises EngineFailure with what it says, or at the deadline."""
        try:
            ended = subprocess.run(
                [self.path, *words],
                stdin=stdin or subprocess.DEVNULL,
                stdout=stdout or subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                check=False,
                timeout=deadline_s,
            )
        except subprocess.TimeoutExpired as error:
            raise EngineFailure(
                f"docker {words[0]} is not done after {deadline_s:.0f} s",
                cure="the machine is overloaded: measure when it is quiet",
            ) from error
        if ended.returncode != 0:
            said = ended.stderr.decode(errors="replace").strip()
            raise EngineFailure(f"docker {words[0]} failed: {said}")
