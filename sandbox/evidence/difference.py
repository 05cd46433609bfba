"""Two runs of the same cells held against each other: what differs in verdicts and in figures.

Verdicts decide; figures are for people: a loaded machine changes durations, so they never do.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from sandbox.evidence.egress import destination
from sandbox.evidence.folder import CellFiles
from sandbox.evidence.records import Record
from sandbox.evidence.results import CellResult, CellState
from sandbox.evidence.verdict import Status, Verdict

_ID = re.compile(r"[0-9a-f]{12,}|[0-9]{4,}")
_SHOWN = 20

Side = Literal["old", "new"]
What = Literal["footprint", "egress", "model paths"]


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

    what: What
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


@dataclass(frozen=True)
class Judged:
    """One side of a cell: its place in that side's run, its result, and its facts if readable."""

    place: int
    result: CellResult
    files: CellFiles | None


class Differing:
    """Takes the cells of both runs in order of their ids; keeps what differs and a few numbers.

    Of a cell that is the same on both sides its figures stay, for the medians.
    """

    def __init__(self) -> None:
        self._cells = 0
        self._versions: dict[str, tuple[str, str]] = {}
        self._states: dict[Side, Counter[CellState]] = {"old": Counter(), "new": Counter()}
        self._verdicts: list[VerdictChange] = []
        self._unknown: list[str] = []
        self._failing: list[tuple[int, str]] = []
        self._figures = {name: (array("d"), array("d")) for name, _, _ in _FIGURES}
        self._seen: dict[Side, dict[What, set[str]]] = {
            "old": {what: set() for what in _SEEN},
            "new": {what: set() for what in _SEEN},
        }

    def add(self, cell_id: str, old: Judged | None, new: Judged | None) -> None:
        """Take the next cell; None: that side does not have it."""
        self._cells += 1
        was, now = (None if side is None else side.result for side in (old, new))
        self._versions[cell_id.rpartition("/")[0]] = (_version(was), _version(now))
        self._verdicts += _changes(cell_id, was, now)
        if _is_unknown(was) or _is_unknown(now):
            self._unknown.append(cell_id)
        if new is not None and new.result.state is CellState.FAIL:
            self._failing.append((new.place, cell_id))
        self._see("old", old)
        self._see("new", new)
        if old and new and old.files and new.files:
            self._measure(old.files, new.files)

    def end(self) -> Difference:
        """Return the difference, when all cells were added."""
        return Difference(
            versions=self._versions,
            cells=self._cells,
            states={
                side: {state.value: found[state] for state in CellState}
                for side, found in self._states.items()
            },
            verdicts=tuple(self._verdicts),
            unknown=tuple(self._unknown),
            failing=tuple(name for _, name in sorted(self._failing)),
            figures=tuple(
                Figure(name=name, unit=unit, old=round(median(was), 3), new=round(median(now), 3))
                for name, unit, _ in _FIGURES
                for was, now in [self._figures[name]]
                if was
            ),
            names=tuple(_names(self._seen["old"], self._seen["new"])),
        )

    def _see(self, side: Side, cell: Judged | None) -> None:
        if cell is None:
            return
        self._states[side][cell.result.state] += 1
        if cell.files is not None:
            for what, read in _SEEN.items():
                self._seen[side][what].update(read(cell.files))

    def _measure(self, old: CellFiles, new: CellFiles) -> None:
        for name, _, read in _FIGURES:
            was, now = read(old), read(new)
            if was is not None and now is not None:
                for values, value in zip(self._figures[name], (was, now), strict=True):
                    values.append(value)


def _is_unknown(cell: CellResult | None) -> bool:
    return cell is None or cell.state is CellState.ERROR


def _version(cell: CellResult | None) -> str:
    pin = cell.record.pin if cell and cell.record else None
    return pin.version if pin else "none"


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


def _names(old: Mapping[What, set[str]], new: Mapping[What, set[str]]) -> Iterable[NamesChange]:
    for what, was in old.items():
        now = new[what]
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


_SEEN: dict[What, Callable[[CellFiles], Iterable[str]]] = {
    "footprint": _paths,
    "egress": lambda files: (_ID.sub("*", destination(one)) for one in files.egress or ()),
    "model paths": lambda files: (
        f"{one.method} {_ID.sub('*', one.path)}" for one in files.exchanges or ()
    ),
}
