"""Measures us beside the docker command-line client and others: interleaved, as ratios.

Absolute times say more about the machine than about the code, so each operation is done in turn
by us and by the others, and the medians are compared.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, get_args

from sandbox.conformance.cellbench import SCENARIO, Cells, bench_cell
from sandbox.conformance.contenders import DockerContender, OurContender, TarContender
from sandbox.conformance.enginebench import TAR, Makers, bench_engine, bench_many_files
from sandbox.conformance.installbench import bench_installs
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.preflightbench import bench_preflight
from sandbox.conformance.processbench import bench_judge, bench_memory, bench_starts
from sandbox.conformance.timing import DOCKER, OURS, DockerCli
from sandbox.conformance.world import World
from sandbox.engine.client import Engine
from sandbox.engine.owner import Ownership
from sandbox.engine.peers.contender import Contender, FoundPeer, Guarded
from sandbox.evidence.benches import BenchRecord, CellProfile, Machine, Measure, Unmeasured

Part = Literal["engine", "files", "peers", "install", "cell", "memory", "starts", "preflight"]
PARTS: tuple[Part, ...] = get_args(Part)
NEED_A_RUNTIME: frozenset[Part] = frozenset({"cell", "memory", "starts"})
Found = Measure | Unmeasured | CellProfile
JUDGE_ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is measured.

    Attributes:
        harnesses: whose installs; cells are those of the first.
        rounds: how often.
        parts: which operations.
        peers: whose sandboxes are measured too, on the first image.
        peer_images: for peers that need an image of their own, by name, its reference.
    """

    harnesses: Sequence[str]
    rounds: int
    parts: Sequence[Part] = PARTS
    peers: Sequence[FoundPeer] = ()
    peer_images: Mapping[str, str] = field(default_factory=dict)


def bench(world: World, wanted: Wanted) -> Iterator[Found]:
    """Measure every operation on every image of the world, each in turn with what it is beside.

    Raises:
        PrerequisiteMissing: there is no docker command-line client to compare with.
    """
    run = _Bench(world, DockerCli.found(), wanted)
    for image in world.images:
        yield from run.of_image(image)
    if "peers" in wanted.parts:
        yield from run.of_peers()
    yield from run.of_the_command()


class _Bench:
    def __init__(self, world: World, docker: DockerCli, wanted: Wanted) -> None:
        self._world = world
        self._docker = docker
        self._wanted = wanted
        self._owner = Ownership.current(run_id=world.run_id, cell_id="bench")

    def of_image(self, image: str) -> Iterator[Found]:
        """Measure what differs between images."""
        wanted, world, docker = self._wanted, self._world, self._docker
        rounds, parts, ref = wanted.rounds, wanted.parts, world.images[image].ref
        if "engine" in parts:
            makers: Makers = {
                OURS: self._ours(image),
                DOCKER: partial(DockerContender, docker, ref, self._owner),
            }
            yield from bench_engine(image, makers, rounds=rounds, part="engine")
        if "files" in parts:
            tar = partial(TarContender, docker, ref, self._owner)
            yield from bench_many_files(image, {OURS: self._ours(image), TAR: tar}, rounds=rounds)
        for harness in wanted.harnesses if "install" in parts else ():
            yield from bench_installs(world, image, harness, docker, rounds=rounds)
        if "cell" in parts:
            yield from bench_cell(world, image, wanted.harnesses[0], docker, rounds=rounds)

    def of_peers(self) -> Iterator[Found]:
        """Measure ours and by hand beside every peer that is installed."""
        image = next(iter(self._world.images))
        ref = self._world.images[image].ref
        makers: dict[str, Callable[[], Contender]] = {
            OURS: self._ours(image),
            DOCKER: partial(DockerContender, self._docker, ref, self._owner),
        }
        for found in self._wanted.peers:
            if found.make is not None:
                name = found.peer.name
                own = self._wanted.peer_images.get(name, ref)
                makers[name] = partial(
                    _guarded, name, partial(found.make, own, self._owner.labels())
                )
        if len(makers) > 2:
            yield from bench_engine(image, makers, rounds=self._wanted.rounds, part="peers")

    def of_the_command(self) -> Iterator[Found]:
        """Measure our command as a process of its own."""
        wanted, world = self._wanted, self._world
        images = tuple(world.images)
        if "starts" in wanted.parts:
            yield from bench_starts(rounds=wanted.rounds)
            spec = CellSpec(harness=wanted.harnesses[0], image=images[0], scenario=SCENARIO)
            cell = Cells(world, spec).run().folder
            yield from bench_judge(cell, rounds=min(wanted.rounds, JUDGE_ROUNDS))
        if "preflight" in wanted.parts:
            yield from bench_preflight(world, self._docker, self._owner, rounds=wanted.rounds)
        if "memory" in wanted.parts:
            yield from bench_memory(wanted.harnesses[0], images)

    def _ours(self, image: str) -> Callable[[], Contender]:
        world = self._world
        return partial(OurContender, world.engine, world.images[image].ref, self._owner)


def _guarded(name: str, make: Callable[[], Contender]) -> Contender:
    return Guarded(name, make())


def begun(engine: Engine, peers: Sequence[FoundPeer]) -> BenchRecord:
    """Return the record of a bench that begins now: the machine, the versions, nothing yet.

    Raises:
        PrerequisiteMissing: there is no docker command-line client to compare with.
    """
    info = engine.info
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return BenchRecord(
        started_at=time.time(),
        machine=Machine(
            cpus=os.cpu_count() or 1,
            memory_mib=pages * size // 2**20,
            architecture=info.architecture,
            kernel=info.kernel,
            load=round(os.getloadavg()[0], 2),
        ),
        versions={
            "sandbox": importlib.metadata.version("sandbox"),
            "python": platform.python_version(),
            info.product: info.version,
            "docker client": DockerCli.found().version(),
        },
        peers=tuple(found.peer for found in peers),
    )


def with_found(record: BenchRecord, found: Sequence[Found]) -> BenchRecord:
    """Return the record with what was found so far."""
    return record.model_copy(
        update={
            "measures": tuple(one for one in found if isinstance(one, Measure)),
            "unmeasured": tuple(one for one in found if isinstance(one, Unmeasured)),
            "cells": tuple(one for one in found if isinstance(one, CellProfile)),
        }
    )
