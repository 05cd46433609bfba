"""``summary.md``: overview, findings, a table for each harness, fit for a step summary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sandbox.evidence.results import CellState
from sandbox.report.gathered import Gathered
from sandbox.report.harnesstable import escape, harness_tables, line
from sandbox.report.share import CellLine
from sandbox.report.tables import MOST_CELLS, Matrix, counts, matrix
from sandbox.report.words import Finding, foretold_lines, totals

STEP_SUMMARY_LIMIT = 1024 * 1024
"""Bytes that GitHub takes for the summary of one step."""

_SIGNS = {
    CellState.PASS: "✅",
    CellState.KNOWN: "🟡",
    CellState.FLAKY: "🎲",
    CellState.FAIL: "❌",
    CellState.ERROR: "❓",
    CellState.REFUSED: "⛔",
}


def summary(run: Gathered, *, limit: int = STEP_SUMMARY_LIMIT, most: int = MOST_CELLS) -> str:
    """Return the summary in at most ``limit`` bytes.

    What does not fit is counted, not shown: first tables of harnesses, then findings. Of more than
    ``most`` cells there is no table of each, but one of their numbers.
    """
    found = matrix(run.lines) if len(run.lines) <= most else None
    head = "\n".join(_head(run, found)) + "\n"
    blocks = (_finding(finding) for finding in run.findings)
    stale = [
        _stale_line(entry.cell, entry.check, entry.reason, entry.near)
        for entry in run.outcome.stale
    ]
    text = _within(head, stale, blocks, run.findings.total, limit)
    return _with_tables(text, [] if found is None else [*harness_tables(found)], limit)


def with_figures(text: str, table: str, *, limit: int = STEP_SUMMARY_LIMIT) -> str:
    """Add the table of figures to a summary, where it fits."""
    if not table:
        return text
    more = (
        f"\n<details><summary>figures: the most that a cell had</summary>\n\n{table}\n</details>\n"
    )
    fits = len(text.encode()) + len(more.encode()) <= limit
    return text + more if fits else text


def _head(run: Gathered, found: Matrix | None) -> Iterator[str]:
    outcome = run.outcome
    profile = f", profile {outcome.profile}" if outcome.profile else ""
    yield f"## Conformance run {escape(outcome.run_id)}{escape(profile)}"
    yield ""
    yield f"{escape(totals(outcome))}; exit code {outcome.exit_code}."
    for told in foretold_lines(outcome.foretold):
        yield ""
        yield f"{escape(told)}."
    yield ""
    yield from _numbers(run) if found is None else _cells(run, found)
    for text in run.lacks:
        yield ""
        yield f"Not guaranteed here: {escape(text)}."
    if outcome.stale or run.findings.total:
        yield ""
        yield "### Findings"


def _cells(run: Gathered, found: Matrix) -> Iterator[str]:
    yield line(["harness", "version", "image", "gate", *found.scenarios])
    yield line(["---"] * 4 + [":---:"] * len(found.scenarios))
    gates = {(gate.harness, gate.image): gate.reached for gate in run.outcome.gates}
    for row in found.rows:
        cells = [_cell(row.cells.get(scenario)) for scenario in found.scenarios]
        reached = gates.get((row.harness, row.image))
        name = reached.value if reached is not None else "none"
        yield line([row.harness, row.version, row.image, name, *cells])


def _numbers(run: Gathered) -> Iterator[str]:
    yield f"{len(run.lines)} cells are too many to show each; all are in results.json."
    yield ""
    yield line(["harness", "images", "cells", *(state.value for state in CellState)])
    yield line(["---", *["---:"] * (2 + len(CellState))])
    for one in counts(run.lines):
        states = (str(one.states[state]) for state in CellState)
        yield line([one.harness, str(one.images), str(one.cells), *states])


def _cell(cell: CellLine | None) -> str:
    return "" if cell is None else f"{_SIGNS[cell.state]} {cell.label}"


def _finding(finding: Finding) -> str:
    verdict = finding.verdict
    text = (
        f"\n- **{finding.label}** `{finding.cell_id}` `{verdict.check}` "
        f"({verdict.tier}, {verdict.group}): {escape(finding.reason)}\n"
    )
    if verdict.known is None:
        return text
    link = f" {escape(verdict.link)}" if verdict.link else ""
    return f"{text}  - baseline: {escape(verdict.known)}{link}\n"


def _stale_line(cell: str, check: str, reason: str, near: str | None) -> str:
    more = f"; near miss: {escape(near)}" if near else ""
    return (
        f"\n- **STALE** baseline entry `{cell}` `{check}`: its failure is gone "
        f"(the entry says: {escape(reason)}){more}\n"
    )


def _within(head: str, stale: list[str], blocks: Iterable[str], total: int, limit: int) -> str:
    reserve, shown = 200, 0
    text, size = [head], len(head.encode())
    for block in (*stale, *blocks):
        size += len(block.encode())
        if size > limit - reserve:
            break
        text.append(block)
        shown += 1
    if shown < total + len(stale):
        text.append(f"\n... and {total + len(stale) - shown} more findings in results.json\n")
    return "".join(text)


def _with_tables(text: str, tables: list[str], limit: int) -> str:
    """Add the tables that fit; say how many do not, where that fits."""
    reserve, size, left_out = 200, len(text.encode()), 0
    parts = [text]
    for table in tables:
        if size + len(table.encode()) > limit - reserve:
            left_out += 1
        else:
            parts.append(table)
            size += len(table.encode())
    note = f"\n... and {left_out} more tables of harnesses in report.html\n"
    if left_out and size + len(note) <= limit:
        parts.append(note)
    return "".join(parts)
