"""What a bench found: medians beside others', as ratios, to be kept and compared.

Absolute times say more about the machine than about the code. A record may therefore be kept
without them (``without_times``): what is left is comparable between machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from sandbox.evidence.records import Record

BENCH_VERSION = "1.0"
Unit = Literal["s", "MiB", "calls"]
LIMIT = "limit"


class Measure(Record):
    """Medians of one operation, in ``unit``.

    Attributes:
        part: the part of the bench.
        operation: what was done.
        image: where; "" where no image plays a part.
        ours: what it took us; None in a record without times.
        theirs: what it took others in the same run, by name, what we compare with first; ``LIMIT``
            is not somebody, but what it may take at most.
        rounds: how often each.
        ratios: ours over each of theirs.
        most: the ratios that we want to stay below, by the same names; others are only told.
    """

    part: str
    operation: str
    image: str
    unit: Unit = "s"
    ours: float | None
    theirs: dict[str, float]
    rounds: int
    ratios: dict[str, float]
    most: dict[str, float]

    @property
    def missed(self) -> tuple[str, ...]:
        """Beside whom we take more than is wanted."""
        return tuple(
            name
            for name, most in self.most.items()
            if name in self.ratios and self.ratios[name] > most
        )

    @property
    def key(self) -> tuple[str, str, str]:
        """Which measure of a bench it is."""
        return self.part, self.image, self.operation

    def without_times(self) -> Measure:
        """Return its ratios alone; a ratio to a limit in seconds is a time too."""
        if self.unit != "s":
            return self
        ratios = {name: ratio for name, ratio in self.ratios.items() if name != LIMIT}
        return self.model_copy(update={"ours": None, "theirs": {}, "ratios": ratios})


class Unmeasured(Record):
    """An operation that broke or was not done in time, whose it was, and why."""

    operation: str
    image: str
    by: str
    failed: str


class Peer(Record):
    """Somebody to compare with; ``version`` None: not here, and ``missing`` says why."""

    name: str
    version: str | None = None
    missing: str | None = None


class CellProfile(Record):
    """Where one cell's time goes, and what it asks the engine.

    Attributes:
        harness: whose cell.
        image: where.
        rounds: how many cells the medians are of.
        total_s: from the cell's begin to its written folder; None in a record without times.
        harness_s: how long the harness's own process ran.
        phases: seconds of the episode's steps, in order.
        calls: requests to the engine, by kind (``POST /containers/create``).
    """

    harness: str
    image: str
    rounds: int
    total_s: float | None
    harness_s: float | None
    phases: dict[str, float]
    calls: dict[str, int]

    def without_times(self) -> CellProfile:
        """Return the counts alone."""
        return self.model_copy(update={"total_s": None, "harness_s": None, "phases": {}})


class Machine(Record):
    """Where it was measured; ``load`` is the mean of the minute before."""

    cpus: int
    memory_mib: int
    architecture: str
    kernel: str
    load: float


class BenchRecord(Record):
    """One run of the bench."""

    version: str = BENCH_VERSION
    started_at: float
    machine: Machine
    versions: dict[str, str]
    peers: tuple[Peer, ...] = ()
    measures: tuple[Measure, ...] = ()
    unmeasured: tuple[Unmeasured, ...] = ()
    cells: tuple[CellProfile, ...] = ()

    def without_times(self) -> BenchRecord:
        """Return what can be compared with other machines: ratios, sizes and counts."""
        return self.model_copy(
            update={
                "measures": tuple(one.without_times() for one in self.measures),
                "cells": tuple(one.without_times() for one in self.cells),
            }
        )


class RatioChange(Record):
    """One ratio of two benches; None: that bench did not have it."""

    part: str
    image: str
    operation: str
    beside: str
    before: float | None
    after: float | None

    @property
    def times(self) -> float | None:
        """The ratio after over the ratio before; None when one is missing."""
        if self.before is None or self.after is None:
            return None
        return self.after / self.before


def ratio_changes(before: BenchRecord, after: BenchRecord) -> tuple[RatioChange, ...]:
    """Compare the ratios of two benches: those of ``after`` in their order, then what is gone."""
    old, new = _ratios(before.measures), _ratios(after.measures)
    return tuple(
        RatioChange(
            part=key[0],
            image=key[1],
            operation=key[2],
            beside=key[3],
            before=old.get(key),
            after=new.get(key),
        )
        for key in dict.fromkeys([*new, *old])
    )


def _ratios(measures: Sequence[Measure]) -> dict[tuple[str, str, str, str], float]:
    return {(*one.key, name): ratio for one in measures for name, ratio in one.ratios.items()}
