"""Measures us beside the docker command-line client: interleaved in one run, as ratios.

Absolute times say more about the machine than about the code, so each operation is done in turn
by us and by hand, and the medians are compared.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Literal, Self, get_args

from sandbox.conformance.cell import run_cell
from sandbox.conformance.installbench import bench_installs
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.timing import (
    CALL_DEADLINE_S,
    Clock,
    DockerCli,
    Measure,
    Unmeasured,
    median_of,
)
from sandbox.conformance.world import World
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import EngineFailure
from sandbox.evidence.folder import cell_folder, read_cell

FILES = 1000
FILE_BYTES = 100_000


Timed = tuple[str, Callable[[], float], Callable[[], float]]


Part = Literal["engine", "install"]
PARTS: tuple[Part, ...] = get_args(Part)


def bench(
    world: World, *, harnesses: Sequence[str], rounds: int, parts: Sequence[Part] = PARTS
) -> Iterator[Measure | Unmeasured]:
    """Measure every operation on every image of the world, ``rounds`` times each in turn.

    Args:
        world: where.
        harnesses: whose installs; the whole cell of the part "engine" is that of the first.
        rounds: how often.
        parts: which operations.

    Raises:
        PrerequisiteMissing: there is no docker command-line client to compare with.
    """
    docker = DockerCli.found()
    for image in world.images:
        if "engine" in parts:
            with _Bench(world, image, harnesses[0], docker) as one:
                for operation, ours, theirs in one.operations():
                    pairs = [(ours(), theirs()) for _ in range(rounds)]
                    yield median_of(operation, image, [p[0] for p in pairs], [p[1] for p in pairs])
        for harness in harnesses if "install" in parts else ():
            yield from bench_installs(world, image, harness, docker, rounds=rounds)


class _Bench:
    """One image: a sandbox of ours and a container by hand, and what is done with both."""

    def __init__(self, world: World, image: str, harness: str, docker: DockerCli) -> None:
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
            (f"cell without {self._harness}'s own time", self._our_cell, self._their_cell),
        )

    # --- ours -----------------------------------------------------------------------------------

    def _our_start(self) -> float:
        with Clock() as clock:
            sandbox = Sandbox(self._world.engine, self._ref, owner=self._owner)
            sandbox.start()
        sandbox.close()
        return clock.seconds

    def _our_close(self) -> float:
        sandbox = Sandbox(self._world.engine, self._ref, owner=self._owner)
        sandbox.start()
        with Clock() as clock:
            sandbox.close()
        return clock.seconds

    def _our_life(self) -> float:
        with Clock() as clock, Sandbox(self._world.engine, self._ref, owner=self._owner):
            pass
        return clock.seconds

    def _our_exec(self) -> float:
        with Clock() as clock:
            self._sandbox.exec(["true"], deadline_s=CALL_DEADLINE_S)
        return clock.seconds

    def _our_put(self) -> float:
        target = self._target()
        with Clock() as clock:
            self._sandbox.put(self._tree, target)
        return clock.seconds

    def _our_get(self) -> float:
        folder = self._folder / f"ours-{next(self._numbers)}"
        with Clock() as clock:
            self._sandbox.get(self._source(), folder)
        shutil.rmtree(folder)
        return clock.seconds

    def _our_cell(self) -> float:
        spec = CellSpec(harness=self._harness, image=self._image, scenario="tool_success")
        folder = cell_folder(self._world.folder, spec.cell_id)
        shutil.rmtree(folder, ignore_errors=True)
        with Clock() as clock:
            run_cell(spec, self._world)
        receipt = read_cell(folder).receipt
        if receipt is None or receipt.duration_s is None:
            raise EngineFailure(f"the bench's cell {spec.cell_id} has no receipt; see {folder}")
        return clock.seconds - receipt.duration_s

    # --- theirs ---------------------------------------------------------------------------------

    def _their_start(self) -> float:
        with ExitStack() as stack:
            with Clock() as clock:
                stack.enter_context(self._container())
            return clock.seconds

    def _their_close(self) -> float:
        with ExitStack() as stack:
            stack.enter_context(self._container())
            with Clock() as clock:
                stack.close()
            return clock.seconds

    def _their_life(self) -> float:
        with Clock() as clock, self._container():
            pass
        return clock.seconds

    def _their_exec(self) -> float:
        with Clock() as clock:
            self._docker.call("exec", self._by_hand, "true")
        return clock.seconds

    def _their_put(self) -> float:
        target = self._target()
        with Clock() as clock:
            self._docker.call("cp", "--quiet", str(self._tree), f"{self._by_hand}:{target}")
        return clock.seconds

    def _their_get(self) -> float:
        folder = self._folder / f"theirs-{next(self._numbers)}"
        source = self._source_by_hand()
        with Clock() as clock:
            self._docker.call("cp", "--quiet", f"{self._by_hand}:{source}", str(folder))
        shutil.rmtree(folder)
        return clock.seconds

    def _their_cell(self) -> float:
        """Create, start, install and remove by hand: what a cell cannot do without."""
        with Clock() as clock, self._container() as name:
            bundle = self._world.library.ensure_bundle(
                self._harness, self._world.images[self._image].platform
            )
            self._docker.call("cp", "--quiet", str(bundle.path), f"{name}:/bundle.tar")
            script = "mkdir /prefix && tar -xf /bundle.tar -C /prefix && /prefix/bin/$1 --version"
            self._docker.call("exec", name, "sh", "-c", script, "sh", self._harness)
        return clock.seconds

    # --- both -----------------------------------------------------------------------------------

    def _target(self) -> str:
        return f"/var/tmp/bench-{next(self._numbers)}"  # noqa: S108 - inside a sandbox

    def _source(self) -> str:
        self._sandbox.put(self._tree, "/var/tmp/source")  # noqa: S108 - inside a sandbox
        return "/var/tmp/source"  # noqa: S108

    def _source_by_hand(self) -> str:
        source = self._target()
        self._docker.call("cp", "--quiet", str(self._tree), f"{self._by_hand}:{source}")
        return source

    def _container(self) -> AbstractContextManager[str]:
        return self._docker.container(self._ref, self._owner)
