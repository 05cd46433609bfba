"""Two judged runs side by side: pins, images, verdicts and times that differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from sandbox.evidence.cell import CellRecord
from sandbox.evidence.records import Record
from sandbox.evidence.results import CellResult, CellState, RunVerdicts
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


def compare(before: RunVerdicts, after: RunVerdicts) -> Comparison:
    """Compare two runs that were judged with the same checks and baseline.

    Timings are the cells whose time changed by at least a quarter and one second, the largest
    ratios first; the totals are over the cells that both have.
    """
    old = {cell.cell_id: cell for cell in before.cells}
    new = {cell.cell_id: cell for cell in after.cells}
    both = [(cell, new[name]) for name, cell in old.items() if name in new]
    times = [timing for pair in both if (timing := _timing(*pair)) is not None]
    return Comparison(
        before=before.run_id,
        after=after.run_id,
        pins=_changed(_pins(before), _pins(after)),
        images=_changed(_images(before), _images(after)),
        only_before=tuple(name for name in old if name not in new),
        only_after=tuple(name for name in new if name not in old),
        verdicts=tuple(change for pair in both for change in _verdicts(*pair)),
        timings=tuple(sorted(filter(_is_notable, times), key=lambda timing: -timing.ratio)),
        total_before_s=sum(timing.before_s for timing in times),
        total_after_s=sum(timing.after_s for timing in times),
    )


def _records(run: RunVerdicts) -> Iterator[CellRecord]:
    return (cell.record for cell in run.cells if cell.record is not None)


def _pins(run: RunVerdicts) -> dict[str, str]:
    return _joined(
        (f"{cell.pin.harness} {cell.pin.platform}", f"{cell.pin.version} {cell.pin.bundle_sha256}")
        for cell in _records(run)
        if cell.pin is not None
    )


def _images(run: RunVerdicts) -> dict[str, str]:
    return _joined(
        (cell.image_record.name, cell.image_record.image_id)
        for cell in _records(run)
        if cell.image_record is not None
    )


def _joined(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the values by name; of several different ones, all."""
    values: dict[str, set[str]] = {}
    for name, value in pairs:
        values.setdefault(name, set()).add(value)
    return {name: ", ".join(sorted(found)) for name, found in values.items()}


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
