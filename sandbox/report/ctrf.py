"""``ctrf.json``: the run in the Common Test Report Format, one test for each check of a cell.

Format: the JSON schema of ctrf-io/ctrf (``schema/ctrf.schema.json``), draft-07, in which unknown
keys are errors; ``specVersion`` 0.0.0 is what its own reporters write. Times are milliseconds since
the epoch. What the baseline knows and what does not apply is skipped, as in ``junit.xml``; "could
not find out" is failed with the raw status ``error``.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from pydantic import Field

from sandbox.evidence.records import Record
from sandbox.evidence.results import CellResult, RunOutcome, StaleEntry, split_id
from sandbox.evidence.verdict import Status, Verdict

CtrfStatus = Literal["passed", "failed", "skipped", "pending", "other"]
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "sandbox-conformance").bytes
_STATUSES: dict[Status, CtrfStatus] = {
    Status.PASS: "passed",
    Status.FAIL: "failed",
    Status.ERROR: "failed",
    Status.NOT_APPLICABLE: "skipped",
}


class RetryAttempt(Record):
    """One execution of a repeated check; attempts count from 1."""

    attempt: int = Field(ge=1)
    status: CtrfStatus
    message: str | None = None


class Test(Record):
    """One check of one cell; its ``duration`` is 0, since a verdict takes no time of the cell's."""

    id: str
    name: str = Field(min_length=1)
    status: CtrfStatus
    duration: int = 0
    start: int | None = None
    stop: int | None = None
    suite: tuple[str, ...] = Field(min_length=1)
    message: str | None = None
    rawStatus: str  # noqa: N815 - the format's name
    tags: tuple[str, ...] = ()
    type: str = "conformance"
    filePath: str  # noqa: N815 - the format's name
    retries: int | None = None
    retryAttempts: tuple[RetryAttempt, ...] | None = None  # noqa: N815 - the format's name
    flaky: bool | None = None


class Summary(Record):
    """Counts by status."""

    tests: int
    passed: int
    failed: int
    skipped: int
    pending: int
    other: int
    flaky: int
    suites: int
    start: int
    stop: int


class Tool(Record):
    """What made the results."""

    name: str = "sandbox"


class Results(Record):
    """The results of one run."""

    tool: Tool
    summary: Summary
    tests: tuple[Test, ...]


class Report(Record):
    """The file."""

    reportFormat: Literal["CTRF"] = "CTRF"  # noqa: N815 - the format's name
    specVersion: Literal["0.0.0"] = "0.0.0"  # noqa: N815 - the format's name
    reportId: str  # noqa: N815 - the format's name
    generatedBy: str = "sandbox"  # noqa: N815 - the format's name
    results: Results


@dataclass(frozen=True)
class CtrfPiece:
    """The tests of one cell, a line each, with how many there are of each status."""

    text: str
    counts: Counter[str]


def ctrf_piece(cell: CellResult) -> CtrfPiece:
    """Return the tests of a cell."""
    record, tries = cell.record, _attempts(cell)
    test = partial(
        Test,
        start=None if record is None else _ms(record.started_at),
        stop=None if record is None else _ms(record.completed_at),
        suite=split_id(cell.cell_id),
        filePath=f"cells/{cell.cell_id}",
    )
    return _piece([_test(test, cell, one, tries.get(one.check)) for one in cell.verdicts])


def stale_tests(run: RunOutcome) -> CtrfPiece:
    """Return the tests of the stale baseline entries."""
    return _piece([_stale(entry) for entry in run.stale])


def _piece(tests: Sequence[Test]) -> CtrfPiece:
    counts: Counter[str] = Counter(test.status for test in tests)
    counts["tests"] = len(tests)
    counts["flaky"] = sum(test.flaky is True for test in tests)
    text = ",\n".join(test.model_dump_json(exclude_none=True) for test in tests)
    return CtrfPiece(text, counts)


def ctrf_frame(
    run: RunOutcome, counts: Counter[str], *, suites: int, times: tuple[float, float]
) -> tuple[str, str]:
    """Return what stands before and after the tests.

    Args:
        run: the outcome.
        counts: sums over the pieces.
        suites: how many cells and other suites have tests.
        times: the run's start and end in seconds since the epoch.
    """
    report = Report(
        reportId=_id(f"report {run.run_id}"),
        results=Results(
            tool=Tool(),
            summary=Summary(
                tests=counts["tests"],
                passed=counts["passed"],
                failed=counts["failed"],
                skipped=counts["skipped"],
                pending=0,
                other=0,
                flaky=counts["flaky"],
                suites=suites,
                start=_ms(times[0]),
                stop=_ms(times[1]),
            ),
            tests=(),
        ),
    )
    head, _, _ = report.model_dump_json(indent=2, exclude_none=True).rpartition("[]")
    return f"{head}[\n", "\n]}}\n"


def _test(
    test: Callable[..., Test],
    cell: CellResult,
    verdict: Verdict,
    tries: Sequence[RetryAttempt] | None,
) -> Test:
    """Return the test of a verdict; ``test`` has what is the same for all of the cell."""
    return test(
        id=_id(f"{cell.cell_id} {verdict.check}"),
        name=verdict.check,
        status=_status(verdict),
        message=_message(verdict),
        rawStatus="known" if verdict.known is not None else verdict.status.value,
        tags=(verdict.tier.value, verdict.kind, verdict.group),
        retries=len(tries) - 1 if tries else _retries(cell, verdict),
        retryAttempts=tries,
        flaky=True if verdict.flaky is not None else None,
    )


def _retries(cell: CellResult, verdict: Verdict) -> int | None:
    """Return how often the engine failed before a cell that was not repeated ran."""
    if cell.record is None or verdict.flaky is None:
        return None
    return len(cell.record.earlier_attempts) or None


def _attempts(cell: CellResult) -> dict[str, list[RetryAttempt]]:
    """Return the executions of a repeated cell by check; a check is not in all where one broke."""
    found: dict[str, list[RetryAttempt]] = {}
    for number, attempt in enumerate(cell.attempts, start=1):
        for verdict in attempt.verdicts:
            one = RetryAttempt(attempt=number, status=_status(verdict), message=_message(verdict))
            found.setdefault(verdict.check, []).append(one)
    return found


def _status(verdict: Verdict) -> CtrfStatus:
    return "skipped" if verdict.known is not None else _STATUSES[verdict.status]


def _message(verdict: Verdict) -> str | None:
    if verdict.known is not None:
        return f"known: {verdict.known} ({verdict.reason})"
    return verdict.reason or None


def _stale(entry: StaleEntry) -> Test:
    near = f"; near miss: {entry.near}" if entry.near else ""
    return Test(
        id=_id(f"baseline {entry.cell} {entry.check}"),
        name=f"{entry.cell} {entry.check}",
        status="failed",
        suite=("baseline",),
        message=f"the failure is gone: {entry.reason}{near}",
        rawStatus="stale",
        filePath="baseline.toml",
    )


def _id(text: str) -> str:
    """Return the UUID of version 5 for a name, as ``uuid.uuid5`` does, which takes longer."""
    digest = bytearray(hashlib.sha1(_NAMESPACE + text.encode(), usedforsecurity=False).digest())
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    found = digest[:16].hex()
    return f"{found[:8]}-{found[8:12]}-{found[12:16]}-{found[16:20]}-{found[20:]}"


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
