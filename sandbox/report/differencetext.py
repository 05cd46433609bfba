"""A difference of two runs as lines for people."""

from __future__ import annotations

from collections.abc import Iterator

from sandbox.evidence.difference import Difference, Figure
from sandbox.evidence.verdict import Status


def difference_lines(found: Difference) -> Iterator[str]:
    """Yield the lines: versions, differences per check, figures, names."""
    for place, (old, new) in found.versions.items():
        yield f"{place}: {old} -> {new}"
    yield ""
    for change in found.verdicts:
        moved = f"{_status(change.old)} -> {_status(change.new)}"
        yield f"{change.cell_id} {change.check} ({change.tier}): {moved}"
        if change.reason:
            yield f"  {change.reason}"
    yield f"verdicts that differ: {len(found.verdicts)}, in {found.cells} cells"
    for side, states in found.states.items():
        counted = ", ".join(f"{number} {state}" for state, number in states.items() if number)
        yield f"{side} cells: {counted}"
    for name in found.failing:
        yield f"fails, and no baseline entry says why: {name}"
    for name in found.unknown:
        yield f"could not find out: {name}"
    yield ""
    yield from (_figure(figure) for figure in found.figures)
    for names in found.names:
        yield from (f"{names.what}: only before: {name}" for name in names.gone)
        yield from (f"{names.what}: only now: {name}" for name in names.added)


def _status(status: Status | None) -> str:
    return "not judged" if status is None else status.value


def _figure(figure: Figure) -> str:
    unit = f" {figure.unit}" if figure.unit else ""
    ratio = f" (x{figure.new / figure.old:.2f})" if figure.old > 0 else ""
    return f"{figure.name:<22} {figure.old:g}{unit} -> {figure.new:g}{unit}{ratio}"
