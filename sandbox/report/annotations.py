"""GitHub annotations: one ``::error`` line for each P0 failure that nobody knew of.

Format: GitHub's workflow commands, ``::error title=...::message``, in which ``%``, CR and LF of a
message, and also ``:`` and ``,`` of a property, are written as percent codes. A step shows ten
annotations of a kind, so the tenth line counts the rest.
"""

from __future__ import annotations

from collections.abc import Iterator

from sandbox.report.cut import cut
from sandbox.report.gathered import Gathered

SHOWN = 10
"""Annotations of one kind that GitHub shows for a step."""
_LONGEST = 1000


def error_lines(run: Gathered, *, most: int = SHOWN) -> tuple[str, ...]:
    """Return the lines to print, at most ``most``."""
    total = run.findings.total_urgent + len(run.outcome.stale)
    lines = [*_failures(run), *_stale(run)]
    if total <= most:
        return tuple(lines)
    rest = total - (most - 1)
    return (*lines[: most - 1], _error("conformance", f"{rest} more failures, see summary.md"))


def _failures(run: Gathered) -> Iterator[str]:
    for finding in run.findings.urgent:
        verdict = finding.verdict
        yield _error(f"{finding.cell_id} {verdict.check} ({verdict.tier})", finding.reason)


def _stale(run: Gathered) -> Iterator[str]:
    for entry in run.outcome.stale:
        yield _error("stale baseline entry", f"{entry.cell} {entry.check}: its failure is gone")


def _error(title: str, message: str) -> str:
    name = _coded(title).replace(":", "%3A").replace(",", "%2C")
    return f"::error title={name}::{_coded(cut(message, _LONGEST))}"


def _coded(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
