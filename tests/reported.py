"""Reports of judged runs as texts: what the commands write cell by cell, for tests in one call."""

from __future__ import annotations

import datetime as dt
import tempfile
from dataclasses import replace
from pathlib import Path

from sandbox.evidence.baseline import Baseline
from sandbox.evidence.results import RunOutcome, RunVerdicts
from sandbox.evidence.verdict import Tier
from sandbox.report import annotations, markdown, terminal
from sandbox.report.files import RunReports
from sandbox.report.gathered import Gathered
from sandbox.report.share import cell_share


def filled(run: RunVerdicts, reports: RunReports) -> Gathered:
    """Give the reports all cells of the run; its outcome stays as it is told here."""
    for cell in run.cells:
        reports.add(cell_share(cell, Baseline()))
    found = reports.end(None, today=dt.date(2027, 1, 1), gate=Tier.P2)
    told = RunOutcome(**{name: getattr(run, name) for name in RunOutcome.model_fields})
    return replace(found, outcome=told)


def gathered(run: RunVerdicts) -> Gathered:
    with RunReports(len(run.cells), Baseline()) as reports:
        return filled(run, reports)


def report_files(run: RunVerdicts) -> dict[str, str]:
    with (
        tempfile.TemporaryDirectory() as folder,
        RunReports(len(run.cells), Baseline()) as reports,
    ):
        reports.write(filled(run, reports), Path(folder))
        return {path.name: path.read_text(encoding="utf-8") for path in Path(folder).iterdir()}


def summary(
    run: RunVerdicts, *, limit: int = markdown.STEP_SUMMARY_LIMIT, most: int = markdown.MOST_CELLS
) -> str:
    return markdown.summary(gathered(run), limit=limit, most=most)


def render(
    run: RunVerdicts,
    *,
    width: int = 80,
    results: str | None = None,
    most: int = terminal.MOST_CELLS,
) -> str:
    return terminal.render(gathered(run), width=width, results=results, most=most)


def error_lines(run: RunVerdicts, *, most: int = annotations.SHOWN) -> tuple[str, ...]:
    return annotations.error_lines(gathered(run), most=most)
