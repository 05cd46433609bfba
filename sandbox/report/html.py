"""``report.html``: the whole run as one page that works from a file, without a network.

The page holds an index (JSON) and, for each cell, its details (``sandbox.report.details``), which
the browser unpacks when the cell is opened, so that a page of many cells opens at once. Texts of
harnesses are hostile: in the file they are base64 or JSON without ``<``, in the document they are
text nodes only, and a content security policy allows no script but the page's own.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files as resources
from typing import Any

from sandbox.evidence.checks import CHECKS
from sandbox.evidence.results import CellResult, RunVerdicts, split_id
from sandbox.evidence.verdict import CELL_RUN, Status, Tier, Verdict
from sandbox.report.words import cell_label, totals

PAGE_LIMIT = 5_000_000
"""Bytes that a page may have."""
_CELL_LIMIT = 120_000
CELL_LEAST = 1_500
"""Bytes below which details of a cell say too little; of more cells only failed ones have some."""
_INDEX_PER_CELL = 300
_FRAME = 60_000

_LETTERS = {
    Status.PASS: "P",
    Status.FAIL: "F",
    Status.ERROR: "E",
    Status.NOT_APPLICABLE: "N",
}


def budget(cells: int, *, limit: int = PAGE_LIMIT) -> int:
    """Return how many bytes the details of one cell may take in a page of that many cells.

    0 says that there are too many cells for details of all of them.
    """
    share = _room(cells, limit) // max(1, cells)
    return min(_CELL_LIMIT, share) if share >= CELL_LEAST else 0


def most_detailed(cells: int, *, limit: int = PAGE_LIMIT) -> int:
    """Return how many cells of that many may have details of ``CELL_LEAST`` bytes."""
    return max(0, _room(cells, limit)) // CELL_LEAST


def _room(cells: int, limit: int) -> int:
    return (limit - _FRAME) * 95 // 100 - cells * _INDEX_PER_CELL


def page(run: RunVerdicts, details: Iterable[str]) -> str:
    """Return the text of the page; ``details`` are the packed details in the order of the cells."""
    style, script = _part("page.css"), _part("page.js")
    values = {
        "TITLE": html.escape(_title(run)),
        "TOTALS": html.escape(f"{totals(run)}; exit code {run.exit_code}"),
        "STYLE_HASH": _digest(style),
        "SCRIPT_HASH": _digest(script),
        "STYLE": style,
        "INDEX": script_json(_index(run)),
        "DETAILS": "\n".join(
            f'<script type="text/plain" id="d{number}">{packed}</script>'
            for number, packed in enumerate(details)
        ),
        "SCRIPT": script,
    }
    frame = _part("page.html")
    text = []
    for number, piece in enumerate(frame.split("@")):
        # odd pieces are the names between two signs
        text.append(piece if number % 2 == 0 else values[piece])
    return "".join(text)


def script_json(value: Any) -> str:
    """Return JSON that may stand in a script element: nothing in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text.encode("utf-8", "replace").decode()


def _title(run: RunVerdicts) -> str:
    profile = f", profile {run.profile}" if run.profile else ""
    return f"Conformance run {run.run_id}{profile}"


@cache
def _part(name: str) -> str:
    return resources("sandbox.report").joinpath("page", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _index(run: RunVerdicts) -> dict[str, Any]:
    checks = [*_run_check(), *({**_check(c.id, c.tier, c.group, c.why)} for c in CHECKS.values())]
    order = [check["id"] for check in checks]
    return {
        "run_id": run.run_id,
        "checks": checks,
        "proves": _proves(run.cells),
        "cells": [_cell(cell, order) for cell in run.cells],
        "gates": [gate.model_dump(mode="json") for gate in run.gates],
        "stale": [entry.model_dump(mode="json") for entry in run.stale],
    }


def _run_check() -> list[dict[str, str]]:
    return [_check(CELL_RUN, Tier.P0, "run", "a cell that was not run says nothing")]


def _check(name: str, tier: Tier, group: str, why: str) -> dict[str, str]:
    return {"id": name, "tier": tier.value, "group": group, "why": why}


def _proves(cells: Sequence[CellResult]) -> dict[str, str]:
    return {
        cell.record.scenario: cell.record.expectation.proves
        for cell in cells
        if cell.record is not None
    }


def _cell(cell: CellResult, order: Sequence[str]) -> list[Any]:
    record = cell.record
    letters = {verdict.check: _letter(verdict) for verdict in cell.verdicts}
    return [
        cell.cell_id,
        split_id(cell.cell_id),
        cell.state.value,
        cell_label(cell),
        "".join(letters.get(name, ".") for name in order),
        record.pin.version if record is not None and record.pin is not None else "",
        round(record.completed_at - record.started_at, 2) if record is not None else None,
    ]


def _letter(verdict: Verdict) -> str:
    if verdict.known is not None:
        return "K"
    return "Y" if verdict.flaky is not None else _LETTERS[verdict.status]
