"""Drives a plan through a cluster: workers come and go, every cell is written once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from sandbox.conformance.cluster.dispatch import Attempt, Dispatch
from sandbox.conformance.cluster.ports import Cluster, Member
from sandbox.conformance.job import CellJob
from sandbox.errors import ClusterLost, PrerequisiteMissing, SandboxError


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long things may take, in seconds.

    ``poll`` is between two looks at the cluster, ``silence`` how long a worker may give no sign of
    life, ``workers`` how long to wait for one that can be used, ``end`` for cells that were asked
    to end.
    """

    poll: float = 0.5
    silence: float = 30.0
    workers: float = 60.0
    end: float = 90.0


@dataclass
class Driver:
    """One plan on one cluster.

    Args:
        cluster: where it runs.
        jobs: the cells in the order in which they begin.
        write: puts a packed cell folder in its place; raises SandboxError when it is none.
        say: told about workers and cells, one line each.
        cancel: set when the run is to end early.
        patience: how long things may take.
        clock: seconds, monotonic.
    """

    cluster: Cluster
    jobs: Iterable[CellJob]
    write: Callable[[Attempt, bytes], None]
    say: Callable[[str], None]
    cancel: threading.Event
    patience: Patience = field(default_factory=Patience)
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._jobs = {job.spec.cell_id: job for job in self.jobs}
        self.dispatch = Dispatch([job.spec for job in self._jobs.values()])
        self._names: dict[str, str] = {}
        self._beats: dict[str, tuple[float, float]] = {}
        self._left_out: dict[str, str] = {}
        self._admitting: dict[asyncio.Task[None], str] = {}
        self._trying: dict[asyncio.Task[bytes], Attempt] = {}
        self._dropped: list[asyncio.Task[bytes]] = []
        self._slotless: set[str] = set()
        self._used = False
        self._alone_since = self.clock()

    async def run(self) -> None:
        """Run the plan to its end; ``dispatch.given_up`` are the cells that were lost too often.

        Raises:
            PrerequisiteMissing: no worker can be used.
            ClusterLost: the scheduler is gone, or the last worker, and no other came.
        """
        try:
            while self.dispatch.open and not self.cancel.is_set():
                await self._turn()
            if self.cancel.is_set():
                await self._end_early()
        finally:
            tasks = [*self._admitting, *self._trying, *self._dropped]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _turn(self) -> None:
        """Look at the cluster, begin what can begin, take what has come."""
        self._see(await self.cluster.members())
        for attempt in self.dispatch.begin():
            job = self._jobs[attempt.cell.cell_id].model_copy(update={"earlier": attempt.earlier})
            doing = self.cluster.run(attempt.worker, job, number=attempt.number)
            self._trying[asyncio.ensure_future(doing)] = attempt
        self._expect_workers()
        await self._take(self.patience.poll)

    def _see(self, members: Mapping[str, Member]) -> None:
        for address in self._names.keys() - members.keys():
            self._lose(address, "is gone", for_good=True)
            self._names.pop(address)
            self._left_out.pop(address, None)
        for address, member in members.items():
            silent = self._silence(address, member)
            if address in self.dispatch.workers:
                if silent > self.patience.silence:
                    self._lose(address, f"gave no sign of life for {silent:.0f} s")
            elif self._may_admit(address, member, silent):
                admitting = self.cluster.admit(address, member.name)
                self._admitting[asyncio.ensure_future(admitting)] = address
            self._names[address] = member.name
        self._slots = {address: member.slots for address, member in members.items()}
        self._slotless = {member.name for member in members.values() if member.slots < 1}

    def _silence(self, address: str, member: Member) -> float:
        """Return for how many seconds by our clock a worker has given no sign of life."""
        beat, since = self._beats.get(address, (None, 0.0))
        if beat != member.beat:
            self._beats[address] = (member.beat, self.clock())
            return 0.0
        return self.clock() - since

    def _may_admit(self, address: str, member: Member, silent: float) -> bool:
        if address in self._left_out or address in self._admitting.values():
            return False
        return member.slots > 0 and silent <= 0.0

    def _lose(self, address: str, how: str, *, for_good: bool = False) -> None:
        name = self._names.get(address, address)
        known = address in self.dispatch.workers
        lost = self.dispatch.leave(address, f"worker {name} {how} while it ran the cell")
        if known:
            again = f"; {len(lost)} cell(s) are tried elsewhere" if lost else ""
            self.say(f"worker {name} {how}{again}")
        if for_good:
            self.dispatch.forget(address)
            self._beats.pop(address, None)
            for task, attempt in list(self._trying.items()):
                if attempt.worker == address:
                    self._drop(task)

    def _drop(self, task: asyncio.Task[bytes]) -> None:
        del self._trying[task]
        task.cancel()
        self._dropped.append(task)

    def _expect_workers(self) -> None:
        if self.dispatch.workers or self._admitting:
            self._used = self._used or bool(self.dispatch.workers)
            self._alone_since = self.clock()
        elif self.clock() - self._alone_since > self._patience_for_workers():
            raise self._no_worker()

    def _patience_for_workers(self) -> float:
        """A worker that is refused will not change; one that is not there may come."""
        hopeless = not self._used and (self._left_out or self._slotless)
        return self.patience.poll if hopeless else self.patience.workers

    def _no_worker(self) -> SandboxError:
        if self._used:
            return ClusterLost(
                f"the last worker is gone, and none came within {self.patience.workers:.0f} s",
                cure="start workers again, then go on with --resume",
            )
        if self._left_out:
            return PrerequisiteMissing(
                "no worker can be used: " + "; ".join(sorted(self._left_out.values())),
                cure="see docs/scale.md, what a worker needs",
            )
        if self._slotless:
            return PrerequisiteMissing(
                f"no worker declares engine slots ({', '.join(sorted(self._slotless))})",
                cure="start workers with: dask worker ... --resources engine=2",
            )
        return PrerequisiteMissing(
            f"the scheduler has no worker within {self.patience.workers:.0f} s",
            cure="start one: dask worker ADDRESS --resources engine=2 (docs/scale.md)",
        )

    async def _take(self, within: float) -> None:
        """Wait for something to happen, and take it."""
        waited: set[asyncio.Task[None] | asyncio.Task[bytes]] = {*self._admitting, *self._trying}
        if not waited:
            await asyncio.sleep(within)
            return
        await asyncio.wait(waited, timeout=within, return_when=asyncio.FIRST_COMPLETED)
        for admitting in [task for task in self._admitting if task.done()]:
            self._admitted(admitting)
        for trying in [task for task in self._trying if task.done()]:
            await self._tried(trying)

    def _admitted(self, task: asyncio.Task[None]) -> None:
        address = self._admitting.pop(task)
        error = task.exception()
        if error is None:
            if address in self._names:
                self.dispatch.join(address, self._slots[address])
                self.say(f"worker {self._names[address]}: {self._slots[address]} cell(s) at a time")
        elif isinstance(error, ClusterLost) or not isinstance(error, SandboxError):
            raise error
        else:
            self._left_out[address] = error.message
            self.say(f"left out: {error}")

    async def _tried(self, task: asyncio.Task[bytes]) -> None:
        attempt = self._trying.pop(task)
        error = task.exception()
        if error is None and self.dispatch.is_open(attempt.cell):
            try:
                await asyncio.to_thread(self.write, attempt, task.result())
            except SandboxError as unusable:
                error = unusable
        if error is None:
            self.dispatch.answer(attempt)
        elif isinstance(error, ClusterLost) or not isinstance(error, SandboxError):
            raise error
        else:
            name = self._names.get(attempt.worker, attempt.worker)
            self.say(f"{attempt.cell.cell_id}: worker {name} could not do it: {error.message}")
            reason = f"worker {name} could not do it: {error.message}"
            if self.dispatch.fail(attempt, reason):
                self._left_out[attempt.worker] = f"worker {name} fails: {error.message}"
                self.say(f"left out: worker {name}, which fails time after time")

    async def _end_early(self) -> None:
        """Ask the workers to end what they run, and take what they have seen of it."""
        self.dispatch.stop()
        await self.cluster.cancel()
        until = self.clock() + self.patience.end
        while self.dispatch.running and self.clock() < until:
            self._see(await self.cluster.members())
            await self._take(self.patience.poll)
