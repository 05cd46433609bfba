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
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files as resources
from itertools import islice
from typing import Any

from sandbox.evidence.checks import CHECKS
from sandbox.evidence.gates import Gate
from sandbox.evidence.results import CellState, RunOutcome
from sandbox.evidence.verdict import CELL_RUN, Tier
from sandbox.report.gathered import Gathered
from sandbox.report.share import CellLine
from sandbox.report.words import totals

PAGE_LIMIT = 5_000_000
"""Bytes that a page may have."""
_CELL_LIMIT = 120_000
CELL_LEAST = 1_500
"""Bytes below which details of a cell say too little; of more cells only failed ones have some."""
_INDEX_PER_CELL = 300
_FRAME = 60_000
MOST_SHOWN = 8_000
"""Cells in the table of a page; of a run with more it shows those that do not pass."""
_MOST_GATES = 3_000


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
    gates = _MOST_GATES * _INDEX_PER_CELL if cells > MOST_SHOWN else 0
    return (limit - _FRAME) * 95 // 100 - min(cells, MOST_SHOWN) * _INDEX_PER_CELL - gates


def page(run: Gathered, details: Mapping[str, str]) -> str:
    """Return the text of the page; ``details`` are packed details by cell id.

    Of more than ``MOST_SHOWN`` cells it shows the first ones that do not pass, and says so.
    """
    style, script = _part("page.css"), _part("page.js")
    shown = shown_cells(run.lines)
    values = {
        "TITLE": html.escape(_title(run.outcome)),
        "TOTALS": html.escape(f"{totals(run.outcome)}; exit code {run.outcome.exit_code}"),
        "NOTE": html.escape(_note(run, shown)),
        "STYLE_HASH": _digest(style),
        "SCRIPT_HASH": _digest(script),
        "STYLE": style,
        "INDEX": script_json(_index(run, shown)),
        "DETAILS": "\n".join(
            f'<script type="text/plain" id="d{number}">{details.get(line.cell_id, "")}</script>'
            for number, line in enumerate(shown)
        ),
        "SCRIPT": script,
    }
    frame = _part("page.html")
    text = []
    for number, piece in enumerate(frame.split("@")):
        # odd pieces are the names between two signs
        text.append(piece if number % 2 == 0 else values[piece])
    return "".join(text)


def shown_cells(lines: Sequence[CellLine]) -> Sequence[CellLine]:
    """Return the cells in the table of the page."""
    if len(lines) <= MOST_SHOWN:
        return lines
    return list(islice((one for one in lines if one.state is not CellState.PASS), MOST_SHOWN))


def _note(run: Gathered, shown: Sequence[CellLine]) -> str:
    """Say what the page leaves out; nothing when it has all."""
    cells, gates = len(run.lines), len(run.outcome.gates)
    if len(shown) == cells:
        return ""
    passed = run.outcome.summary.cells[CellState.PASS.value]
    open_left = cells - passed - len(shown)
    more = (
        f" and the first of those that do not: {open_left} more are left out" if open_left else ""
    )
    text = (
        f"The run has {cells} cells, too many for one page. The table leaves out the {passed} that "
        f"pass{more}. results.json has all of them, and sandbox show CELL tells one's story."
    )
    if gates > _MOST_GATES:
        text += f" Of {gates} gates {_MOST_GATES} are here, those that do not hold first."
    return text


def script_json(value: Any) -> str:
    """Return JSON that may stand in a script element: nothing in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text.encode("utf-8", "replace").decode()


def _title(run: RunOutcome) -> str:
    profile = f", profile {run.profile}" if run.profile else ""
    return f"Conformance run {run.run_id}{profile}"


@cache
def _part(name: str) -> str:
    return resources("sandbox.report").joinpath("page", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _index(run: Gathered, shown: Sequence[CellLine]) -> dict[str, Any]:
    checks = [*_run_check(), *({**_check(c.id, c.tier, c.group, c.why)} for c in CHECKS.values())]
    return {
        "run_id": run.outcome.run_id,
        "checks": checks,
        "proves": run.proves,
        "cells": [
            [
                *(one.cell_id, one.path, one.state.value, one.label),
                *(one.letters, one.version, one.seconds),
            ]
            for one in shown
        ],
        "gates": [gate.model_dump(mode="json") for gate in _gates(run.outcome.gates)],
        "stale": [entry.model_dump(mode="json") for entry in run.outcome.stale],
    }


def _gates(gates: Sequence[Gate]) -> Sequence[Gate]:
    if len(gates) <= _MOST_GATES:
        return gates
    return sorted(gates, key=lambda gate: gate.reached is Tier.P2)[:_MOST_GATES]


def _run_check() -> list[dict[str, str]]:
    return [_check(CELL_RUN, Tier.P0, "run", "a cell that was not run says nothing")]


def _check(name: str, tier: Tier, group: str, why: str) -> dict[str, str]:
    return {"id": name, "tier": tier.value, "group": group, "why": why}
