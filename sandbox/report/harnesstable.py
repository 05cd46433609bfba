"""Tables of ``summary.md``, one for each harness: checks as rows, scenarios as columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sandbox.evidence.checks import CHECKS
from sandbox.evidence.verdict import Tier
from sandbox.report.tables import Matrix, Row
from sandbox.report.words import CHECK_ORDER

_SIGNS = {"F": "**F**", "E": "**E**", "Y": "**Y**", "N": "-", ".": "·"}
LEGEND = "P pass, K known, Y flaky, F fail, E error, - not applicable"


def harness_tables(found: Matrix) -> Iterator[str]:
    """Yield a folded table for each harness.

    A field has one letter where all images agree, else one an image, in the order of the title.
    """
    rows: dict[str, list[Row]] = {}
    for row in found.rows:
        rows.setdefault(row.harness, []).append(row)
    for harness, same in rows.items():
        scenarios = [name for name in found.scenarios if any(name in row.cells for row in same)]
        yield "\n".join(_table(harness, same, scenarios)) + "\n"


def line(cells: Iterable[str]) -> str:
    """Return one line of a table."""
    return _row(escape(cell) for cell in cells)


def escape(text: str) -> str:
    """Keep foreign text from being read as markup: tables, emphasis, code and HTML."""
    flat = " ".join(text.split())
    for sign in "\\`*_[]|":
        flat = flat.replace(sign, f"\\{sign}")
    return flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _table(harness: str, rows: Sequence[Row], scenarios: Sequence[str]) -> Iterator[str]:
    images = ", ".join(row.image for row in rows)
    yield ""
    yield f"<details><summary>{escape(harness)} on {escape(images)}</summary>"
    yield ""
    yield line(["check", "tier", *scenarios])
    yield _row(["---", "---", *[":---:"] * len(scenarios)])
    for number, check in enumerate(CHECK_ORDER):
        fields = [[_letter(row, name, number) for row in rows] for name in scenarios]
        if any(letter != "." for field in fields for letter in field):
            yield _row([escape(check), _tier(check), *map(_field, fields)])
    yield ""
    yield f"{LEGEND}."
    yield ""
    yield "</details>"


def _letter(row: Row, scenario: str, number: int) -> str:
    cell = row.cells.get(scenario)
    return "." if cell is None else cell.letters[number]


def _tier(check: str) -> str:
    return CHECKS[check].tier.value if check in CHECKS else Tier.P0.value


def _field(letters: Sequence[str]) -> str:
    signs = [_SIGNS.get(letter, letter) for letter in letters]
    return signs[0] if len(set(signs)) == 1 else " ".join(signs)
