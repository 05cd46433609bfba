"""What runs in a Dask worker: one workplace for each run, cells in it, and a clean end.

The functions are found by name, so a worker needs this package installed. Those that the client
calls directly are coroutines on the worker's event loop and do their work in threads: a loop that
stands still gives no sign of life.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from distributed import WorkerPlugin

from sandbox.conformance.cluster.facts import facts_of
from sandbox.conformance.cluster.intake import Intake, Picture, Piece, Runtime, Want
from sandbox.conformance.job import CellJob
from sandbox.conformance.prepare import prepare_bundles
from sandbox.conformance.ways import Way
from sandbox.conformance.workplace import Workplace
from sandbox.engine.sweep import sweep
from sandbox.errors import CacheUnusable, EngineFailure, SandboxError
from sandbox.progress import PlainProgress

_END_S = 60.0
_PAUSE_S = 0.05
_FORGOTTEN_S = 3600.0


@dataclass
class _Held:
    """The workplace of one run in this process; ``running`` cells, ``used`` last (monotonic)."""

    place: Workplace
    intake: Intake
    stack: ExitStack
    running: int = 0
    used: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)


_HELD: dict[str, _Held] = {}
_OPENING = threading.Lock()


class _Ending(WorkerPlugin):  # type: ignore[misc] # distributed is not typed for us
    """A worker that is told to end lets its cells end first, with their sandboxes removed."""

    async def teardown(self, worker: object) -> None:
        """End every run's cells here, and close their workplaces."""
        del worker
        for run_id in list(_HELD):
            with suppress(SandboxError):  # what is left is swept by the next worker here
                await drain(run_id)
                await close(run_id, whole_run=False)


async def admit(run_id: str, dask_worker: Any) -> str:
    """Open the run's workplace, once, and return what this worker is (``Facts`` as JSON).

    Raises:
        PrerequisiteMissing: no engine answers here.
        SandboxError: the pins cannot be read, or the cache not be written.
    """
    if "sandbox" not in dask_worker.plugins:
        await dask_worker.plugin_add(_Ending(), name="sandbox")
    held = await asyncio.to_thread(_open, run_id)
    place = held.place
    facts = await asyncio.to_thread(facts_of, place.engine, place.library, place.harnesses)
    return facts.model_dump_json()


async def lacking(run_id: str, wants: list[Want]) -> list[bool]:
    """Say of each runtime and image whether it is missing here."""
    intake = _held(run_id).intake
    return [await asyncio.to_thread(intake.lacks, want) for want in wants]


async def take(run_id: str, want: Want, piece: Piece, data: bytes) -> None:
    """Take the next piece of a runtime or an image; see ``Intake.take``."""
    await asyncio.to_thread(_held(run_id).intake.take, want, piece, data)


async def ready(run_id: str, wants: list[Want], way: Way) -> None:
    """Unpack the runtimes that sandboxes see as folders, before the first cell waits for it."""
    place = _held(run_id).place
    pairs = [(want.harness, want.platform) for want in wants if isinstance(want, Runtime)]
    for want in wants:
        if isinstance(want, Picture):
            await asyncio.to_thread(place.image, want.image, want.content)
    quiet, unpack = PlainProgress(quiet=True), way == "mount" and place.engine.info.is_local
    await asyncio.to_thread(prepare_bundles, place.library, pairs, quiet, unpack=unpack)


def work(job: CellJob) -> bytes:
    """Do a job in a thread of the worker; return the packed cell folder.

    Raises:
        SandboxError: the job cannot be done here.
    """
    held = _held(job.run_id)
    with held.lock:
        held.running += 1
    try:
        return held.place.run(job)
    except SandboxError:
        raise
    except OSError as error:
        raise CacheUnusable(f"the cell's folder cannot be made here: {error}") from error
    finally:
        with held.lock:
            held.running -= 1


async def cancel(run_id: str) -> None:
    """Ask the run's cells here to end."""
    if run_id in _HELD:
        _HELD[run_id].place.cancel.set()


async def drain(run_id: str) -> None:
    """Have the run's cells here end, and wait until they have."""
    await cancel(run_id)
    until = time.monotonic() + _END_S
    while run_id in _HELD and _HELD[run_id].running and time.monotonic() < until:
        await asyncio.sleep(_PAUSE_S)


async def close(run_id: str, *, whole_run: bool) -> None:
    """Close the run's workplace, and remove what dead workers left on its engine.

    Args:
        run_id: the run.
        whole_run: also remove whatever else is left of the run there: no worker runs a cell of it.

    Raises:
        EngineFailure: something may be left, for the next sweep.
    """
    held = _HELD.pop(run_id, None)
    if held is not None:
        await asyncio.to_thread(_close, held, include_run=run_id if whole_run else None)


def _close(held: _Held, *, include_run: str | None) -> None:
    with held.stack:
        sweep(held.place.engine, include_run=include_run)


def _open(run_id: str) -> _Held:
    with _OPENING, ExitStack() as entered:
        if run_id in _HELD and not _HELD[run_id].place.cancel.is_set():
            return _HELD[run_id]
        if run_id in _HELD and _HELD[run_id].running:
            raise EngineFailure("it still ends the run's cells of an earlier client")
        _close_idle(_HELD.get(run_id))
        place = entered.enter_context(Workplace.opened(run_id))
        intake = entered.enter_context(Intake(place.engine, place.library.own.store))
        _HELD[run_id] = _Held(place, intake, entered.pop_all())
        return _HELD[run_id]


def _close_idle(ended: _Held | None) -> None:
    """Close a workplace that has ended, and those whose client has not asked for long."""
    for run_id, held in list(_HELD.items()):
        forgotten = not held.running and time.monotonic() - held.used > _FORGOTTEN_S
        if held is ended or forgotten:
            del _HELD[run_id]
            with suppress(SandboxError):
                _close(held, include_run=None)


def _held(run_id: str) -> _Held:
    held = _HELD.get(run_id)
    if held is None:
        raise EngineFailure(f"the worker does not know run {run_id}: it was started anew")
    held.used = time.monotonic()
    return held
