"""The terminal report: a table of harness and image by scenario, the non-passes, the totals."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from sandbox.evidence.results import CellResult, CellState, RunVerdicts
from sandbox.report.words import (
    Finding,
    Matrix,
    cell_label,
    findings,
    matrix,
    totals,
    version_of,
)

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


def report(run: RunVerdicts, *, width: int = 80, results: str | None = None) -> RenderableType:
    """Return what to print on a console of that width; ``results`` is the folder of the run.

    Letters say the same as the colours, so nothing is lost without them.
    """
    parts: list[RenderableType] = [*_tables(run, width)]
    parts += _findings(run)
    parts.append(Text(""))
    parts.append(Text(totals(run), style="bold"))
    if results is not None:
        parts.append(Text(f"results: {results}", overflow="fold"))
    return Group(*parts)


def render(run: RunVerdicts, *, width: int = 80, results: str | None = None) -> str:
    """Return the report as plain text without colours, at most ``width`` columns wide."""
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None, force_terminal=False)
    console.print(report(run, width=width, results=results))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _tables(run: RunVerdicts, width: int) -> Iterator[Table]:
    found = matrix(run)
    names = {row: _row_name(run, *row) for row in found.rows}
    lines = [line for name in names.values() for line in name.splitlines()]
    first = max(len(line) for line in ["harness image", *lines])
    for scenarios in _groups(found, width - first - _FRAME - 1):
        table = Table(show_lines=False, pad_edge=True)
        table.add_column("harness image", overflow="fold")
        for scenario in scenarios:
            table.add_column(_folded(scenario), overflow="fold", justify="center")
        for row in found.rows:
            cells = [found.cells.get((*row, scenario)) for scenario in scenarios]
            table.add_row(Text(names[row]), *map(_cell, cells))
        yield table


def _row_name(run: RunVerdicts, harness: str, image: str) -> str:
    version = version_of(run, harness, image)
    return f"{harness} {version}\n  {image}" if version else f"{harness}\n  {image}"


def _groups(found: Matrix, room: int) -> Iterator[Sequence[str]]:
    """Split the scenarios so that each table fits; at least one goes in each."""
    group: list[str] = []
    used = 0
    for scenario in found.scenarios:
        labels = (cell_label(c) for key, c in found.cells.items() if key[2] == scenario)
        need = max(map(len, [*_folded(scenario).splitlines(), *labels])) + _FRAME
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


def _cell(cell: CellResult | None) -> Text:
    if cell is None:
        return Text("-", style="dim")
    return Text(cell_label(cell), style=_STYLES[cell.state])


def _findings(run: RunVerdicts) -> Iterator[RenderableType]:
    for finding in findings(run):
        yield Text("")
        yield _headline(finding)
        yield Text(f"  {finding.reason}", overflow="fold")
        if finding.verdict.known is not None:
            yield Text(f"  baseline: {finding.verdict.known}", style="yellow", overflow="fold")
    for entry in run.stale:
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
