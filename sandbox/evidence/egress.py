"""Which names a harness and its tools asked for, by phase of the cell; nothing of it left.

Phases: ``install`` (until the seed is done), ``start`` (until the first model request), ``run``
(until the last one has its reply), ``exit``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from sandbox.evidence.folder import CellFiles
from sandbox.evidence.records import Record

Phase = Literal["install", "start", "run", "exit"]
Settings = Literal["ours", "defaults"]
PHASES: tuple[Phase, ...] = ("install", "start", "run", "exit")


class Lookups(Record):
    """How often one name was asked for in one cell, by phase."""

    name: str
    counts: dict[Phase, int]

    @property
    def total(self) -> int:
        """How often in all."""
        return sum(self.counts.values())


class CellEgress(Record):
    """What one cell asked for; ``names`` None: it could not be seen, or the cell did not run."""

    harness: str
    image: str
    settings: Settings
    names: tuple[Lookups, ...] | None
    reason: str | None = None


def cell_egress(files: CellFiles, settings: Settings) -> CellEgress:
    """Count a cell's look-ups by name and phase."""
    cell = files.cell
    reason = None if cell.refusal is None else cell.refusal.reason
    if files.egress is None and reason is None:
        reason = "this link does not log look-ups"
    counts: dict[str, Counter[Phase]] = {}
    for event in files.egress or ():
        counts.setdefault(event.name, Counter())[_phase(files, event.at)] += 1
    names = tuple(Lookups(name=name, counts=dict(counts[name])) for name in sorted(counts))
    return CellEgress(
        harness=cell.harness,
        image=cell.image,
        settings=settings,
        names=None if reason is not None else names,
        reason=reason,
    )


def _phase(files: CellFiles, at: float) -> Phase:
    cell = files.cell
    seeded = cell.started_at + sum(cell.phases.get(name, 0.0) for name in ("sandbox", "seed"))
    requests = files.exchanges or ()
    first = min((one.started_at for one in requests), default=None)
    last = max((one.completed_at for one in requests), default=None)
    if at < seeded:
        return "install"
    if first is None or at < first:
        return "start"
    return "run" if last is None or at <= last else "exit"


def markdown(cells: Sequence[CellEgress]) -> str:
    """Return one table: a row for each harness and name, ours beside the defaults."""
    lines = [
        "| harness | image | name | with our settings | with its defaults |",
        "|---|---|---|---|---|",
    ]
    for harness, image in dict.fromkeys((one.harness, one.image) for one in cells):
        mine = [one for one in cells if (one.harness, one.image) == (harness, image)]
        names = sorted({look.name for one in mine for look in one.names or ()})
        for name in names or [""]:
            told = (_told(mine, settings, name) for settings in ("ours", "defaults"))
            lines.append(f"| {harness} | {image} | {name or 'none'} | {' | '.join(told)} |")
    return "\n".join(lines) + "\n"


def _told(cells: Iterable[CellEgress], settings: str, name: str) -> str:
    one = next((cell for cell in cells if cell.settings == settings), None)
    if one is None or one.names is None:
        return f"not seen: {one.reason}" if one is not None else "not run"
    found = next((look for look in one.names if look.name == name), None)
    if found is None:
        return "-"
    parts = (f"{phase} {found.counts[phase]}" for phase in PHASES if phase in found.counts)
    return f"{found.total} ({', '.join(parts)})"
