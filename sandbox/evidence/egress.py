"""What a harness and its tools tried to reach, counted by phase of the cell; nothing of it left.

Phases: ``install`` (until the seed is done), ``start`` (until the first model request), ``run``
(until the last one has its reply), ``exit``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import get_args

from sandbox.evidence.exchanges import Exchange
from sandbox.evidence.folder import CellFiles
from sandbox.evidence.records import EgressEvent, EgressPhase, EgressSeen, Record, Settings
from sandbox.evidence.rows import FailureRow

PHASES: tuple[EgressPhase, ...] = get_args(EgressPhase)


class Moments(Record):
    """When a cell's phases changed, in seconds since the epoch; None: they did not.

    ``seeded``: the agent was set up. ``asked``: the first model request came. ``told``: the last
    one had its reply. ``over``: the agent's turn had ended.
    """

    seeded: float | None
    asked: float | None
    told: float | None
    over: float | None = None


def moments_of(
    exchanges: Iterable[Exchange], *, seeded: float | None, over: float | None
) -> Moments:
    """Return the moments of a cell with these exchanges; a verifier's own do not count."""
    asked = [one for one in exchanges if one.caller == "agent"]
    return Moments(
        seeded=seeded,
        asked=min((one.started_at for one in asked), default=None),
        told=max((one.completed_at for one in asked), default=None),
        over=over,
    )


def phase_at(at: float, moments: Moments) -> EgressPhase:
    """Tell in which phase something happened."""
    if moments.seeded is None or at <= moments.seeded:
        return "install"
    if moments.asked is None or at <= moments.asked:
        return "start" if moments.over is None or at <= moments.over else "exit"
    return "run" if moments.told is None or at <= moments.told else "exit"


def counted(events: Iterable[EgressEvent], moments: Moments) -> tuple[EgressEvent, ...]:
    """Give each event its phase, and make those that differ in time only one, with their number.

    They come in the order in which the first of each happened.
    """
    found: dict[EgressEvent, EgressEvent] = {}
    for event in sorted(events, key=lambda one: one.at):
        phase = event.phase or phase_at(event.at, moments)
        same = event.model_copy(update={"at": 0.0, "last_at": None, "count": 1, "phase": phase})
        before = found.get(same)
        found[same] = event.model_copy(
            update={
                "at": event.at if before is None else before.at,
                "last_at": event.last_at or event.at,
                "count": event.count + (0 if before is None else before.count),
                "phase": phase,
            }
        )
    return tuple(found.values())


class Tried(Record):
    """How often one thing was tried in one cell, by phase; ``how``: DNS, TLS, HTTP, TCP, UDP ..."""

    name: str
    port: int | None = None
    how: str
    counts: dict[EgressPhase, int]

    @property
    def total(self) -> int:
        """How often in all."""
        return sum(self.counts.values())


class CellEgress(Record):
    """What one cell tried; ``tried`` None: it could not be seen, or the cell did not run.

    ``seen``: look-ups alone, or connections too; None: nothing, or an early version did not say.
    ``failed`` names how the episode failed: what came later in a whole one was not tried.
    """

    harness: str
    image: str
    version: str | None = None
    settings: Settings
    seen: EgressSeen | None = None
    tried: tuple[Tried, ...] | None
    reason: str | None = None
    failed: str | None = None


def cell_egress(files: CellFiles) -> CellEgress:
    """Count what a cell tried, by name, port, way and phase."""
    cell = files.cell
    reason = None if cell.refusal is None else cell.refusal.reason
    if files.egress is None and reason is None:
        reason = "this link does not log look-ups"
    counts: dict[tuple[str, int | None, str], Counter[EgressPhase]] = {}
    for event in counted(files.egress or (), _moments(files)):
        key = (event.name.lower(), event.port, way(event))
        counts.setdefault(key, Counter())[event.phase or "install"] += event.count
    tried = tuple(
        Tried(name=name, port=port, how=how, counts=dict(counts[name, port, how]))
        for name, port, how in sorted(counts, key=lambda key: (key[0], key[1] or 0, key[2]))
    )
    return CellEgress(
        harness=cell.harness,
        image=cell.image,
        version=None if cell.pin is None else cell.pin.version,
        settings=cell.settings,
        seen=cell.egress_seen,
        tried=None if reason is not None else tried,
        reason=reason,
        failed=files.row.failure_kind if isinstance(files.row, FailureRow) else None,
    )


def _moments(files: CellFiles) -> Moments:
    """Return the moments as far as the durations tell them, for lines of early versions."""
    cell = files.cell
    seeded = cell.started_at + sum(cell.phases.get(name, 0.0) for name in ("resources", "seed"))
    return moments_of(files.exchanges or (), seeded=seeded, over=None)


def way(event: EgressEvent) -> str:
    """Name in capitals how something was tried; early versions know look-ups alone."""
    if event.kind == "unrouted":
        return "no route"
    return (event.protocol or event.kind).upper().replace("_", " ")


def destination(event: EgressEvent) -> str:
    """Name what was to be reached, with the port where there is one."""
    if event.kind == "unrouted":
        return "a bare address"
    host = f"[{event.name}]" if ":" in event.name else event.name
    return host if event.port is None else f"{host}:{event.port}"
