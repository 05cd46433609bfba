"""What one cell adds to the reports of its run: made of that cell alone, so in any process.

A run's reports are its cells' shares put together. A share holds finished pieces of the large files
and, for tables, one short line; nothing of a share that was added needs to stay in memory but that
line.
"""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.evidence.baseline import Baseline
from sandbox.evidence.costs import cost, cost_line
from sandbox.evidence.figures import CellFigures
from sandbox.evidence.foretold import Ended
from sandbox.evidence.gates import Counts, counted
from sandbox.evidence.results import CellResult, CellState, split_id
from sandbox.evidence.stale import Marks, marks
from sandbox.report.ctrf import CtrfPiece, ctrf_piece
from sandbox.report.jsonreport import cell_json
from sandbox.report.junit import JunitPiece, junit_piece
from sandbox.report.words import Finding, cell_label, findings, lacking, letters


@dataclass(frozen=True, slots=True)
class CellLine:
    """A cell in the tables of reports: about half a KiB of memory."""

    cell_id: str
    state: CellState
    label: str
    letters: str
    version: str
    seconds: float | None

    @property
    def path(self) -> tuple[str, str, str]:
        """Harness, image and scenario."""
        return split_id(self.cell_id)


@dataclass(frozen=True)
class CellShare:
    """The share of one cell.

    ``times`` are its start and end (None: not recorded), ``proves`` what its scenario proves,
    ``details`` what the page shows of it when it is opened, packed, ``cost`` its line of
    ``timings.json``; both are empty where there are none. ``lacks`` are the promises that did not
    hold where it ran. ``ended`` and ``figures`` have what each execution proves and what it used.
    """

    line: CellLine
    run_id: str | None
    times: tuple[float, float] | None
    proves: str | None
    counts: Counts
    marks: Marks
    findings: tuple[Finding, ...]
    results: str
    junit: JunitPiece
    ctrf: CtrfPiece
    details: str = ""
    cost: str = ""
    lacks: tuple[str, ...] = ()
    ended: tuple[Ended, ...] = ()
    figures: tuple[CellFigures, ...] = ()


def cell_share(
    result: CellResult, baseline: Baseline, *, details: str = "", peak_mib: float | None = None
) -> CellShare:
    """Return what a judged cell adds to the reports; ``peak_mib`` is its memory at the most."""
    record = result.record
    pin = record.pin if record is not None else None
    times = None if record is None else (record.started_at, record.completed_at)
    return CellShare(
        line=CellLine(
            cell_id=result.cell_id,
            state=result.state,
            label=cell_label(result),
            letters=letters(result),
            version="" if pin is None else pin.version,
            seconds=None if times is None else round(times[1] - times[0], 2),
        ),
        run_id=None if record is None else record.run_id,
        times=times,
        proves=None if record is None else record.expectation.proves,
        counts=counted(result.verdicts),
        marks=marks(baseline, result),
        findings=tuple(findings(result)),
        results=cell_json(result),
        junit=junit_piece(result),
        ctrf=ctrf_piece(result),
        details=details,
        cost="" if times is None else cost_line(result.cell_id, cost(*times, peak_mib)),
        lacks=lacking([record]),
    )
