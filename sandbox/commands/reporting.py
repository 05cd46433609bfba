"""Judge a run folder: the table to standard output, the report files beside the cells."""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from sandbox.commands.judging import Work, shares
from sandbox.errors import ExitCode
from sandbox.evidence.baseline import Baseline, load_baseline
from sandbox.evidence.checks import CHECKS
from sandbox.evidence.judge import Judge, judge, sources
from sandbox.evidence.results import RunVerdicts
from sandbox.evidence.verdict import Tier
from sandbox.report.annotations import error_lines
from sandbox.report.files import RunReports
from sandbox.report.gathered import Gathered
from sandbox.report.terminal import report

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


def judged(folder: Path, *, known: Baseline, gate: Tier = Tier.P2) -> RunVerdicts:
    """Judge the run in ``folder`` with today's checks and date; all of it is in memory then."""
    return judge(folder, baseline=known, today=_today(), gate=gate)


def judge_of(known: Baseline) -> Judge:
    """Return a judge with today's checks and date."""
    return Judge(baseline=known, today=_today())


def failing(folder: Path, *, known: Baseline) -> list[str]:
    """Return the ids of the cells of a run that neither pass nor are known, in its order."""
    found = sources(folder)
    work = Work(place=found.place, judge=judge_of(known), write=False)
    return [
        share.line.cell_id
        for share in shares(work, found, wants_details=lambda: False)
        if share.marks.open
    ]


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

    The cells go through one by one, in several processes when they are many. With ``only`` (globs
    of cell ids) some are judged, and nothing is written: the reports are of whole runs.
    """
    write = write and not only
    found = sources(folder, only=only)
    today = _today()
    work = Work(place=found.place, judge=Judge(baseline=known, today=today), write=write)
    to = folder if write else None
    with RunReports(len(found.names), known, to, found.preflight) as reports:
        for share in shares(work, found, wants_details=lambda: write and reports.wants_details):
            reports.add(share)
        run = reports.end(found.record, today=today, gate=gate)
        if write:
            reports.write(run, folder)
            _tell_github(run, folder)
        if as_json:
            sys.stdout.flush()
            reports.write_results(run.outcome, sys.stdout.buffer)
            sys.stdout.buffer.flush()
    if not as_json:
        console = Console(soft_wrap=False)
        console.print(report(run, width=console.width, results=str(folder)))
    return ExitCode(run.outcome.exit_code)


def _today() -> dt.date:
    return dt.datetime.now(dt.UTC).date()


def _tell_github(run: Gathered, folder: Path) -> None:
    if os.environ.get("GITHUB_ACTIONS"):
        print(*error_lines(run), sep="\n", file=sys.stderr)
    step_summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if step_summary:
        with Path(step_summary).open("a", encoding="utf-8") as summary:
            summary.write((folder / "summary.md").read_text(encoding="utf-8") + "\n")
