"""The terminal report: a table of harness and image by scenario, the non-passes, the totals."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from itertools import islice

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from sandbox.evidence.results import CellState
from sandbox.report.gathered import Gathered
from sandbox.report.share import CellLine
from sandbox.report.tables import Matrix, Row, counts, matrix
from sandbox.report.words import Finding, foretold_lines, totals

_STYLES = {
    CellState.PASS: "green",
    CellState.KNOWN: "yellow",
    CellState.FLAKY: "magenta",
    CellState.FAIL: "bold red",
    CellState.ERROR: "bold magenta",
    CellState.REFUSED: "cyan",
}
_LABEL_STYLES = {"known": "yellow", "flaky": "magenta", "FAIL": "bold red", "error": "bold magenta"}
_FRAME = 3
"""Columns that a table cell takes beside its text."""
_LABEL = len("known (1)")


MOST_CELLS = 2_000
"""Cells that the table shows one by one; of more it counts the states."""
_MOST_FINDINGS = 200
"""Findings of a run with so many cells that are shown."""


def report(
    run: Gathered, *, width: int = 80, results: str | None = None, most: int = MOST_CELLS
) -> RenderableType:
    """Return what to print on a console of that width; ``results`` is the folder of the run.

    Letters say the same as the colours, so nothing is lost without them. Of more than ``most``
    cells the states are counted, and the first findings shown.
    """
    large = len(run.lines) > most
    parts: list[RenderableType] = [_numbers(run)] if large else [*_tables(run, width)]
    parts += _findings(run, _MOST_FINDINGS if large else len([*run.findings]))
    if run.lacks:
        parts.append(Text(""))
    for text in run.lacks:
        parts.append(Text(f"not guaranteed here: {text}", style="yellow", overflow="fold"))
    parts.append(Text(""))
    parts.append(Text(totals(run.outcome), style="bold"))
    parts += (Text(line, overflow="fold") for line in foretold_lines(run.outcome.foretold))
    if results is not None:
        parts.append(Text(f"results: {results}", overflow="fold"))
    return Group(*parts)


def render(
    run: Gathered, *, width: int = 80, results: str | None = None, most: int = MOST_CELLS
) -> str:
    """Return the report as plain text without colours, at most ``width`` columns wide."""
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None, force_terminal=False)
    console.print(report(run, width=width, results=results, most=most))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _numbers(run: Gathered) -> Table:
    table = Table()
    table.add_column("harness", overflow="fold")
    for name in ("images", "cells", *(state.value for state in CellState)):
        table.add_column(name, justify="right", overflow="fold")
    for one in counts(run.lines):
        numbers = (one.images, one.cells, *(one.states[state] for state in CellState))
        table.add_row(Text(one.harness), *map(str, numbers))
    return table


def _tables(run: Gathered, width: int) -> Iterator[Table]:
    found = matrix(run.lines)
    names = [_row_name(row) for row in found.rows]
    lines = [line for name in names for line in name.splitlines()]
    first = max(len(line) for line in ["harness image", *lines])
    for scenarios in _groups(found, width - first - _FRAME - 1):
        table = Table(show_lines=False, pad_edge=True)
        table.add_column("harness image", overflow="fold")
        for scenario in scenarios:
            table.add_column(_folded(scenario), overflow="fold", justify="center")
        for name, row in zip(names, found.rows, strict=True):
            table.add_row(Text(name), *(_cell(row.cells.get(one)) for one in scenarios))
        yield table


def _row_name(row: Row) -> str:
    first = f"{row.harness} {row.version}" if row.version else row.harness
    return f"{first}\n  {row.image}"


def _groups(found: Matrix, room: int) -> Iterator[Sequence[str]]:
    """Split the scenarios so that each table fits; at least one goes in each."""
    labels: dict[str, int] = {}
    for row in found.rows:
        for scenario, cell in row.cells.items():
            labels[scenario] = max(labels.get(scenario, 0), len(cell.label))
    group: list[str] = []
    used = 0
    for scenario in found.scenarios:
        need = max(labels[scenario], *map(len, _folded(scenario).splitlines())) + _FRAME
        if group and used + need > room:
            yield group
            group, used = [], 0
        group.append(scenario)
        used += need
    if group:
        yield group


def _folded(name: str) -> str:
    """Break a scenario's name at its underscores, so that its column is as narrow as a label."""
    lines = [""]
    for part in name.replace("_", "_\0").split("\0"):
        if lines[-1] and len(lines[-1]) + len(part) > _LABEL:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _cell(cell: CellLine | None) -> Text:
    if cell is None:
        return Text("-", style="dim")
    return Text(cell.label, style=_STYLES[cell.state])


def _findings(run: Gathered, most: int) -> Iterator[RenderableType]:
    for finding in islice(run.findings, most):
        yield Text("")
        yield _headline(finding)
        yield Text(f"  {finding.reason}", overflow="fold")
        if finding.verdict.known is not None:
            yield Text(f"  baseline: {finding.verdict.known}", style="yellow", overflow="fold")
    if run.findings.total > most:
        yield Text("")
        yield Text(f"... and {run.findings.total - most} more findings in results.json")
    for entry in run.outcome.stale:
        yield Text("")
        yield Text.assemble(("STALE", "bold red"), f" baseline entry {entry.cell} {entry.check}")
        yield Text(f"  its failure is gone; the entry says: {entry.reason}", overflow="fold")
        if entry.near is not None:
            yield Text(f"  near miss: {entry.near}", overflow="fold")


def _headline(finding: Finding) -> Text:
    return Text.assemble(
        (finding.label, _LABEL_STYLES[finding.label]),
        f" {finding.cell_id} {finding.verdict.check} ({finding.verdict.tier})",
    )
