"""The page of findings: what the baseline says, no more and no less."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import sandbox.conformance
from sandbox.evidence.baseline import KnownFailure, load_baseline
from sandbox.evidence.checks import CHECKS
from sandbox.evidence.verdict import CELL_RUN

DOCUMENT = Path(__file__).parents[2] / "docs" / "findings.md"
BASELINE = Path(sandbox.conformance.__file__).with_name("baseline.toml")


def table() -> list[str]:
    """The table of the page, from the baseline: one row for what one reason explains."""
    found: dict[tuple[str, str, str], list[KnownFailure]] = {}
    for entry in load_baseline(BASELINE, checks=CHECKS).known:
        if entry.check == CELL_RUN:
            continue  # an image that no harness can work in is no finding about a harness
        harness, image, _ = entry.cell.split("/")
        found.setdefault((harness, image, entry.reason), []).append(entry)
    return [
        "| harness | image | scenario | check | what the evidence shows |",
        "|---|---|---|---|---|",
        *(
            f"| {harness} | {'every' if image == '*' else image} | {_scenarios(entries)} "
            f"| {_listed(entry.check for entry in entries)} | {reason} |"
            for (harness, image, reason), entries in sorted(
                found.items(), key=lambda row: row[0][0]
            )
        ),
    ]


def _scenarios(entries: Iterable[KnownFailure]) -> str:
    return _listed(entry.cell.split("/")[2].replace("*", "\\*") for entry in entries)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def test_the_page_shows_every_finding_as_it_is() -> None:
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("|")]
    assert rows == table(), "put these rows into docs/findings.md:\n" + "\n".join(table())
