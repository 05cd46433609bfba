"""Measures us beside the docker command-line client: interleaved in one run, as ratios.

Absolute times say more about the machine than about the code, so each operation is done in turn
by us and by hand, and the medians are compared.
"""

from __future__ import annotations

import secrets
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from sandbox.conformance.cell import run_cell
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.world import World
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import EngineFailure, PrerequisiteMissing
from sandbox.evidence.folder import cell_folder, read_cell
from sandbox.evidence.records import Record
from sandbox.runtimes.install import install

FILES = 1000
FILE_BYTES = 100_000
_KEEP = ("sh", "-c", "sleep 2147483647")
_CALL_DEADLINE_S = 120.0


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


Timed = tuple[str, Callable[[], float], Callable[[], float]]


def bench(world: World, *, harness: str, rounds: int) -> Iterator[Measure]:
    """Measure every operation on every image of the world, ``rounds`` times each in turn.

    Raises:
        PrerequisiteMissing: there is no docker command-line client to compare with.
    """
    docker = shutil.which("docker")
    if docker is None:
        raise PrerequisiteMissing(
            "the bench compares with the docker command-line client, and there is none",
            cure="install it, for instance: apt-get install docker.io docker-cli",
        )
    for image in world.images:
        with ExitStack() as stack:
            one = stack.enter_context(_Bench(world, image, harness, docker))
            for operation, ours, theirs in one.operations():
                yield _measure(operation, image, ours, theirs, rounds)


def _measure(
    operation: str, image: str, ours: Callable[[], float], theirs: Callable[[], float], rounds: int
) -> Measure:
    pairs = [(ours(), theirs()) for _ in range(rounds)]
    return Measure(
        operation=operation,
        image=image,
        ours_s=statistics.median(pair[0] for pair in pairs),
        docker_s=statistics.median(pair[1] for pair in pairs),
        rounds=rounds,
    )


