"""The report files of a run, written cell by cell: memory does not grow with what they hold.

``results.json``, ``junit.xml`` and ``ctrf.json`` begin with numbers that are known at the end, so
their cells wait on disk; the page and the summary are bounded in themselves.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self

from sandbox.evidence.baseline import Baseline
from sandbox.evidence.cell import RunRecord
from sandbox.evidence.costs import COSTS_FRAME, NAME
from sandbox.evidence.figures import FiguresTable
from sandbox.evidence.folder import replaced
from sandbox.evidence.preflight import PreflightReport
from sandbox.evidence.results import CellState, RunOutcome
from sandbox.evidence.verdict import Tier
from sandbox.report.ctrf import ctrf_frame, stale_tests
from sandbox.report.gathered import Gathered, Gathering
from sandbox.report.html import budget, most_detailed, page
from sandbox.report.jsonreport import results_frame
from sandbox.report.junit import JUNIT_END, SUITE_END, junit_head, stale_piece, suite_head
from sandbox.report.markdown import summary, with_figures
from sandbox.report.share import CellShare
from sandbox.report.spool import Span, Spool, joined


@dataclass
class _Suite:
    spans: list[Span] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


class RunReports:
    """Takes the shares of a run's cells in their order, then writes; a context manager.

    Args:
        cells: how many there will be.
        baseline: the one they were judged with.
        folder: on whose disk the waiting parts are.
        preflight: what was foretold of the run, to hold the cells against.
    """

    def __init__(
        self,
        cells: int,
        baseline: Baseline,
        folder: Path | None = None,
        preflight: PreflightReport | None = None,
    ) -> None:
        self._gathering = Gathering(baseline, preflight)
        self._figures = FiguresTable()
        self._folder = folder
        self._budget, self._details_left = budget(cells), most_detailed(cells)
        self._details: dict[str, str] = {}
        self._suites: dict[str, _Suite] = {}
        self._ctrf: Counter[str] = Counter()
        self._with_tests = 0
        self._times: tuple[float, float] | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._cells = stack.enter_context(Spool(self._folder))
            self._cases = stack.enter_context(Spool(self._folder))
            self._tests = stack.enter_context(Spool(self._folder))
            self._costs = stack.enter_context(Spool(self._folder))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def wants_details(self) -> bool:
        """Whether the page has room for the details of another cell."""
        return self._budget > 0 or self._details_left > 0

    def add(self, share: CellShare) -> None:
        """Take the share of the next cell."""
        self._gathering.add(share)
        _append(self._cells, share.results)
        if share.cost:
            _append(self._costs, share.cost)
        if share.ctrf.text:
            _append(self._tests, share.ctrf.text)
            self._ctrf += share.ctrf.counts
            self._with_tests += 1
        harness, image, _ = share.line.path
        suite = self._suites.setdefault(f"{harness}/{image}", _Suite())
        joined(suite.spans, self._cases.add(f"{share.junit.text}\n"))
        suite.counts += share.junit.counts
        if share.times is not None:
            first, last = self._times or share.times
            self._times = (min(first, share.times[0]), max(last, share.times[1]))
        for figures in share.figures:
            self._figures.add(figures)
        self._keep_details(share)

    def _keep_details(self, share: CellShare) -> None:
        if not share.details:
            return
        if not self._budget:
            if share.line.state is CellState.PASS or not self._details_left:
                return
            self._details_left -= 1
        self._details[share.line.cell_id] = share.details

    def end(self, record: RunRecord | None, *, today: dt.date, gate: Tier) -> Gathered:
        """Return the run, when all cells were added."""
        return self._gathering.end(record, today, gate)

    def write(self, run: Gathered, folder: Path) -> None:
        """Write all reports into a folder, each by one rename."""
        with replaced(folder / "results.json") as file:
            self.write_results(run.outcome, file)
        with replaced(folder / "junit.xml") as file:
            self._write_junit(run.outcome, file)
        with replaced(folder / "ctrf.json") as file:
            self._write_ctrf(run.outcome, file)
        with replaced(folder / NAME) as file:
            head, end = COSTS_FRAME
            file.write(head.encode())
            self._costs.copy(self._costs.all, file)
            file.write(end.encode())
        with replaced(folder / "summary.md") as file:
            text = with_figures(summary(run), self._figures.text())
            file.write(text.encode("utf-8", "replace"))
        with replaced(folder / "report.html") as file:
            file.write(page(run, self._details).encode("utf-8", "replace"))

    def write_results(self, outcome: RunOutcome, file: IO[bytes]) -> None:
        """Write ``results.json``."""
        head, end = results_frame(outcome)
        file.write(head.encode())
        self._cells.copy(self._cells.all, file)
        file.write(end.encode())

    def _write_junit(self, outcome: RunOutcome, file: IO[bytes]) -> None:
        stale = stale_piece(outcome)
        counts = sum((suite.counts for suite in self._suites.values()), stale.counts)
        file.write(junit_head(outcome, counts).encode("utf-8", "replace"))
        for name, suite in self._suites.items():
            file.write(suite_head(name, suite.counts).encode("utf-8", "replace"))
            self._cases.copy(suite.spans, file)
            file.write(SUITE_END.encode())
        if stale.text:
            text = f"{suite_head('baseline', stale.counts)}{stale.text}\n{SUITE_END}"
            file.write(text.encode("utf-8", "replace"))
        file.write(JUNIT_END.encode())

    def _write_ctrf(self, outcome: RunOutcome, file: IO[bytes]) -> None:
        stale = stale_tests(outcome)
        suites = self._with_tests + bool(stale.text)
        times = self._times or (0.0, 0.0)
        head, end = ctrf_frame(outcome, self._ctrf + stale.counts, suites=suites, times=times)
        file.write(head.encode("utf-8", "replace"))
        self._tests.copy(self._tests.all, file)
        if stale.text:
            comma = ",\n" if self._with_tests else ""
            file.write(f"{comma}{stale.text}".encode("utf-8", "replace"))
        file.write(end.encode())


def _append(spool: Spool, text: str) -> None:
    comma = ",\n" if spool.all[0].length else ""
    spool.add(f"{comma}{text}")
