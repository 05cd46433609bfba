"""Judging the cells of a run, in this process or several: each cell's share of the reports.

What is known of a cell is its own folder's, so cells are judged anywhere and put together in the
order of the plan. Of cells that were judged only those wait in memory that are not put yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sandbox.commands.spread import chunks, in_order
from sandbox.evidence.figures import CellFigures, figures_of
from sandbox.evidence.folder import CellFiles
from sandbox.evidence.foretold import Ended, ended
from sandbox.evidence.judge import Judge, Place, Sources, write_verdicts
from sandbox.evidence.nativetext import native_texts
from sandbox.evidence.results import CellResult, CellState
from sandbox.report.details import TEXT, details
from sandbox.report.html import CELL_LEAST, budget
from sandbox.report.share import CellShare, cell_share


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
    calls = (
        partial(judge_chunk, work, _named(found, places), most, details=wants_details())
        for places in chunks(range(len(found.names)))
    )
    return in_order(calls, cells=len(found.names), module=__name__, processes=processes)


def _named(found: Sources, places: Sequence[int]) -> list[Named]:
    return [Named(found.names[place], place < found.planned) for place in places]


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