class _Bench:
    """One image: a sandbox of ours and a container by hand, and what is done with both."""

    def __init__(self, world: World, image: str, harness: str, docker: str) -> None:
        self._world = world
        self._image = image
        self._ref = world.images[image].ref
        self._harness = harness
        self._docker = docker
        self._owner = Ownership.current(run_id=world.run_id, cell_id="bench")
        self._stack = ExitStack()
        self._numbers = iter(range(1_000_000))

    def __enter__(self) -> Self:
        with self._stack:
            self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
            self._tree = self._folder / "tree"
            self._tree.mkdir()
            for number in range(FILES):
                (self._tree / f"{number:04}").write_bytes(secrets.token_bytes(FILE_BYTES))
            self._sandbox = self._stack.enter_context(
                Sandbox(self._world.engine, self._ref, owner=self._owner)
            )
            self._by_hand = self._stack.enter_context(self._container())
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *args: object) -> None:
        self._stack.close()

    def operations(self) -> Sequence[Timed]:
        """Name each operation with our way and the docker client's."""
        return (
            ("start", self._our_start, self._their_start),
            ("close", self._our_close, self._their_close),
            ("start and close", self._our_life, self._their_life),
            ("exec true", self._our_exec, self._their_exec),
            ("put 100 MB in 1000 files", self._our_put, self._their_put),
            ("get 100 MB in 1000 files", self._our_get, self._their_get),
            (f"install {self._harness} by copy", self._our_install, self._their_install),
            (f"cell without {self._harness}'s own time", self._our_cell, self._their_cell),
        )

    # --- ours -----------------------------------------------------------------------------------

    def _our_start(self) -> float:
        with _Clock() as clock:
            sandbox = Sandbox(self._world.engine, self._ref, owner=self._owner)
            sandbox.start()
        sandbox.close()
        return clock.seconds

    def _our_close(self) -> float:
        sandbox = Sandbox(self._world.engine, self._ref, owner=self._owner)
        sandbox.start()
        with _Clock() as clock:
            sandbox.close()
        return clock.seconds

    def _our_life(self) -> float:
        with _Clock() as clock, Sandbox(self._world.engine, self._ref, owner=self._owner):
            pass
        return clock.seconds

    def _our_exec(self) -> float:
        with _Clock() as clock:
            self._sandbox.exec(["true"], deadline_s=_CALL_DEADLINE_S)
        return clock.seconds

    def _our_put(self) -> float:
        target = self._target()
        with _Clock() as clock:
            self._sandbox.put(self._tree, target)
        return clock.seconds

    def _our_get(self) -> float:
        folder = self._folder / f"ours-{next(self._numbers)}"
        with _Clock() as clock:
            self._sandbox.get(self._source(), folder)
        shutil.rmtree(folder)
        return clock.seconds

    def _our_install(self) -> float:
        prefix = self._target()
        bundle = self._world.library.ensure_bundle(
            self._harness, self._world.images[self._image].platform
        )
        with _Clock() as clock:
            install(self._sandbox, bundle, prefix)
        self._sandbox.exec(["rm", "-rf", prefix], deadline_s=_CALL_DEADLINE_S)
        return clock.seconds

    def _our_cell(self) -> float:
        spec = CellSpec(harness=self._harness, image=self._image, scenario="tool_success")
        folder = cell_folder(self._world.folder, spec.cell_id)
        shutil.rmtree(folder, ignore_errors=True)
        with _Clock() as clock:
            run_cell(spec, self._world)
        receipt = read_cell(folder).receipt
        if receipt is None or receipt.duration_s is None:
            raise EngineFailure(f"the bench's cell {spec.cell_id} has no receipt; see {folder}")
        return clock.seconds - receipt.duration_s

    # --- theirs ---------------------------------------------------------------------------------

    def _their_start(self) -> float:
        with ExitStack() as stack:
            with _Clock() as clock:
                stack.enter_context(self._container())
            return clock.seconds

    def _their_close(self) -> float:
        with ExitStack() as stack:
            stack.enter_context(self._container())
            with _Clock() as clock:
                stack.close()
            return clock.seconds

    def _their_life(self) -> float:
        with _Clock() as clock, self._container():
            pass
        return clock.seconds

    def _their_exec(self) -> float:
        with _Clock() as clock:
            self._call("exec", self._by_hand, "true")
        return clock.seconds

    def _their_put(self) -> float:
        target = self._target()
        with _Clock() as clock:
            self._call("cp", "--quiet", str(self._tree), f"{self._by_hand}:{target}")
        return clock.seconds

    def _their_get(self) -> float:
        folder = self._folder / f"theirs-{next(self._numbers)}"
        source = self._source_by_hand()
        with _Clock() as clock:
            self._call("cp", "--quiet", f"{self._by_hand}:{source}", str(folder))
        shutil.rmtree(folder)
        return clock.seconds

    def _their_install(self) -> float:
        """Do what a plain script does: copy the tar, unpack it, ask for the version."""
        prefix = self._target()
        bundle = self._world.library.ensure_bundle(
            self._harness, self._world.images[self._image].platform
        )
        script = 'mkdir "$1" && tar -xf "$1.tar" -C "$1" && rm "$1.tar" && "$1/bin/$2" --version'
        with _Clock() as clock:
            self._call("cp", "--quiet", str(bundle.path), f"{self._by_hand}:{prefix}.tar")
            self._call("exec", self._by_hand, "sh", "-c", script, "sh", prefix, self._harness)
        self._call("exec", self._by_hand, "rm", "-rf", prefix)
        return clock.seconds

    def _their_cell(self) -> float:
        """Create, start, install and remove by hand: what a cell cannot do without."""
        with _Clock() as clock, self._container() as name:
            bundle = self._world.library.ensure_bundle(
                self._harness, self._world.images[self._image].platform
            )
            self._call("cp", "--quiet", str(bundle.path), f"{name}:/bundle.tar")
            script = "mkdir /prefix && tar -xf /bundle.tar -C /prefix && /prefix/bin/$1 --version"
            self._call("exec", name, "sh", "-c", script, "sh", self._harness)
        return clock.seconds

    # --- both -----------------------------------------------------------------------------------

    def _target(self) -> str:
        return f"/var/tmp/bench-{next(self._numbers)}"  # noqa: S108 - inside a sandbox

    def _source(self) -> str:
        self._sandbox.put(self._tree, "/var/tmp/source")  # noqa: S108 - inside a sandbox
        return "/var/tmp/source"  # noqa: S108

    def _source_by_hand(self) -> str:
        source = self._target()
        self._call("cp", "--quiet", str(self._tree), f"{self._by_hand}:{source}")
        return source

    @contextmanager
    def _container(self) -> Iterator[str]:
        name = f"sandbox-bench-{secrets.token_hex(6)}"
        labels = [f"--label={key}={value}" for key, value in self._owner.labels().items()]
        try:
            self._call(
                *("run", "--detach", "--init", "--network=none", f"--name={name}"),
                *("--security-opt=no-new-privileges", "--entrypoint=", *labels),
                *(self._ref, *_KEEP),
            )
            yield name
        finally:
            self._call("rm", "--force", "--volumes", name)

    def _call(self, *words: str) -> None:
        ended = subprocess.run(
            [self._docker, *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=_CALL_DEADLINE_S,
        )
        if ended.returncode != 0:
            raise EngineFailure(f"docker {words[0]} failed: {ended.stderr.strip()}")


class _Clock:
    """Seconds between entering and leaving."""

    seconds: float = 0.0

    def __enter__(self) -> Self:
        self._started = time.perf_counter()
        return self

    def __exit__(self, *args: object) -> None:
        self.seconds = time.perf_counter() - self._started
