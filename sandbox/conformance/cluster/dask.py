"""The cluster of a Dask scheduler (``distributed``): the only module of the client that knows it.

Every cell is a task that one worker may run, since which worker runs what is decided here
(``dispatch``); the scheduler carries messages and knows who is there.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from distributed import Client

from sandbox.conformance.cluster import worker as there
from sandbox.conformance.cluster.facts import Facts, refuse
from sandbox.conformance.cluster.intake import Want
from sandbox.conformance.cluster.ports import Member
from sandbox.conformance.cluster.sending import Sending
from sandbox.conformance.job import CellJob
from sandbox.conformance.ways import Way
from sandbox.errors import ClusterLost, CouldNotFindOut, PrerequisiteMissing, SandboxError
from sandbox.evidence.cell import RunConfiguration

SLOTS = "engine"
"""The worker resource that says how many cells its engine takes at a time."""
CONNECT_S = 10.0
SCHEDULER_S = 60.0
CALL_S = 600.0
"""A worker's first call imports the package, its last one of a file hashes or loads that."""
_END_S = 75.0


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a worker must have and be to work on a run.

    ``ours`` is what the client is, ``wants`` what the cells use, ``sending`` where it comes from.
    """

    run_id: str
    configuration: RunConfiguration
    way: Way
    ours: Facts
    wants: Sequence[Want]
    sending: Sending


@asynccontextmanager
async def connected(
    address: str, terms: Terms, say: Callable[[str], None]
) -> AsyncIterator[DaskCluster]:
    """Connect to a scheduler while inside.

    Raises:
        PrerequisiteMissing: it cannot be reached.
    """
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters is said in lines
    client = Client(address, asynchronous=True, set_as_default=False, timeout=CONNECT_S)
    try:
        await client
    except (OSError, ValueError, TimeoutError, RuntimeError) as error:
        with suppress(Exception):
            await client.close(timeout=1)
        raise PrerequisiteMissing(
            f"no Dask scheduler can be reached at {address}: {error}",
            cure="start one with: dask scheduler; or look at the address, port and TLS settings",
        ) from error
    try:
        yield DaskCluster(client, address, terms, say)
    finally:
        with suppress(Exception):  # it may be gone
            await client.close(timeout=5)


class DaskCluster:
    """The workers of one scheduler, for one run (``ports.Cluster``)."""

    def __init__(self, client: Any, address: str, terms: Terms, say: Callable[[str], None]) -> None:
        self._client = client
        self._address = address
        self._terms = terms
        self._say = say
        self._nonce = secrets.token_hex(8)
        self._caches: dict[str, asyncio.Lock] = {}

    async def members(self) -> Mapping[str, Member]:
        """Return the workers that the scheduler has now; see ``Cluster``."""
        self._expect_scheduler()
        try:
            asked = self._client.scheduler.identity(n_workers=-1)
            said = await asyncio.wait_for(asked, SCHEDULER_S)
        except (OSError, TimeoutError) as error:
            raise self._lost() from error
        return {address: _member(one) for address, one in said["workers"].items()}

    async def admit(self, worker: str, name: str) -> None:
        """See that a worker is like us and has what it needs; see ``Cluster``."""
        run_id, wants = self._terms.run_id, list(self._terms.wants)
        theirs = Facts.model_validate_json(await self._call(worker, name, there.admit, run_id))
        refuse(name, theirs, self._terms.ours, self._terms.configuration)
        async with self._caches.setdefault(theirs.cache, asyncio.Lock()):
            missing = await self._call(worker, name, there.lacking, run_id, wants)
            for want in (want for want, lacks in zip(wants, missing, strict=True) if lacks):
                await self._send(worker, name, want)
        await self._call(worker, name, there.ready, run_id, wants, self._terms.way)

    async def run(self, worker: str, job: CellJob, *, number: int) -> bytes:
        """Run a job as a task of one worker; see ``Cluster``."""
        future = self._client.submit(
            there.work,
            job,
            key=f"sandbox-{self._nonce}-{job.spec.cell_id}-{number}",
            workers=[worker],
            allow_other_workers=False,
            resources={SLOTS: 1},
            pure=False,
        )
        try:
            answer = await future
        except SandboxError:
            raise
        except Exception as error:  # whatever code of another machine raised
            self._expect_scheduler()
            raise CouldNotFindOut(f"{type(error).__name__}: {error}") from error
        finally:
            future.release()
        return bytes(answer)

    async def cancel(self) -> None:
        """Ask all workers to end the cells that they run."""
        await self._everywhere(there.cancel, self._terms.run_id)

    async def finish(self) -> None:
        """Have all workers leave nothing: first every cell ends, then engines are swept."""
        await self._everywhere(there.drain, self._terms.run_id)
        await self._everywhere(there.close, self._terms.run_id, whole_run=True)

    async def _send(self, worker: str, name: str, want: Want) -> None:
        run_id = self._terms.run_id
        self._say(f"worker {name} lacks {want.name}: sending it")
        async for piece, data in self._terms.sending.pieces(want):
            await self._call(worker, name, there.take, run_id, want, piece, data)

    async def _everywhere(
        self, function: Callable[..., object], *args: object, **more: object
    ) -> None:
        members = await self.members()
        calls = [
            self._call(address, member.name, function, *args, within=_END_S, **more)
            for address, member in members.items()
        ]
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(answer, SandboxError):
                self._say(answer.message)

    async def _call(
        self,
        worker: str,
        name: str,
        function: Callable[..., object],
        *args: object,
        within: float = CALL_S,
        **more: object,
    ) -> Any:
        """Call a function of a worker, outside of its task queue; its errors are raised here."""
        asked = self._client.run(function, *args, workers=[worker], on_error="return", **more)
        try:
            answers = await asyncio.wait_for(asked, within)
        except TimeoutError as error:
            raise CouldNotFindOut(
                f"worker {name} does not answer within {within:.0f} s",
                cure="look at its log and its load",
            ) from error
        except OSError as error:
            self._expect_scheduler()
            raise CouldNotFindOut(f"worker {name} cannot be reached: {error}") from error
        answer = answers.get(worker)
        if isinstance(answer, SandboxError):
            raise type(answer)(f"worker {name}: {answer.message}", cure=answer.cure) from answer
        if isinstance(answer, Exception):
            raise CouldNotFindOut(
                f"worker {name}: {type(answer).__name__}: {answer}",
                cure="install the same version of this package on every worker",
            ) from answer
        return answer

    def _expect_scheduler(self) -> None:
        """Raise when the connection is broken: the scheduler has then forgotten all tasks."""
        if self._client.status != "running":
            raise self._lost()

    def _lost(self) -> ClusterLost:
        return ClusterLost(
            f"the scheduler at {self._address} is lost",
            cure="start it and the workers again, then go on with --resume",
        )


def _member(said: Mapping[str, Any]) -> Member:
    declared = int(dict(said.get("resources") or {}).get(SLOTS, 0))
    return Member(
        name=str(said["name"]),
        slots=min(declared, int(said["nthreads"])),
        beat=float(said["last_seen"]),
    )
