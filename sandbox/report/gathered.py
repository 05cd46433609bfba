"""A run as its tables need it, gathered from the shares of its cells one by one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sandbox.evidence.baseline import Baseline
from sandbox.evidence.cell import RunRecord
from sandbox.evidence.foretold import Comparison
from sandbox.evidence.judge import outcome
from sandbox.evidence.preflight import PreflightReport
from sandbox.evidence.results import RunOutcome, Tally
from sandbox.evidence.stale import Staleness
from sandbox.evidence.verdict import Status, Tier
from sandbox.report.share import CellLine, CellShare
from sandbox.report.words import Finding

KEPT_BYTES = 1024 * 1024
"""Text of findings that is kept of each kind: no report shows more. The rest is counted."""
_KEPT_URGENT = 10


@dataclass(frozen=True)
class Findings:
    """What reports list: the first ones of each kind in the order of the cells, and how many."""

    unknown: tuple[Finding, ...]
    known: tuple[Finding, ...]
    retried: tuple[Finding, ...]
    urgent: tuple[Finding, ...]
    total: int
    total_urgent: int

    def __iter__(self) -> Iterator[Finding]:
        """Yield what nobody knew of, then what the baseline has, then what was retried."""
        yield from self.unknown
        yield from self.known
        yield from self.retried


@dataclass(frozen=True)
class Gathered:
    """A judged run: its outcome, a line for each cell, what scenarios prove, its findings.

    ``lacks`` are the promises about sandboxes that did not hold where its cells ran.
    """

    outcome: RunOutcome
    lines: tuple[CellLine, ...]
    proves: dict[str, str]
    findings: Findings
    lacks: tuple[str, ...] = ()


class Gathering:
    """Takes shares in the order of the cells; keeps a line of each and a bounded rest."""

    def __init__(self, baseline: Baseline, preflight: PreflightReport | None = None) -> None:
        self._tally = Tally()
        self._comparison = None if preflight is None else Comparison(preflight)
        self._stale = Staleness(baseline)
        self._lines: list[CellLine] = []
        self._same: dict[str, str] = {}
        self._proves: dict[str, str] = {}
        self._lacks: dict[str, None] = {}
        self._unknown, self._known, self._retried = _Kept(), _Kept(), _Kept()
        self._urgent: list[Finding] = []
        self._total_urgent = 0
        self._run_id: str | None = None

    def add(self, share: CellShare) -> None:
        """Take the share of the next cell."""
        line = share.line
        self._lines.append(
            replace(
                line,
                label=self._shared(line.label),
                letters=self._shared(line.letters),
                version=self._shared(line.version),
            )
        )
        self._tally.add(line.cell_id, line.state, share.counts)
        self._stale.add(line.cell_id, share.marks)
        self._run_id = self._run_id or share.run_id
        if share.proves is not None:
            self._proves.setdefault(line.path[2], share.proves)
        if self._comparison is not None:
            for ended in share.ended:
                self._comparison.add(ended)
        self._lacks.update(dict.fromkeys(share.lacks))
        for finding in share.findings:
            self._find(finding)

    def end(self, record: RunRecord | None, today: dt.date, gate: Tier) -> Gathered:
        """Return the run, when all cells were added."""
        stale = self._stale.entries(today)
        foretold = None if self._comparison is None else self._comparison.end()
        kinds = (self._unknown, self._known, self._retried)
        return Gathered(
            outcome=outcome(record, self._run_id, self._tally, stale, gate, foretold=foretold),
            lines=tuple(self._lines),
            proves=self._proves,
            findings=Findings(
                unknown=tuple(self._unknown.found),
                known=tuple(self._known.found),
                retried=tuple(self._retried.found),
                urgent=tuple(self._urgent),
                total=sum(kind.total for kind in kinds),
                total_urgent=self._total_urgent,
            ),
            lacks=tuple(self._lacks),
        )

    def _shared(self, text: str) -> str:
        """Return the one copy of a text that many cells have."""
        return self._same.setdefault(text, text)

    def _find(self, finding: Finding) -> None:
        verdict = finding.verdict
        if verdict.status is Status.PASS:
            self._retried.add(finding)
        elif verdict.known is not None:
            self._known.add(finding)
        else:
            self._unknown.add(finding)
            if verdict.tier is Tier.P0:
                self._total_urgent += 1
                if len(self._urgent) < _KEPT_URGENT:
                    self._urgent.append(finding)


class _Kept:
    """The first findings of a kind, up to an amount of text."""

    def __init__(self) -> None:
        self.found: list[Finding] = []
        self.total = 0
        self._bytes = 0

    def add(self, finding: Finding) -> None:
        self.total += 1
        if self._bytes < KEPT_BYTES:
            self.found.append(finding)
            self._bytes += (
                len(finding.cell_id) + len(finding.reason) + len(finding.verdict.known or "")
            )
