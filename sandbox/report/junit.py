"""``junit.xml``: one suite for each harness and image, one case for each check of a cell.

A failure is a failure, "could not find out" is an error; what the baseline knows and what does not
apply is skipped, with the reason as message. A cell that ran only after the engine had failed has a
passing case ``cell_run`` with a ``flakyError`` in it (Maven Surefire's form). A stale baseline
entry is a failed case of its own.
"""

from __future__ import annotations

import re

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite
from junitparser.xunit2 import FlakyError

from sandbox.evidence.results import CellResult, RunVerdicts, StaleEntry, split_id
from sandbox.evidence.verdict import Status, Verdict
from sandbox.report.words import matrix

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(run: RunVerdicts) -> str:
    """Return the text of ``junit.xml``."""
    xml = JUnitXml(name=f"conformance {run.run_id}")
    for row in matrix(run).rows:
        suite = TestSuite("/".join(row))
        cells = [cell for cell in run.cells if split_id(cell.cell_id)[:2] == row]
        suite.add_testcases([_case(cell, verdict) for cell in cells for verdict in cell.verdicts])
        xml.add_testsuite(suite)
    if run.stale:
        suite = TestSuite("baseline")
        suite.add_testcases([_stale(entry) for entry in run.stale])
        xml.add_testsuite(suite)
    xml.update_statistics()
    text: bytes = xml.tostring()
    return text.decode()


def _case(cell: CellResult, verdict: Verdict) -> TestCase:
    harness, image, scenario = split_id(cell.cell_id)
    case = TestCase(verdict.check, classname=f"{harness}.{image}.{scenario}")
    flaky = f"{verdict.flaky}: " if verdict.flaky else ""
    reason = _clean(flaky + verdict.reason)
    if verdict.known is not None:
        case.result = [Skipped(f"known: {_clean(verdict.known)} ({reason})")]
    elif verdict.status is Status.FAIL:
        case.result = [Failure(reason, verdict.tier.value)]
    elif verdict.status is Status.ERROR:
        case.result = [Error(reason, verdict.tier.value)]
    elif verdict.status is Status.NOT_APPLICABLE:
        case.result = [Skipped(f"not applicable: {reason}")]
    elif verdict.flaky is not None:
        case.append(FlakyError(reason, verdict.tier.value))
    return case


def _stale(entry: StaleEntry) -> TestCase:
    case = TestCase(f"{_clean(entry.cell)} {entry.check}", classname="baseline")
    near = f"; near miss: {entry.near}" if entry.near else ""
    case.result = [Failure(_clean(f"the failure is gone: {entry.reason}{near}"), "stale")]
    return case


def _clean(text: str) -> str:
    """Replace characters that XML 1.0 cannot hold."""
    return _NOT_XML.sub("\ufffd", text)
