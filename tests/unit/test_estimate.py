"""What cells will take, how many fit, and how a run says how far it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.conformance.estimate import PEAK_MIB, Estimates
from sandbox.conformance.pace import Pace
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.room import CLIENT_MIB, default_jobs, free_mib, room_for
from sandbox.engine.client import EngineInfo
from sandbox.errors import UsageError
from sandbox.evidence.cell import Refusal
from sandbox.evidence.costs import CellCost, earlier_costs, read_costs
from sandbox.harnesses.kilocode import KILOCODE
from sandbox.progress import NOTE_EVERY_S, PlainProgress
from tests.broken.defects import with_cell
from tests.broken.goodcells import good

HARNESSES = {"kilocode": KILOCODE}
INFO = EngineInfo(
    host="local", version="1", api_version="1", product="docker", architecture="x86_64",
    kernel="1", cgroup_version=2, cgroup_driver="systemd", storage_driver="overlay2", root_dir="/",
    is_local=True, can_enter_namespaces=True,
)  # fmt: skip
FAR = INFO.model_copy(update={"is_local": False, "processors": 8, "memory_mib": 10_000})


def cell(scenario: str = "tool_success", harness: str = "kilocode", image: str = "a") -> CellSpec:
    return CellSpec(harness=harness, image=image, scenario=scenario)


def test_a_cell_s_own_record_counts_before_those_of_other_images() -> None:
    costs = {
        "kilocode/a/tool_success": CellCost(seconds=3, peak_mib=300),
        "kilocode/b/tool_success": CellCost(seconds=5, peak_mib=400),
    }
    known = Estimates(costs, HARNESSES)
    assert (known.seconds(cell()), known.peak_mib(cell())) == (3, 300)
    other = cell(image="c")
    assert (known.seconds(other), known.peak_mib(other)) == (4, 400)


def test_what_no_run_recorded_is_declared() -> None:
    none = Estimates({}, HARNESSES)
    assert none.seconds(cell("run_timeout")) > none.seconds(cell()) > 50
    assert none.peak_mib(cell()) == KILOCODE.capabilities.peak_memory_mib
    assert none.peak_mib(cell("two_sessions")) == 2 * none.peak_mib(cell())
    assert none.peak_mib(cell("tool_oom")) == 2048  # its limit is what it is about
    assert none.peak_mib(cell(harness="unknown")) == PEAK_MIB


def test_timings_are_read_from_a_file_a_run_and_the_newest_runs(tmp_path: Path) -> None:
    for number, seconds in enumerate((1.0, 2.0)):
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        text = (
            f'{{"cells": {{"a/b/c": {{"seconds": {seconds}}}, "a/b/{number}": {{"seconds": 7}}}}}}'
        )
        (folder / "timings.json").write_text(text)
        os.utime(folder / "timings.json", (number, number))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "timings.json").write_text("[]")
    found = earlier_costs(tmp_path)
    assert {name: cost.seconds for name, cost in found.items()} == {
        "a/b/c": 2.0, "a/b/0": 7.0, "a/b/1": 7.0,
    }  # fmt: skip
    assert read_costs(tmp_path / "run0") == read_costs(tmp_path / "run0" / "timings.json")
    for wrong in (tmp_path, tmp_path / "none", tmp_path / "other"):
        with pytest.raises(UsageError, match="holds no timings"):
            read_costs(wrong)


def test_room_is_what_is_free_without_what_this_process_takes() -> None:
    room = room_for(INFO, jobs=10, free=lambda: 1000.0)
    assert room.budget_mib == 900 - CLIENT_MIB - 30
    assert not room.fits(900, [1])
    assert room_for(INFO, jobs=1, free=lambda: None).fits(10**9, [1])
    assert room_for(FAR, jobs=1).budget_mib == 9_000


def test_jobs_by_processors_and_memory() -> None:
    assert default_jobs(FAR, [100.0]) == 17
    assert default_jobs(FAR, [3_000.0, 4_000.0]) == 3
    assert default_jobs(FAR, [20_000.0]) == 1
    assert default_jobs(INFO, [500.0], free=lambda: 100.0) == 1


def test_the_tightest_limit_is_what_is_free(tmp_path: Path) -> None:
    assert free_mib(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 2048000 kB\n")
    assert free_mib(tmp_path) == 2000
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    for name, text in (
        ("memory.max", "max"),
        ("memory.current", str(600 << 20)),
        ("memory.stat", f"anon 1\ninactive_file {100 << 20}\n"),
    ):
        (group / name).write_text(text)
    assert free_mib(tmp_path) == 2000
    (group / "memory.max").write_text(str(1000 << 20))
    assert free_mib(tmp_path) == 500


def ticks(*seconds: float) -> Iterator[float]:
    yield from seconds


def test_the_pace_is_measured_by_what_cells_take() -> None:
    files = [good("tool_success"), good("tool_failure"), good("retry_500")]
    plan = [
        CellSpec(harness=one.cell.harness, image=one.cell.image, scenario=one.cell.scenario)
        for one in files
    ]
    costs = {one.cell_id: CellCost(seconds=s) for one, s in zip(plan, (60, 20, 20), strict=True)}
    times = ticks(0.0, 0.0, 90.0, 150.0)
    pace = Pace(plan, Estimates(costs, {}), clock=lambda: next(times))
    assert str(pace) == "0/3 cells"
    pace.ended(files[0].cell)
    # 60 of 100 expected seconds took 90: the other 40 take 60
    assert str(pace) == "1/3 cells, 0.7 a minute, about 60 s left"
    refusal = Refusal(kind="error", reason="gone")
    pace.ended(with_cell(files[1], refusal=refusal).cell)
    pace.ended(with_cell(files[2], earlier_attempts=(refusal,)).cell)
    assert str(pace) == "3/3 cells, 1 broke, 1 flaky, 1.2 a minute"


def test_plain_progress_says_now_and_then_how_it_goes(capsys: pytest.CaptureFixture[str]) -> None:
    times = ticks(0.0, 1.0, NOTE_EVERY_S, NOTE_EVERY_S + 1)
    with PlainProgress(clock=lambda: next(times)).step("running 3 cell(s)") as step:
        for text in ("early", "in time", "too soon"):
            step.note(text)
    assert capsys.readouterr().err.splitlines() == ["running 3 cell(s) ...", "  in time"]
