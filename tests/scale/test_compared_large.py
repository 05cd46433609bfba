"""Large runs held against each other: of a cell that is the same on both sides nothing is kept."""

from __future__ import annotations

import datetime as dt
import gc
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sandbox.commands.comparing import pairs
from sandbox.commands.spread import CHUNK
from sandbox.conformance.compare import judged
from sandbox.evidence.baseline import Baseline
from sandbox.evidence.compare import Comparing, Comparison, Pair, Seen
from sandbox.evidence.judge import Judge, sources
from sandbox.evidence.results import CellResult
from tests.scale.synthetic import make_run, synthetic_plan

FEW = 32
TODAY = dt.date(2027, 1, 1)
JUDGE = Judge(baseline=Baseline(), today=TODAY)


def passing(folder: Path, cells: int) -> Path:
    plan = synthetic_plan(cells)
    make_run(folder, plan, plan, links=folder / "links", kind=lambda _place: "stopped")
    return folder


def compared(before: Path, after: Path, judge: Judge = JUDGE, processes: int = 1) -> Comparison:
    found = Comparing()
    for one in pairs(judge, sources(before), sources(after), processes=processes):
        found.add(one)
    return found.end("a", "b")


def pins_compared(old: Path, new: Path) -> object:
    return judged({"old": old, "new": new}, baseline=Baseline(), today=TODAY)


@dataclass(frozen=True, kw_only=True)
class Holding(Judge):
    """The defect: a judge that keeps what it judged."""

    held: list[CellResult] = field(default_factory=list)

    def cell(self, *args: Any, **named: Any) -> CellResult:
        result = super().cell(*args, **named)
        self.held.append(result)
        return result


def holding_compared(before: Path, after: Path) -> object:
    return compared(before, after, Holding(baseline=Baseline(), today=TODAY))


def peak(compare: Callable[[Path, Path], object], run: Path) -> int:
    """Return the most bytes that Python had at once while it compared a run with itself."""
    gc.collect()
    tracemalloc.start()
    try:
        compare(run, run)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("runs")
    found = passing(folder / "few", FEW), passing(folder / "many", 4 * FEW)
    for compare in (compared, pins_compared):  # what is made once and kept is no part of it
        for _ in range(2):
            compare(found[0], found[0])
    return found


@pytest.mark.parametrize(
    ("compare", "flat"), [(compared, True), (pins_compared, True), (holding_compared, False)]
)
def test_memory_hardly_grows_with_the_number_of_cells(
    compare: Callable[[Path, Path], object], flat: bool, runs: tuple[Path, Path]
) -> None:
    few, many = runs
    ratio = peak(compare, many) / peak(compare, few)
    assert (ratio < 2) is flat, f"{ratio:.2f} times the memory for four times the cells"


def test_several_processes_find_what_one_finds(tmp_path: Path) -> None:
    plan = synthetic_plan(2 * CHUNK + 10)
    for name, cells in (("a", plan[:-7]), ("b", plan[5:])):
        make_run(
            tmp_path / name,
            cells,
            tuple(reversed(cells)),
            links=tmp_path / "links",
            kind=lambda place, b=name == "b": "fails" if b and place % 40 == 0 else "stopped",
        )
    found = compared(tmp_path / "a", tmp_path / "b")
    assert (len(found.only_before), len(found.only_after), len(found.regressions)) == (5, 7, 4)
    assert compared(tmp_path / "a", tmp_path / "b", processes=2) == found


def test_pins_are_named_in_the_order_of_each_run_whatever_the_order_of_the_pairs() -> None:
    def seen(place: int, pin: str) -> Seen:
        return Seen(place, f"run-{place}", (pin, "1"), None)

    found = Comparing()
    found.add(Pair("one", seen(0, "x"), seen(7, "late")))
    found.add(Pair("two", seen(1, "y"), seen(3, "early")))
    found.add(Pair("three", None, seen(5, "early")))
    told = found.end(None, None)
    assert [one.name for one in told.pins] == ["x", "y", "early", "late"]
    assert (told.before, told.after) == ("run-0", "run-3")
