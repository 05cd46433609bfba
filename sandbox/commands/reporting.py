"""Judge a run folder: the table to standard output, the report files beside the cells."""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from sandbox.errors import ExitCode
from sandbox.evidence.baseline import Baseline, load_baseline
from sandbox.evidence.checks import CHECKS
from sandbox.evidence.folder import CellFiles, find_cells, write_text
from sandbox.evidence.judge import Told, judge, untold, write_verdicts
from sandbox.evidence.nativetext import native_texts
from sandbox.evidence.results import CellResult, CellState, RunVerdicts
from sandbox.evidence.verdict import Tier
from sandbox.report.annotations import error_lines
from sandbox.report.details import TEXT, details
from sandbox.report.html import CELL_LEAST, budget, most_detailed, page
from sandbox.report.jsonreport import results_json
from sandbox.report.terminal import report
from sandbox.report.texts import report_files

BASELINE = Path(__file__).resolve().parents[1] / "conformance" / "baseline.toml"


def baseline(path: Path | None = None) -> Baseline:
    """Load the reviewed known failures (this project's own when ``path`` is None)."""
    return load_baseline(path or BASELINE, checks=CHECKS)


def add_gate(parser: argparse.ArgumentParser) -> None:
    """Add the option that says which failures decide the exit code."""
    parser.add_argument(
        "--gate",
        type=Tier,
        choices=tuple(Tier),
        default=Tier.P2,
        metavar="TIER",
        help="the lightest tier whose failures end with 1: P0, P1 or P2 (default: P2, all)",
    )


def judged(
    folder: Path,
    *,
    known: Baseline,
    gate: Tier = Tier.P2,
    told: Told = untold,
    only: Sequence[str] = (),
) -> RunVerdicts:
    """Judge the run in ``folder`` with today's checks and date; ``only``: globs of cell ids."""
    today = dt.datetime.now(dt.UTC).date()
    return judge(folder, baseline=known, today=today, gate=gate, told=told, only=only)


class _Opened:
    """What the page shows of each opened cell; of a repeated one, its first attempt that failed.

    Of too many cells for one page only those that do not pass are kept.
    """

    def __init__(self, cells: int) -> None:
        self._most = budget(cells)
        self._left = most_detailed(cells)
        self._packed: dict[str, str] = {}
        self._passed: set[str] = set()

    def __call__(self, folder: Path, result: CellResult, files: CellFiles) -> None:
        """Keep the details of a cell that was judged."""
        name = result.cell_id
        if name in self._packed and (name not in self._passed or result.state is CellState.PASS):
            return
        if self._most == 0 and (result.state is CellState.PASS or self._left == 0):
            return
        self._left -= 1
        native = native_texts(folder, files.native, most=TEXT)
        self._packed[name] = details(result, files, native, most=self._most or CELL_LEAST)
        if result.state is CellState.PASS:
            self._passed.add(name)
        else:
            self._passed.discard(name)

    def of(self, result: CellResult) -> str:
        """Return the details of a cell, also of one whose folder could not be read."""
        found = self._packed.get(result.cell_id)
        if found is None and self._most:
            return details(result, None, {}, most=self._most)
        return found or ""


def conclude(
    folder: Path,
    *,
    known: Baseline,
    as_json: bool = False,
    write: bool = True,
    gate: Tier = Tier.P2,
    only: Sequence[str] = (),
) -> ExitCode:
    """Judge the run in ``folder``, print the result, write the reports; return the exit code.

    With ``only`` some cells are judged, and nothing is written: the reports are of whole runs.
    """
    write = write and not only
    opened = _Opened(len(find_cells(folder)))
    told = opened if write else untold
    verdicts = judged(folder, known=known, gate=gate, told=told, only=only)
    if write:
        write_verdicts(folder, verdicts)
        _write_reports(folder, verdicts, opened)
    if as_json:
        print(results_json(verdicts))
    else:
        console = Console(soft_wrap=False)
        console.print(report(verdicts, width=console.width, results=str(folder)))
    return ExitCode(verdicts.exit_code)


def _write_reports(folder: Path, verdicts: RunVerdicts, opened: _Opened) -> None:
    files = report_files(verdicts)
    for name, text in files.items():
        write_text(folder / name, text)
    write_text(folder / "report.html", page(verdicts, map(opened.of, verdicts.cells)))
    if os.environ.get("GITHUB_ACTIONS"):
        print(*error_lines(verdicts), sep="\n", file=sys.stderr)
    step_summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if step_summary:
        with Path(step_summary).open("a", encoding="utf-8") as summary:
            summary.write(files["summary.md"] + "\n")
