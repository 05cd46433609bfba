"""Large runs by counts of operations: nothing is read twice, held for all cells, or squared.

Small numbers stand for large ones: what is asserted does not depend on time.
"""

from __future__ import annotations

import datetime as dt
import gc
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sandbox.commands.judging import Work, shares
from sandbox.commands.spread import CHUNK
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.queue import Queue
from sandbox.conformance.room import Room
from sandbox.conformance.shard import Shard, sharded
from sandbox.evidence.baseline import Baseline
from sandbox.evidence.gates import counted
from sandbox.evidence.judge import Judge, Place, Sources, outcome, sources
from sandbox.evidence.results import CellState, Tally
from sandbox.evidence.verdict import Status, Tier, Verdict
from sandbox.report import markdown, terminal
from sandbox.report.files import RunReports
from sandbox.report.gathered import KEPT_BYTES, Findings, Gathered, Gathering
from sandbox.report.html import MOST_SHOWN, PAGE_LIMIT, page
from sandbox.report.share import CellLine, CellShare
from sandbox.report.words import CHECK_ORDER
from tests.scale.synthetic import make_run, synthetic_plan

TODAY = dt.date(2027, 1, 1)


def run_of(folder: Path, cells: int, attempts: int = 1) -> Path:
    plan = synthetic_plan(cells)
    make_run(folder / "run", plan, plan, links=folder / "links", attempts=attempts)
    return folder / "run"


def work_of(found: Sources) -> Work:
    judge = Judge(baseline=Baseline(), today=TODAY)
    return Work(place=found.place, judge=judge, write=False)


def told(found: Sources, processes: int = 1) -> Iterator[CellShare]:
    return shares(work_of(found), found, wants_details=lambda: True, processes=processes)


class Counted(type(Path())):  # type: ignore[misc]
    """A path that counts what is read below it."""

    reads: ClassVar[Counter[str]] = Counter()

    def read_bytes(self) -> bytes:
        type(self).reads[str(self)] += 1
        data: bytes = super().read_bytes()
        return data


@pytest.mark.parametrize("attempts", [1, 2])
def test_no_file_of_a_cell_is_read_twice(tmp_path: Path, attempts: int) -> None:
    per_cell = []
    for cells in (30, 60):
        run = run_of(tmp_path / str(cells), cells, attempts)
        found = sources(run)
        place = Place(tuple(Counted(path) for path in found.place.attempts), single=False)
        Counted.reads.clear()
        list(told(replace(found, place=place)))
        assert set(Counted.reads.values()) == {1}
        per_cell.append(Counted.reads.total() / cells)
    assert per_cell[0] == pytest.approx(per_cell[1], rel=0.1)


def test_shares_are_let_go_when_they_were_added(tmp_path: Path) -> None:
    found = sources(run_of(tmp_path, 200))
    seen: list[weakref.ref[CellShare]] = []
    most = 0
    with RunReports(200, Baseline()) as reports:
        for share in told(found):
            seen.append(weakref.ref(share))
            reports.add(share)
            most = max(most, sum(one() is not None for one in seen))
        reports.write(reports.end(found.record, today=TODAY, gate=Tier.P2), tmp_path)
    del share
    gc.collect()
    assert most <= CHUNK + 1
    assert not [one for one in seen if one() is not None]


def test_several_processes_say_what_one_says(tmp_path: Path) -> None:
    found = sources(run_of(tmp_path, 2 * CHUNK + 10))
    assert list(told(found, processes=2)) == list(told(found))


def test_a_run_has_the_kinds_of_cells_that_runs_have(tmp_path: Path) -> None:
    states = Counter(share.line.state.value for share in told(sources(run_of(tmp_path, 100))))
    assert states == {"pass": 90, "fail": 2, "error": 4, "refused": 2, "flaky": 2}


@dataclass
class Asked:
    """Estimates that count how often they are asked."""

    times: int = 0

    def seconds(self, cell: CellSpec) -> float:
        self.times += 1
        return len(cell.scenario)

    def peak_mib(self, cell: CellSpec) -> float:
        self.times += 1
        return 100.0 + 50.0 * len(cell.scenario)


def test_planning_asks_for_each_cell_a_bounded_number_of_times() -> None:
    plan = synthetic_plan(2_000)
    asked = Asked()
    assert sharded(plan, Shard(number=3, count=16), seconds=asked.seconds)
    assert asked.times == len(plan)
    asked, jobs = Asked(), 8
    known: Any = asked
    queue = Queue(plan, known, jobs=jobs, room=Room(4_000.0, lambda: None))
    running: list[CellSpec] = []
    while (cell := queue.next(running)) or running:
        running = [*running, cell] if cell is not None else running[1:]
    assert asked.times <= len(plan) * (2 * jobs + 64)


def line(number: int, state: CellState) -> CellLine:
    name = f"harness-{number % 10}/image-{number // 500}/scenario-{number // 10 % 50}"
    return CellLine(name, state, state.value, "P" * len(CHECK_ORDER), "1.2.3", 3.25)


def large(cells: int, failing: int) -> Gathered:
    lines = tuple(line(n, CellState.FAIL if n < failing else CellState.PASS) for n in range(cells))
    bad = Verdict(check="row_schema", tier=Tier.P0, kind="schema", group="TE-1", status=Status.FAIL)
    counts = Tally()
    for one in lines:
        verdicts = [bad] if one.state is CellState.FAIL else []
        counts.add(one.cell_id, one.state, counted(verdicts))
    none = Findings((), (), (), (), 0, 0)
    return Gathered(outcome(None, "r", counts, (), Tier.P2), lines, {}, none)


@pytest.mark.parametrize(
    ("failing", "said"),
    [
        (100, "leaves out the 39900 that pass."),
        (9_000, "leaves out the 31000 that pass and the first of those"),
    ],
)
def test_the_page_of_very_many_cells_stays_small_and_says_so(failing: int, said: str) -> None:
    text = page(large(40_000, failing), {})
    assert len(text.encode()) < PAGE_LIMIT
    assert "The run has 40000 cells, too many for one page." in text
    assert said in text
    assert text.count('<script type="text/plain"') == min(failing, MOST_SHOWN)
    assert "too many for one page" not in page(large(40, 1), {})


def test_what_people_read_of_very_many_cells_is_counted() -> None:
    run = large(6_000, 3)
    text = markdown.summary(run)
    assert "6000 cells are too many to show each" in text
    assert "| harness-0 | 12 | 600 | 599 | 0 | 0 | 1 | 0 | 0 |" in text
    assert len(terminal.render(run).splitlines()) < 40


def test_findings_are_kept_up_to_an_amount_and_counted(tmp_path: Path) -> None:
    (share,) = (one for one in told(sources(run_of(tmp_path, 8))) if one.findings)
    gathering = Gathering(Baseline())
    times = KEPT_BYTES // 20
    for _ in range(times):
        gathering.add(share)
    found = gathering.end(None, TODAY, Tier.P2).findings
    assert found.total == times * len(share.findings)
    assert len(found.unknown) < found.total / 2
