"""``summary.md``: one overview table and the findings, fit for a GitHub step summary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sandbox.evidence.results import CellResult, CellState, RunVerdicts
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
    """Return the summary; findings that would pass ``limit`` bytes are counted, not shown."""
    head = "\n".join(_head(run)) + "\n"
    blocks = [_finding(finding) for finding in findings(run)]
    stale = [_stale_line(entry.cell, entry.check, entry.reason, entry.near) for entry in run.stale]
    return _within(head, [*stale, *blocks], limit)


def _head(run: RunVerdicts) -> Iterator[str]:
    profile = f", profile {run.profile}" if run.profile else ""
    yield f"## Conformance run {_escape(run.run_id)}{_escape(profile)}"
    yield ""
    yield f"{_escape(totals(run))}; exit code {run.exit_code}."
    yield ""
    found = matrix(run)
    yield _line(["harness", "version", "image", *found.scenarios])
    yield _line(["---"] * 3 + [":---:"] * len(found.scenarios))
    for harness, image in found.rows:
        cells = [found.cells.get((harness, image, scenario)) for scenario in found.scenarios]
        yield _line([harness, version_of(run, harness, image), image, *map(_cell, cells)])
    if run.stale or any(cell.non_passes for cell in run.cells):
        yield ""
        yield "### Findings"


def _cell(cell: CellResult | None) -> str:
    return "" if cell is None else f"{_SIGNS[cell.state]} {cell_label(cell)}"


def _finding(finding: Finding) -> str:
    verdict = finding.verdict
    text = (
        f"\n- **{finding.label}** `{finding.cell_id}` `{verdict.check}` "
        f"({verdict.tier}, {verdict.group}): {_escape(verdict.reason)}\n"
    )
    return text + (f"  - baseline: {_escape(verdict.known)}\n" if verdict.known else "")


def _stale_line(cell: str, check: str, reason: str, near: str | None) -> str:
    more = f"; near miss: {_escape(near)}" if near else ""
    return (
        f"\n- **STALE** baseline entry `{cell}` `{check}`: its failure is gone "
        f"(the entry says: {_escape(reason)}){more}\n"
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


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(_escape(cell) for cell in cells) + " |"


def _escape(text: str) -> str:
    """Keep foreign text from being read as markup: tables, emphasis, code and HTML."""
    flat = " ".join(text.split())
    for sign in "\\`*_[]|":
        flat = flat.replace(sign, f"\\{sign}")
    return flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
