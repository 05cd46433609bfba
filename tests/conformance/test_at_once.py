"""Sixteen cells at once give the verdicts of one by one, and cross-talk between cells is caught."""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from sandbox.conformance.plan import CellSpec
from sandbox.conformance.prepare import prepare_images
from sandbox.conformance.runner import begin, run_plan
from sandbox.conformance.scenarios import SCENARIOS
from sandbox.conformance.spare import no_spare
from sandbox.conformance.world import World
from sandbox.engine.client import Engine
from sandbox.evidence.baseline import Baseline
from sandbox.evidence.judge import judge
from sandbox.evidence.results import RunVerdicts
from sandbox.harnesses.base import LaunchContext, LaunchPlan
from sandbox.progress import PlainProgress
from sandbox.runtimes.library import Bundle, RuntimeLibrary
from tests.conformance.fake_harness import FakeHarness, FakeLibrary

pytestmark = pytest.mark.docker
IMAGE = "alpine-3.23"
AT_ONCE = 16
PLAYED = ("tool_success", "tool_failure", "model_error", "home_write")
QUIET = PlainProgress(quiet=True)


class Copies(FakeLibrary):
    """The fake harness's bundle for each of its copies."""

    def ensure_bundle(self, harness: str, platform: str) -> Bundle:
        return super().ensure_bundle("fake", platform)

    def refusals(self, harness: str, *asked: object) -> tuple[()]:
        return ()


@dataclass(frozen=True)
class Mixed(FakeHarness):
    """A planted defect: it asks the model of the cell that was launched before this one."""

    urls: tuple[list[str], ...] = ([],)

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        plan = super().plan(ctx)
        (known,) = self.urls
        known.append(ctx.base_url)
        return plan.model_copy(update={"env": {**plan.env, "URL": known[0]}})


def verdicts(
    engine: Engine, folder: Path, harnesses: dict[str, FakeHarness], *, jobs: int
) -> RunVerdicts:
    """Run a cell of each harness, ``jobs`` at a time."""
    images = prepare_images(engine, [IMAGE], QUIET)
    plan = [
        CellSpec(harness=name, image=IMAGE, scenario=harness.scenario.name)
        for name, harness in harnesses.items()
    ]
    folder.mkdir()
    world = World(
        engine=engine,
        images=images,
        harnesses=harnesses,
        library=cast("RuntimeLibrary", Copies(folder, images[IMAGE].platform)),
        run_id=f"at-once-{uuid.uuid4().hex[:8]}",
        folder=folder,
        progress=QUIET,
    )
    run_plan(plan, world, record=begin(world, plan, profile="at-once"), spare=no_spare(jobs))
    return judge(folder, baseline=Baseline(), today=dt.date(2026, 1, 1))


def copies(count: int) -> dict[str, FakeHarness]:
    """Name copies of the harness; they play the scenarios in turn."""
    return {
        f"fake-{number:02d}": FakeHarness(
            SCENARIOS[PLAYED[number % len(PLAYED)]], name=f"fake-{number:02d}"
        )
        for number in range(count)
    }


def told(run: RunVerdicts) -> dict[str, list[tuple[str, dict[str, str]]]]:
    """State and status of every check, for each scenario's cells."""
    found: dict[str, list[tuple[str, dict[str, str]]]] = {}
    for cell in run.cells:
        statuses = {one.check: one.status.value for one in cell.verdicts}
        found.setdefault(cell.cell_id.split("/")[2], []).append((cell.state.value, statuses))
    return found


def test_sixteen_at_once_are_judged_as_one_by_one(engine: Engine, tmp_path: Path) -> None:
    together = told(verdicts(engine, tmp_path / "together", copies(AT_ONCE), jobs=AT_ONCE))
    alone = told(verdicts(engine, tmp_path / "alone", copies(len(PLAYED)), jobs=1))
    assert {name: len(cells) for name, cells in together.items()} == dict.fromkeys(PLAYED, 4)
    assert {cells[0][0] for cells in alone.values()} == {"pass"}
    assert together == {name: cells * 4 for name, cells in alone.items()}


def test_a_cell_that_asks_another_cells_model_is_caught(engine: Engine, tmp_path: Path) -> None:
    urls: tuple[list[str], ...] = ([],)
    mixed = {
        f"fake-{number}": Mixed(SCENARIOS[PLAYED[0]], name=f"fake-{number}", urls=urls)
        for number in range(2)
    }
    first, second = verdicts(engine, tmp_path / "mixed", dict(mixed), jobs=1).cells
    assert (first.state.value, second.state.value) == ("pass", "fail")
    assert "outcome_class" in {one.check for one in second.non_passes}
