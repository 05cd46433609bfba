"""Work on the cells of a run, in this process or several; its answers come in their order.

Of answers that are there only those wait in memory that nobody took yet.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from sandbox.errors import CouldNotFindOut

CHUNK = 64
"""Cells that a process works on at a time."""
_FOR_A_PROCESS = 256
"""Cells whose judging takes longer than the start of a process that takes a part of them."""
_WAITING = 2
"""Chunks that each process has before it."""

_T = TypeVar("_T")


def chunks(cells: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Cut cells into what a process works on at a time."""
    return (cells[start : start + CHUNK] for start in range(0, len(cells), CHUNK))


def in_order(
    calls: Iterable[Callable[[], list[_T]]],
    *,
    cells: int,
    module: str,
    processes: int | None = None,
) -> Iterator[_T]:
    """Yield what the calls return, in their order; a call is taken when it is soon its turn.

    Args:
        calls: one for each chunk; they can be sent to another process.
        cells: how many there are in all.
        module: the name of the module that a process imports for its calls.
        processes: how many work (default: one a core, when there are cells enough for them).

    Raises:
        CouldNotFindOut: a process was killed.
    """
    count = _processes(cells) if processes is None else processes
    if count < 2:
        for call in calls:
            yield from call()
        return
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([module])
    pool = ProcessPoolExecutor(
        max_workers=count, mp_context=context, initializer=_leave_interrupts_alone
    )
    try:
        ahead: deque[Future[list[_T]]] = deque()
        for call in calls:
            ahead.append(pool.submit(call))
            if len(ahead) >= count * _WAITING:
                yield from ahead.popleft().result()
        while ahead:
            yield from ahead.popleft().result()
    except BrokenProcessPool as error:
        raise CouldNotFindOut(
            "a process that judged was killed, perhaps for want of memory",
            cure="judge again; nothing of the run was changed but verdicts.json files",
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _leave_interrupts_alone() -> None:
    """Ctrl-C reaches every process of a terminal; the one that was started decides what to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _processes(cells: int) -> int:
    return min(len(os.sched_getaffinity(0)), cells // _FOR_A_PROCESS)
