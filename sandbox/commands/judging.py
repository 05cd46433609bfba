"""Judging the cells of a run, in this process or several: each cell's share of the reports.

What is known of a cell is its own folder's, so cells are judged anywhere and put together in the
order of the plan. Of cells that were judged only those wait in memory that are not put yet.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path

from sandbox.errors import CouldNotFindOut
from sandbox.evidence.figures import CellFigures, figures_of
from sandbox.evidence.folder import CellFiles
from sandbox.evidence.foretold import Ended, ended
from sandbox.evidence.judge import Judge, Place, Sources, write_verdicts
from sandbox.evidence.nativetext import native_texts
from sandbox.evidence.results import CellResult, CellState
from sandbox.report.details import TEXT, details
from sandbox.report.html import CELL_LEAST, budget
from sandbox.report.share import CellShare, cell_share

CHUNK = 64
"""Cells that a process judges at a time."""
_FOR_A_PROCESS = 256
"""Cells whose judging takes longer than the start of a process that takes a part of them."""
_WAITING = 2
"""Chunks that each process has before it."""


@dataclass(frozen=True)
class Named:
    """A cell to judge, and whether it was planned."""

    name: str
    planned: bool


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is the same for all cells; it is sent to other processes.

    ``write`` leaves ``verdicts.json`` in the folders.
    """

    place: Place
    judge: Judge
    write: bool


def shares(
    work: Work,
    found: Sources,
    *,
    wants_details: Callable[[], bool],
    processes: int | None = None,
) -> Iterator[CellShare]:
    """Yield the share of each cell, in their order.

    Args:
        work: how and where.
        found: the cells.
        wants_details: whether the page has room for the details of more cells.
        processes: how many judge (default: one a core, when there are cells enough for them).

    Raises:
        UsageError: two baseline entries contradict each other.
        CouldNotFindOut: a process that judged was killed.
    """
    most = budget(len(found.names))
    chunks = _chunks(found)
    count = _processes(len(found.names)) if processes is None else processes
    if count < 2:
        for chunk in chunks:
            yield from judge_chunk(work, chunk, most, details=wants_details())
        return
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    pool = ProcessPoolExecutor(
        max_workers=count, mp_context=context, initializer=_leave_interrupts_alone
    )
    try:
        ahead: deque[Future[list[CellShare]]] = deque()
        for chunk in chunks:
            ahead.append(pool.submit(judge_chunk, work, chunk, most, details=wants_details()))
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


def judge_chunk(work: Work, cells: Sequence[Named], most: int, *, details: bool) -> list[CellShare]:
    """Judge some cells; ``most`` bytes of details each, 0: a few, and only of what fails."""
    return [_share(work, cell, most, wanted=details) for cell in cells]


def _share(work: Work, cell: Named, most: int, *, wanted: bool) -> CellShare:
    opened = _Opened(figures=work.write)
    folders = work.place.folders(cell.name)
    result = work.judge.cell(cell.name, folders, planned=cell.planned, told=opened)
    if work.write:
        write_verdicts(folders, result)
    packed = ""
    if wanted and (most or result.state is not CellState.PASS):
        packed = opened.details(result, most or CELL_LEAST)
    share = cell_share(
        result, work.judge.baseline, details=packed, peak_mib=max(opened.peaks_mib, default=None)
    )
    return replace(share, ended=tuple(opened.ended), figures=tuple(opened.figures))


class _Opened:
    """The execution that the page shows of a cell: the first one that failed, or the first."""

    def __init__(self, *, figures: bool) -> None:
        self._wants_figures = figures
        self.ended: list[Ended] = []
        self.figures: list[CellFigures] = []
        self._found: tuple[Path, CellResult, CellFiles] | None = None
        self.peaks_mib: list[float] = []

    def __call__(self, folder: Path, result: CellResult, files: CellFiles) -> None:
        """Hear of an execution that was judged."""
        self.ended.append(ended(files))
        if self._wants_figures:
            self.figures.append(figures_of(files))
        used = None if files.witness is None else files.witness.resources
        if used is not None and used.peak_memory_mib is not None:
            self.peaks_mib.append(used.peak_memory_mib)
        if self._found is None or (
            self._found[1].state is CellState.PASS and result.state is not CellState.PASS
        ):
            self._found = (folder, result, files)

    def details(self, result: CellResult, most: int) -> str:
        """Return the details of that execution; ``result`` is that of all of them."""
        if self._found is None:
            return details(result, None, {}, most=most)
        folder, one, files = self._found
        one = one.model_copy(update={"attempts": result.attempts})
        return details(one, files, native_texts(folder, files.native, most=TEXT), most=most)


def _leave_interrupts_alone() -> None:
    """Ctrl-C reaches every process of a terminal; the one that was started decides what to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _chunks(found: Sources) -> Iterator[list[Named]]:
    for start in range(0, len(found.names), CHUNK):
        names = found.names[start : start + CHUNK]
        yield [Named(name, start + n < found.planned) for n, name in enumerate(names)]


def _processes(cells: int) -> int:
    return min(len(os.sched_getaffinity(0)), cells // _FOR_A_PROCESS)
