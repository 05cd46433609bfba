"""Judge a run folder: the table to standard output, the report files beside the cells."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

from rich.console import Console

from sandbox.errors import ExitCode
from sandbox.evidence.baseline import Baseline, load_baseline
from sandbox.evidence.checks import CHECKS
from sandbox.evidence.folder import write_text
from sandbox.evidence.judge import judge, write_verdicts
from sandbox.evidence.results import RunVerdicts
from sandbox.report.jsonreport import results_json
from sandbox.report.terminal import report
from sandbox.report.texts import report_files

BASELINE = Path(__file__).resolve().parents[1] / "conformance" / "baseline.toml"


def baseline(path: Path | None = None) -> Baseline:
    """Load the reviewed known failures (this project's own when ``path`` is None)."""
    return load_baseline(path or BASELINE, checks=CHECKS)


def conclude(
    folder: Path, *, known: Baseline, as_json: bool = False, write: bool = True
) -> ExitCode:
    """Judge the run in ``folder``, print the result, write the reports; return the exit code."""
    verdicts = judge(folder, baseline=known, today=dt.datetime.now(dt.UTC).date())
    if write:
        write_verdicts(folder, verdicts)
        _write_reports(folder, verdicts)
    if as_json:
        print(results_json(verdicts))
    else:
        console = Console(soft_wrap=False)
        console.print(report(verdicts, width=console.width, results=str(folder)))
    return ExitCode(verdicts.exit_code)


def _write_reports(folder: Path, verdicts: RunVerdicts) -> None:
    files = report_files(verdicts)
    for name, text in files.items():
        write_text(folder / name, text)
    step_summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if step_summary:
        with Path(step_summary).open("a", encoding="utf-8") as page:
            page.write(files["summary.md"] + "\n")
