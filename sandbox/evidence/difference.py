"""Two runs of the same cells held against each other: what differs in verdicts and in figures.

Verdicts decide; figures are for people: a loaded machine changes durations, so they never do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Literal

from sandbox.evidence.egress import destination
from sandbox.evidence.folder import CellFiles
from sandbox.evidence.records import Record
from sandbox.evidence.results import CellResult, CellState, RunVerdicts
from sandbox.evidence.verdict import Status, Verdict

_ID = re.compile(r"[0-9a-f]{12,}|[0-9]{4,}")
_SHOWN = 20

Side = Literal["old", "new"]


class VerdictChange(Record):
    """A check whose status is another one; None: the check was not judged on that side.

    ``reason`` is that of the side which does not pass.
    """

    cell_id: str
    check: str
    tier: str
    old: Status | None
    new: Status | None
    reason: str


class Figure(Record):
    """The median over the cells that have the figure on both sides."""

    name: str
    unit: str
    old: float
    new: float


class NamesChange(Record):
    """What is seen on one side only, anywhere in the run: paths written, names asked for."""

    what: Literal["footprint", "egress", "model paths"]
    gone: tuple[str, ...] = ()
    added: tuple[str, ...] = ()


class Difference(Record):
    """All that differs between an old and a new run.

    ``versions`` is harness and image to the versions that were installed, old and new.
    ``states`` counts the cells of each side by state. ``unknown`` are cells that could not be
    judged on one side; ``failing`` those of the new side with failures that no baseline explains,
    new or not: cells that fail on both sides compare little.
    """

    versions: dict[str, tuple[str, str]]
    cells: int
    states: dict[Side, dict[str, int]]
    verdicts: tuple[VerdictChange, ...]
    unknown: tuple[str, ...]
    failing: tuple[str, ...]
    figures: tuple[Figure, ...]
    names: tuple[NamesChange, ...]


def difference(
    old: RunVerdicts,
    new: RunVerdicts,
    files: Mapping[Side, Mapping[str, CellFiles]],
) -> Difference:
    """Compare two judged runs.

    Args:
        old: the run of what is pinned.
        new: the run of what may be pinned.
        files: the facts of each side's cells, by cell id.
    """
    before = {cell.cell_id: cell for cell in old.cells}
    after = {cell.cell_id: cell for cell in new.cells}
    ids = sorted(before.keys() | after.keys())
    pairs = [(name, before.get(name), after.get(name)) for name in ids]
    return Difference(
        versions=_versions(pairs),
        cells=len(ids),
        states={"old": old.summary.cells, "new": new.summary.cells},
        verdicts=tuple(change for pair in pairs for change in _changes(*pair)),
        unknown=tuple(name for name, *sides in pairs if any(map(_is_unknown, sides))),
        failing=tuple(cell.cell_id for cell in new.cells if cell.state is CellState.FAIL),
        figures=tuple(_figures(files["old"], files["new"])),
        names=tuple(_names(files["old"].values(), files["new"].values())),
    )


def _is_unknown(cell: CellResult | None) -> bool:
    return cell is None or cell.state is CellState.ERROR


def _versions(
    pairs: Iterable[tuple[str, CellResult | None, CellResult | None]],
) -> dict[str, tuple[str, str]]:
    found = {}
    for name, *sides in pairs:
        place = name.rpartition("/")[0]
        pins = [cell.record.pin if cell and cell.record else None for cell in sides]
        said = [pin.version if pin else "none" for pin in pins]
        found[place] = (said[0], said[1])
    return found


def _changes(
    cell_id: str, old: CellResult | None, new: CellResult | None
) -> Iterable[VerdictChange]:
    before, after = _by_check(old), _by_check(new)
    for check in sorted(before.keys() | after.keys()):
        was, now = before.get(check), after.get(check)
        known = now or was
        assert known is not None
        if (was and was.status) != (now and now.status):
            yield VerdictChange(
                cell_id=cell_id,
                check=check,
                tier=known.tier.value,
                old=was.status if was else None,
                new=now.status if now else None,
                reason=_reason(was, now),
            )


def _by_check(cell: CellResult | None) -> dict[str, Verdict]:
    return {verdict.check: verdict for verdict in cell.verdicts} if cell else {}


def _reason(was: Verdict | None, now: Verdict | None) -> str:
    for verdict in (now, was):
        if verdict and verdict.status is not Status.PASS and verdict.reason:
            return verdict.reason
    return ""


def _until_first_request(files: CellFiles) -> float | None:
    """Seconds from the harness's start to its first request, by the host's clock."""
    if not files.exchanges:
        return None
    passed = 0.0
    for phase, seconds in files.cell.phases.items():
        if phase == "activate":
            first = min(one.started_at for one in files.exchanges)
            return max(0.0, first - files.cell.started_at - passed)
        passed += seconds
    return None


def _memory(files: CellFiles) -> float | None:
    use = files.witness.resources if files.witness else None
    return use.peak_memory_mib if use else None


def _cpu(files: CellFiles) -> float | None:
    use = files.witness.resources if files.witness else None
    return use.cpu_time_s if use else None


def _tried(files: CellFiles) -> float | None:
    return None if files.egress is None else float(sum(event.count for event in files.egress))


_FIGURES: tuple[tuple[str, str, Callable[[CellFiles], float | None]], ...] = (
    ("install", "s", lambda files: files.install.duration_s if files.install else None),
    ("start to first request", "s", _until_first_request),
    ("whole turn", "s", lambda files: files.cell.phases.get("activate")),
    ("CPU time", "s", _cpu),
    ("peak memory", "MiB", _memory),
    ("model requests", "", lambda files: _length(files.exchanges)),
    ("files changed", "", lambda files: _length(files.footprint)),
    ("names and addresses tried", "", _tried),
)


def _length(found: Sequence[object] | None) -> float | None:
    return None if found is None else float(len(found))


def _figures(old: Mapping[str, CellFiles], new: Mapping[str, CellFiles]) -> Iterable[Figure]:
    for name, unit, read in _FIGURES:
        pairs = [
            (was, now)
            for cell_id in old.keys() & new.keys()
            if (was := read(old[cell_id])) is not None and (now := read(new[cell_id])) is not None
        ]
        if pairs:
            before, after = (median(values) for values in zip(*pairs, strict=True))
            yield Figure(name=name, unit=unit, old=round(before, 3), new=round(after, 3))


def _names(old: Iterable[CellFiles], new: Iterable[CellFiles]) -> Iterable[NamesChange]:
    before, after = tuple(old), tuple(new)
    for what, read in _SEEN.items():
        was = {name for files in before for name in read(files)}
        now = {name for files in after for name in read(files)}
        if was != now:
            yield NamesChange(
                what=what,
                gone=tuple(sorted(was - now)[:_SHOWN]),
                added=tuple(sorted(now - was)[:_SHOWN]),
            )


def _paths(files: CellFiles) -> Iterable[str]:
    """Paths with what differs from run to run left out: ids, process ids, times."""
    own = files.cell.session_dir
    for change in files.footprint or ():
        path = change.path.replace(own, "SESSION") if own else change.path
        yield f"{change.change} {_ID.sub('*', path)}"


_SEEN: dict[Literal["footprint", "egress", "model paths"], Callable[[CellFiles], Iterable[str]]] = {
    "footprint": _paths,
    "egress": lambda files: (_ID.sub("*", destination(one)) for one in files.egress or ()),
    "model paths": lambda files: (
        f"{one.method} {_ID.sub('*', one.path)}" for one in files.exchanges or ()
    ),
}
