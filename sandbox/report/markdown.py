"""``summary.md``: overview, findings, a table for each harness, fit for a step summary."""

from __future__ import annotations

from collections.abc import Iterator

from sandbox.evidence.results import CellResult, CellState, RunVerdicts
from sandbox.report.harnesstable import escape, harness_tables, line
from sandbox.report.words import Finding, cell_label, findings, matrix, totals, version_of

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


def summary(run: RunVerdicts, *, limit: int = STEP_SUMMARY_LIMIT) -> str:
    """Return the summary in at most ``limit`` bytes.

    What does not fit is counted, not shown: first tables of harnesses, then findings.
    """
    head = "\n".join(_head(run)) + "\n"
    blocks = [_finding(finding) for finding in findings(run)]
    stale = [_stale_line(entry.cell, entry.check, entry.reason, entry.near) for entry in run.stale]
    text = _within(head, [*stale, *blocks], limit)
    return _with_tables(text, [*harness_tables(run)], limit)


def _head(run: RunVerdicts) -> Iterator[str]:
    profile = f", profile {run.profile}" if run.profile else ""
    yield f"## Conformance run {escape(run.run_id)}{escape(profile)}"
    yield ""
    yield f"{escape(totals(run))}; exit code {run.exit_code}."
    yield ""
    found = matrix(run)
    yield line(["harness", "version", "image", "gate", *found.scenarios])
    yield line(["---"] * 4 + [":---:"] * len(found.scenarios))
    gates = {(gate.harness, gate.image): gate.reached for gate in run.gates}
    for harness, image in found.rows:
        cells = [found.cells.get((harness, image, scenario)) for scenario in found.scenarios]
        reached = gates.get((harness, image))
        name = reached.value if reached is not None else "none"
        yield line([harness, version_of(run, harness, image), image, name, *map(_cell, cells)])
    if run.stale or any(findings(run)):
        yield ""
        yield "### Findings"


def _cell(cell: CellResult | None) -> str:
    return "" if cell is None else f"{_SIGNS[cell.state]} {cell_label(cell)}"


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


def _within(head: str, blocks: list[str], limit: int) -> str:
    reserve = 200
    text, size = [head], len(head.encode())
    for number, block in enumerate(blocks):
        size += len(block.encode())
        if size > limit - reserve:
            text.append(f"\n... and {len(blocks) - number} more findings in results.json\n")
            break
        text.append(block)
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
