"""Tables of ``summary.md``, one for each harness: checks as rows, scenarios as columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sandbox.evidence.checks import CHECKS
from sandbox.evidence.results import RunVerdicts
from sandbox.evidence.verdict import CELL_RUN, Status, Verdict
from sandbox.report.words import Matrix, matrix

_SIGNS = {
    Status.PASS: "P",
    Status.FAIL: "**F**",
    Status.ERROR: "**E**",
    Status.NOT_APPLICABLE: "-",
}
LEGEND = "P pass, K known, Y flaky, F fail, E error, - not applicable"


def harness_tables(run: RunVerdicts) -> Iterator[str]:
    """Yield a folded table for each harness.

    A field has one letter where all images agree, else one an image, in the order of the title.
    """
    found = matrix(run)
    for harness in dict.fromkeys(harness for harness, _ in found.rows):
        images = [image for name, image in found.rows if name == harness]
        yield "\n".join(_table(found, harness, images)) + "\n"


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


def _table(found: Matrix, harness: str, images: Sequence[str]) -> Iterator[str]:
    verdicts = {
        (scenario, image, verdict.check): verdict
        for (name, image, scenario), cell in found.cells.items()
        if name == harness
        for verdict in cell.verdicts
    }
    scenarios = [s for s in found.scenarios if any(key[0] == s for key in verdicts)]
    yield ""
    yield f"<details><summary>{escape(harness)} on {escape(', '.join(images))}</summary>"
    yield ""
    yield line(["check", "tier", *scenarios])
    yield _row(["---", "---", *[":---:"] * len(scenarios)])
    for check in (CELL_RUN, *CHECKS):
        rows = [[verdicts.get((s, image, check)) for image in images] for s in scenarios]
        seen = next((v for row in rows for v in row if v is not None), None)
        if seen is not None:
            yield _row([escape(check), seen.tier.value, *map(_field, rows)])
    yield ""
    yield f"{LEGEND}."
    yield ""
    yield "</details>"


def _field(verdicts: Sequence[Verdict | None]) -> str:
    signs = [_sign(verdict) for verdict in verdicts]
    return signs[0] if len(set(signs)) == 1 else " ".join(signs)


def _sign(verdict: Verdict | None) -> str:
    if verdict is None:
        return "·"
    if verdict.known is not None:
        return "K"
    return "**Y**" if verdict.flaky is not None else _SIGNS[verdict.status]
