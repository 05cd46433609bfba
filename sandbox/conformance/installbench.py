"""What it costs to get a runtime into a sandbox: cold and warm, by copy and by mount.

Cold is the first use on a machine that has the artifacts: the bundle is assembled, unpacked for a
mount, and its program run in the image. Warm is every later cell. Each is compared with a bare
``docker cp`` of the same tree, which verifies nothing and starts nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from sandbox.cache import scratch
from sandbox.conformance.timing import Clock, DockerCli, Measure, median_of
from sandbox.conformance.world import TREE_MOUNT, World
from sandbox.engine.limits import ReadOnlyMount
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import Unsupported
from sandbox.runtimes.install import install
from sandbox.runtimes.library import Bundle, RuntimeLibrary
from sandbox.runtimes.store import Store

_FOLDER = "/var/tmp"  # noqa: S108 - inside a sandbox, in its layer: docker cp cannot reach memory
_DEADLINE_S = 120.0


def bench_installs(
    world: World, image: str, harness: str, docker: DockerCli, *, rounds: int
) -> Iterator[Measure]:
    """Measure the ways of one runtime into one image, ``rounds`` times each but for cold.

    A runtime without a pin for the image's platform gives nothing.
    """
    own = world.library
    if not isinstance(own, RuntimeLibrary):
        own = own.library(harness)
    with scratch(own.store.root, ".bench-") as folder:
        store = Store(folder)
        (store.root / "artifacts").symlink_to(own.store.root / "artifacts")
        with RuntimeLibrary(own.pins_path, store=store) as library, ExitStack() as stack:
            try:
                with Clock() as made:
                    bundle = library.ensure_bundle(harness, world.images[image].platform)
            except Unsupported:
                return
            with Clock() as unpacked:
                tree = library.ensure_tree(bundle)
            one = _Installs(world, image, library, bundle, tree, docker)
            stack.enter_context(one.opened())
            yield from one.measures(rounds, assembled=made.seconds, unpacked=unpacked.seconds)


@dataclass
class _Installs:
    """A runtime, sandboxes of ours that see its tree, and a container by hand."""

    world: World
    image: str
    library: RuntimeLibrary
    bundle: Bundle
    tree: Path
    docker: DockerCli

    def opened(self) -> ExitStack:
        """Start the sandboxes; they are gone when the stack is closed."""
        owner = Ownership.current(run_id=self.world.run_id, cell_id="bench")
        ref = self.world.images[self.image].ref
        with ExitStack() as stack:
            mounts = [ReadOnlyMount(source=self.tree, target=TREE_MOUNT)]
            self.box = stack.enter_context(
                Sandbox(self.world.engine, ref, owner=owner, mounts=mounts)
            )
            self.by_hand = stack.enter_context(self.docker.container(ref, owner))
            return stack.pop_all()

    def measures(self, rounds: int, *, assembled: float, unpacked: float) -> Iterator[Measure]:
        bare = [self._bare() for _ in range(rounds)]
        first = {"copy": assembled + self._copy(), "mount": assembled + unpacked + self._mount()}
        for way, seconds in first.items():
            yield self._measure(f"cold by {way}", [seconds], bare)
        for way, again in (("copy", self._copy), ("mount", self._mount)):
            pairs = [(again(), self._bare()) for _ in range(rounds)]
            yield self._measure(f"by {way}", [p[0] for p in pairs], [p[1] for p in pairs])

    def _measure(self, how: str, ours: list[float], theirs: list[float]) -> Measure:
        return median_of(f"install {self.bundle.harness} {how}", self.image, ours, theirs)

    def _copy(self) -> float:
        prefix = self._target()
        with Clock() as clock:
            install(self.box, self.bundle, prefix)
        self.box.exec(["rm", "-rf", prefix], deadline_s=_DEADLINE_S)
        return clock.seconds

    def _mount(self) -> float:
        """Do what a cell does: prove the tree, link it, run the program unless that is proved."""
        prefix = self._target()
        proofs = self.library.proofs(self.world.images[self.image].image_id)
        with Clock() as clock:
            self.library.ensure_tree(self.bundle)
            install(self.box, self.bundle, prefix, tree_path=TREE_MOUNT, proofs=proofs)
        self.box.exec(["rm", "-rf", prefix], deadline_s=_DEADLINE_S)
        return clock.seconds

    def _bare(self) -> float:
        target = self._target()
        with Clock() as clock:
            self.docker.call("cp", "--quiet", str(self.tree), f"{self.by_hand}:{target}")
        self.docker.call("exec", self.by_hand, "rm", "-rf", target)
        return clock.seconds

    def _target(self) -> str:
        return f"{_FOLDER}/bench-{secrets.token_hex(6)}"
