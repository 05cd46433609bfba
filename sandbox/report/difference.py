"""The text of ``sandbox diff``: what two runs differ in, the worst first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sandbox.evidence.compare import Changed, Comparison, VerdictChange
from sandbox.report.cut import cut, harmless

_SHOWN = 20


def difference(found: Comparison) -> str:
    """Return the comparison as plain text."""
    return "\n".join(map(harmless, _lines(found))) + "\n"


def _lines(found: Comparison) -> Iterator[str]:
    yield f"before: {found.before}"
    yield f"after:  {found.after}"
    yield from _section("pins", [_changed(one) for one in found.pins])
    yield from _section("images", [_changed(one) for one in found.images])
    yield from _section("cells only before", found.only_before)
    yield from _section("cells only after", found.only_after)
    yield from _section("worse", [_verdict(one) for one in found.regressions])
    rest = [_verdict(one) for one in found.verdicts if not one.regression]
    yield from _section("other verdicts that changed", rest)
    times = [
        f"{one.cell_id}: {one.before_s:.1f} s -> {one.after_s:.1f} s (x{one.ratio:.2f})"
        for one in found.timings
    ]
    yield from _section("times", times)
    yield ""
    yield (
        f"{len(found.regressions)} worse, {len(rest)} other verdicts changed; cells in both took "
        f"{found.total_before_s:.1f} s, now {found.total_after_s:.1f} s"
    )


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    if not lines:
        return
    yield ""
    yield f"{title}:"
    yield from (f"  {line}" for line in lines[:_SHOWN])
    if len(lines) > _SHOWN:
        yield f"  ... and {len(lines) - _SHOWN} more (--json has all)"


def _changed(one: Changed) -> str:
    return f"{one.name}: {one.before or 'none'} -> {one.after or 'none'}"


def _verdict(one: VerdictChange) -> str:
    reason = f": {cut(one.reason, 500)}" if one.reason else ""
    return f"{one.cell_id} {one.check}: {one.before} -> {one.after}{reason}"
