"""Two judged runs side by side: pins, images, verdicts and times that differ.

Cells are held against each other one by one; what stays of a pair is what differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from sandbox.evidence.cell import CellRecord
from sandbox.evidence.records import Record
from sandbox.evidence.results import CellResult, CellState
from sandbox.evidence.verdict import Status, Verdict

_NOTABLE_S = 1.0
_NOTABLE_RATIO = 1.25


class Changed(Record):
    """A circumstance with two values; None: that run does not have it."""

    name: str
    before: str | None
    after: str | None


class VerdictChange(Record):
    """A verdict that is another one now; ``regression``: it is worse, and nobody knew of it."""

    cell_id: str
    check: str
    before: str
    after: str
    reason: str
    regression: bool


class Timing(Record):
    """Seconds of one cell in both runs; ``ratio`` is after over before."""

    cell_id: str
    before_s: float
    after_s: float
    ratio: float


class Comparison(Record):
    """What differs between two runs; cells that only one of them has are named, not compared."""

    schema_version: Literal["1.0"] = "1.0"
    before: str
    after: str
    pins: tuple[Changed, ...]
    images: tuple[Changed, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    verdicts: tuple[VerdictChange, ...]
    timings: tuple[Timing, ...]
    total_before_s: float
    total_after_s: float

    @property
    def regressions(self) -> tuple[VerdictChange, ...]:
        """The verdicts that became worse."""
        return tuple(change for change in self.verdicts if change.regression)


@dataclass(frozen=True)
class Placed:
    """A judged cell of one run, and its place in the order of that run."""

    place: int
    result: CellResult


@dataclass(frozen=True)
class Seen:
    """What counts for its whole run of one cell; ``pin`` and ``image`` are name and value."""

    place: int
    run_id: str | None
    pin: tuple[str, str] | None
    image: tuple[str, str] | None


@dataclass(frozen=True)
class Pair:
    """A cell that both runs have, with what differs in it, or one that a single run has."""

    cell_id: str
    before: Seen | None
    after: Seen | None
    verdicts: tuple[VerdictChange, ...] = ()
    timing: Timing | None = None


def pair(cell_id: str, before: Placed | None, after: Placed | None) -> Pair:
    """Hold a cell of two runs, judged with the same checks and baseline, against each other."""
    if before is None or after is None:
        return Pair(cell_id, _seen(before), _seen(after))
    return Pair(
        cell_id,
        _seen(before),
        _seen(after),
        verdicts=tuple(_verdicts(before.result, after.result)),
        timing=_timing(before.result, after.result),
    )


class Comparing:
    """Takes pairs in the order of the run before, then what is only after; keeps what differs."""

    def __init__(self) -> None:
        self._before, self._after = _Side(), _Side()
        self._only_before: list[str] = []
        self._only_after: list[str] = []
        self._verdicts: list[VerdictChange] = []
        self._timings: list[Timing] = []
        self._total_before_s = self._total_after_s = 0.0

    def add(self, one: Pair) -> None:
        """Take the next pair."""
        if one.before is not None:
            self._before.add(one.before)
        if one.after is not None:
            self._after.add(one.after)
        if one.after is None:
            self._only_before.append(one.cell_id)
        elif one.before is None:
            self._only_after.append(one.cell_id)
        self._verdicts += one.verdicts
        if one.timing is not None:
            self._total_before_s += one.timing.before_s
            self._total_after_s += one.timing.after_s
            if _is_notable(one.timing):
                self._timings.append(one.timing)

    def end(self, before: str | None, after: str | None) -> Comparison:
        """Return the comparison; the arguments are the ids of the runs, where they have records.

        Timings are the cells whose time changed by at least a quarter and one second, the largest
        ratios first; the totals are over the cells that both have.
        """
        return Comparison(
            before=before or self._before.run_id,
            after=after or self._after.run_id,
            pins=_changed(self._before.pins.told(), self._after.pins.told()),
            images=_changed(self._before.images.told(), self._after.images.told()),
            only_before=tuple(self._only_before),
            only_after=tuple(self._only_after),
            verdicts=tuple(self._verdicts),
            timings=tuple(sorted(self._timings, key=lambda timing: -timing.ratio)),
            total_before_s=self._total_before_s,
            total_after_s=self._total_after_s,
        )


class _Side:
    """What is said of one run as a whole."""

    def __init__(self) -> None:
        self.pins, self.images = _Values(), _Values()
        self._runs = _Values()

    def add(self, one: Seen) -> None:
        self.pins.add(one.place, one.pin)
        self.images.add(one.place, one.image)
        self._runs.add(one.place, None if one.run_id is None else (one.run_id, ""))

    @property
    def run_id(self) -> str:
        """The id that its first cell names."""
        return next(iter(self._runs.told()), "unknown")


class _Values:
    """Values by name, whatever the order in which cells come; of several different ones all."""

    def __init__(self) -> None:
        self._values: dict[str, set[str]] = {}
        self._first: dict[str, int] = {}

    def add(self, place: int, found: tuple[str, str] | None) -> None:
        if found is not None:
            name, value = found
            self._values.setdefault(name, set()).add(value)
            self._first[name] = min(place, self._first.get(name, place))

    def told(self) -> dict[str, str]:
        """Return the values in the order of the cells that name them first."""
        return {
            name: ", ".join(sorted(self._values[name]))
            for name in sorted(self._values, key=self._first.__getitem__)
        }


def _seen(placed: Placed | None) -> Seen | None:
    if placed is None:
        return None
    record = placed.result.record
    if record is None:
        return Seen(placed.place, None, None, None)
    return Seen(placed.place, record.run_id, _pin(record), _image(record))


def _pin(cell: CellRecord) -> tuple[str, str] | None:
    pin = cell.pin
    if pin is None:
        return None
    return f"{pin.harness} {pin.platform}", f"{pin.version} {pin.bundle_sha256}"


def _image(cell: CellRecord) -> tuple[str, str] | None:
    image = cell.image_record
    return None if image is None else (image.name, image.image_id)


def _changed(before: dict[str, str], after: dict[str, str]) -> tuple[Changed, ...]:
    return tuple(
        Changed(name=name, before=before.get(name), after=after.get(name))
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    )


def _verdicts(before: CellResult, after: CellResult) -> Iterator[VerdictChange]:
    if CellState.REFUSED in (before.state, after.state) or None in (before.record, after.record):
        if before.state is not after.state:
            yield _state_change(before, after)
        return
    old = {verdict.check: verdict for verdict in before.verdicts}
    for verdict in after.verdicts:
        then = old.get(verdict.check)
        word, was = _word(verdict), "none" if then is None else _word(then)
        if word != was:
            yield VerdictChange(
                cell_id=after.cell_id,
                check=verdict.check,
                before=was,
                after=word,
                reason=verdict.reason,
                regression=_is_open(verdict) and (then is None or not _is_open(then)),
            )


def _state_change(before: CellResult, after: CellResult) -> VerdictChange:
    reason = "; ".join(verdict.reason for verdict in after.unknown_failures)
    return VerdictChange(
        cell_id=after.cell_id,
        check="cell_run",
        before=before.state.value,
        after=after.state.value,
        reason=reason,
        regression=bool(after.unknown_failures) and not before.unknown_failures,
    )


def _word(verdict: Verdict) -> str:
    if verdict.known is not None:
        return "known"
    return "flaky" if verdict.flaky is not None else verdict.status.value


def _is_open(verdict: Verdict) -> bool:
    return verdict.known is None and verdict.status in (Status.FAIL, Status.ERROR)


def _timing(before: CellResult, after: CellResult) -> Timing | None:
    if before.record is None or after.record is None:
        return None
    then = before.record.completed_at - before.record.started_at
    now = after.record.completed_at - after.record.started_at
    if then <= 0:
        return None
    return Timing(cell_id=after.cell_id, before_s=then, after_s=now, ratio=now / then)


def _is_notable(timing: Timing) -> bool:
    apart = abs(timing.after_s - timing.before_s) >= _NOTABLE_S
    return apart and not 1 / _NOTABLE_RATIO < timing.ratio < _NOTABLE_RATIO
