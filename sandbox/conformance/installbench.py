"""What it costs to get a runtime into a sandbox: cold and warm, by copy and by mount.

Cold is the first use on a machine that has the artifacts: the bundle is assembled, unpacked for a
mount, and its program run in the image. Warm is every later cell. Each is compared with a bare
``docker cp`` of the same tree, which verifies nothing and starts nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from sandbox.cache import scratch
from sandbox.conformance.timing import DOCKER, Clock, DockerCli, Subject
from sandbox.conformance.ways import ImageRuntimes, run_volumes
from sandbox.conformance.world import World
from sandbox.engine.limits import Mounted
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import SandboxError, Unsupported
from sandbox.evidence.benches import Measure, Unmeasured
from sandbox.runtimes.install import install
from sandbox.runtimes.library import Bundle, RuntimeLibrary
from sandbox.runtimes.store import Store

_FOLDER = "/var/tmp"  # noqa: S108 - inside a sandbox, in its layer: docker cp cannot reach memory
_DEADLINE_S = 120.0
WARM_LIMITS_S = {"mount": 0.3}


def bench_installs(
    world: World, image: str, harness: str, docker: DockerCli, *, rounds: int
) -> Iterator[Measure | Unmeasured]:
    """Measure the ways of one runtime into one image, ``rounds`` times each but for cold.

    A runtime without a pin for the image's platform gives nothing. What breaks, or is not done at
    its deadline, is told with its reason, and the rest is measured.
    """
    try:
        yield from _installs(world, image, harness, docker, rounds)
    except Unsupported:
        return
    except SandboxError as error:
        yield _subject(image).broken(f"install {harness}", error)


def _installs(
    world: World, image: str, harness: str, docker: DockerCli, rounds: int
) -> Iterator[Measure | Unmeasured]:
    own, platform = world.library, world.images[image].platform
    if not isinstance(own, RuntimeLibrary):
        own = own.library(harness)
    own.ensure_bundle(harness, platform)  # fetching is not measured
    with scratch(own.store.root, ".bench-") as folder:
        store = Store(folder)
        (store.root / "artifacts").symlink_to(own.store.root / "artifacts")
        with RuntimeLibrary(own.pins_path, store=store) as library, ExitStack() as stack:
            with Clock() as made:
                bundle = library.ensure_bundle(harness, platform)
            volumes = stack.enter_context(run_volumes(world.engine, "mount", world.run_id))
            loaded = world.images[image]
            mounted = ImageRuntimes(world.engine, library, loaded, way="mount", volumes=volumes)
            with Clock() as unpacked:
                mounts = mounted.mounts(bundle)
            one = Installs(world, image, bundle, mounted, library.ensure_tree(bundle), docker)
            stack.enter_context(one.opened(mounts))
            yield from compared(
                _subject(image),
                f"install {harness}",
                {"copy": one.copy, "mount": one.mount},
                one.bare,
                rounds=rounds,
                before={"copy": made.seconds, "mount": made.seconds + unpacked.seconds},
            )


def _subject(image: str) -> Subject:
    return Subject(part="install", image=image)


def compared(
    subject: Subject,
    what: str,
    ways: Mapping[str, Callable[[], float]],
    bare: Callable[[], float],
    *,
    rounds: int,
    before: Mapping[str, float],
) -> Iterator[Measure | Unmeasured]:
    """Measure each way once cold, then all of them in turn with ``bare``.

    Args:
        subject: what the measures are of.
        what: begins the names of the operations.
        ways: each does it once and gives its seconds.
        bare: what they are compared with.
        rounds: how often each.
        before: the seconds that went into a way's first time before it.
    """
    theirs: list[float] = []
    cold: dict[str, float] = {}
    warm: dict[str, list[float]] = {way: [] for way in ways}
    broken: dict[str, Unmeasured] = {}
    for turn in range(rounds + 1):
        if turn:
            theirs.append(bare())
        for way in [one for one in ways if one not in broken]:
            try:
                seconds = ways[way]()
            except SandboxError as error:
                broken[way] = subject.broken(f"{what} by {way}", error)
                continue
            if turn:
                warm[way].append(seconds)
            else:
                cold[way] = before[way] + seconds
    for way in ways:
        if way in cold:
            yield subject.measure(f"{what} cold by {way}", [cold[way]], {DOCKER: theirs})
        if way in broken:
            yield broken[way]
        else:
            limit = WARM_LIMITS_S.get(way)
            yield subject.measure(f"{what} by {way}", warm[way], {DOCKER: theirs}, limit=limit)


@dataclass
class Installs:
    """A runtime, a sandbox of ours that sees it, and a container by hand that gets its tree."""

    world: World
    image: str
    bundle: Bundle
    mounted: ImageRuntimes
    tree: Path
    docker: DockerCli

    def opened(self, mounts: Sequence[Mounted]) -> ExitStack:
        """Start the sandboxes; they are gone when the stack is closed."""
        owner = Ownership.current(run_id=self.world.run_id, cell_id="bench")
        ref = self.world.images[self.image].ref
        with ExitStack() as stack:
            self.box = stack.enter_context(
                Sandbox(self.world.engine, ref, owner=owner, mounts=mounts)
            )
            self.by_hand = stack.enter_context(self.docker.container(ref, owner))
            return stack.pop_all()

    def copy(self) -> float:
        """Unpack the bundle in the sandbox."""
        prefix = self._target()
        with Clock() as clock:
            install(self.box, self.bundle, prefix, deadline_s=_DEADLINE_S)
        self.box.exec(["rm", "-rf", prefix], deadline_s=_DEADLINE_S)
        return clock.seconds

    def mount(self) -> float:
        """Do what a cell does: prove the tree, link it, run the program unless that is proved."""
        prefix = self._target()
        with Clock() as clock:
            self.mounted.mounts(self.bundle)
            self.mounted.install(self.box, self.bundle, prefix)
        self.box.exec(["rm", "-rf", prefix], deadline_s=_DEADLINE_S)
        return clock.seconds

    def bare(self) -> float:
        """Copy the tree by hand."""
        target = self._target()
        with Clock() as clock:
            self.docker.call("cp", "--quiet", str(self.tree), f"{self.by_hand}:{target}")
        self.docker.call("exec", self.by_hand, "rm", "-rf", target)
        return clock.seconds

    def _target(self) -> str:
        return f"{_FOLDER}/bench-{secrets.token_hex(6)}"
