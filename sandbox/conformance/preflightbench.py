"""How long ``sandbox preflight`` takes for many images, beside a container of each by hand."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from sandbox.conformance.processbench import timed
from sandbox.conformance.timing import DOCKER, OURS, Clock, DockerCli, Subject, in_turn
from sandbox.conformance.world import World
from sandbox.engine.owner import Ownership
from sandbox.engine.variants import variants
from sandbox.errors import ExitCode
from sandbox.evidence.benches import Measure, Unmeasured

IMAGES = 20
LIMIT_S = 30.0
MOST_ROUNDS = 3
OPERATION = f"preflight {IMAGES} images"
_ENDED = (ExitCode.OK, ExitCode.ERROR)


def bench_preflight(
    world: World, docker: DockerCli, owner: Ownership, *, rounds: int
) -> Iterator[Measure | Unmeasured]:
    """Measure the looking at images that nobody has looked at: the world's, with small differences.

    By hand each image is started once and removed, as many at a time.
    """
    refs = [image.ref for image in world.images.values()]
    with variants(world.engine, refs, IMAGES, owner) as names:
        words = [sys.executable, "-m", "sandbox", "preflight", "--quiet", *names]
        yield from in_turn(
            Subject(part="preflight", image=""),
            OPERATION,
            {
                OURS: partial(timed, OPERATION, words, codes=_ENDED),
                DOCKER: partial(_by_hand, docker, names, owner),
            },
            rounds=min(rounds, MOST_ROUNDS),
            limits={OPERATION: LIMIT_S},
        )


def _by_hand(docker: DockerCli, names: Sequence[str], owner: Ownership) -> dict[str, float]:
    def start(name: str) -> None:
        with docker.container(name, owner):
            pass

    with Clock() as clock, ThreadPoolExecutor((os.cpu_count() or 1) + 1) as pool:
        list(pool.map(start, names))
    return {OPERATION: clock.seconds}
