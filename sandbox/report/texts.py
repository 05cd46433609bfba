"""The small report files of a run as texts, by file name."""

from __future__ import annotations

from sandbox.evidence.results import RunVerdicts
from sandbox.report.ctrf import ctrf
from sandbox.report.jsonreport import results_json
from sandbox.report.junit import junit
from sandbox.report.markdown import summary


def report_files(run: RunVerdicts) -> dict[str, str]:
    """Return all but the page (``sandbox.report.html``); the caller writes them."""
    return {
        "results.json": results_json(run),
        "summary.md": summary(run),
        "junit.xml": junit(run),
        "ctrf.json": ctrf(run),
    }
