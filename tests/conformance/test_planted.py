"""Planted defects in a real sandbox: a harness that misbehaves is caught by the right check."""

from __future__ import annotations

import datetime as dt
import uuid
from pathlib import Path
from typing import cast

import pytest

from sandbox.conformance.cell import run_cell
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.prepare import prepare_images
from sandbox.conformance.scenarios import SCENARIOS
from sandbox.conformance.ways import Way
from sandbox.conformance.world import World
from sandbox.engine.client import Engine
from sandbox.evidence.baseline import Baseline
from sandbox.evidence.folder import cell_folder
from sandbox.evidence.judge import judge
from sandbox.evidence.results import CellResult, CellState
from sandbox.evidence.verdict import Status
from sandbox.progress import PlainProgress
from sandbox.runtimes.library import RuntimeLibrary
from tests.conformance.fake_harness import Defect, FakeHarness, FakeLibrary

pytestmark = pytest.mark.docker
IMAGE = "alpine-3.23"


def judged(
    engine: Engine, folder: Path, scenario: str, defect: Defect, way: Way = "copy"
) -> CellResult:
    quiet = PlainProgress(quiet=True)
    images = prepare_images(engine, [IMAGE], quiet)
    library = FakeLibrary(folder, images[IMAGE].platform)
    world = World(
        engine=engine,
        images=images,
        harnesses={"fake": FakeHarness(SCENARIOS[scenario], defect)},
        library=cast("RuntimeLibrary", library),
        run_id=f"planted-{uuid.uuid4().hex[:8]}",
        folder=folder,
        progress=quiet,
        way=way,
    )
    spec = CellSpec(harness="fake", image=IMAGE, scenario=scenario)
    run_cell(spec, world)
    found = judge(cell_folder(folder, spec.cell_id), baseline=Baseline(), today=dt.date(2026, 1, 1))
    return found.cells[0]


PLAYED = (
    "tool_success",
    "tool_failure",
    "model_error",
    "home_write",
    "judge_verifier",
    "verifier_failure",
    "verifier_error",
    "resume_after_close",
)


@pytest.mark.parametrize(
    ("scenario", "way"), [("tool_success", "copy"), *((name, "mount") for name in PLAYED)]
)
def test_the_fake_harness_passes_when_nothing_is_planted(
    scenario: str, way: Way, engine: Engine, tmp_path: Path
) -> None:
    result = judged(engine, tmp_path, scenario, "none", way)
    assert [f"{v.check}: {v.reason}" for v in result.non_passes] == []
    assert result.state is CellState.PASS


@pytest.mark.parametrize(
    ("defect", "scenario", "check"),
    [
        ("no_call", "tool_success", "outcome_class"),
        ("skips_a_tool", "tool_success", "script_followed"),
        ("leaves_a_process", "tool_success", "nothing_left_running"),
        ("claims_success", "model_error", "outcome_class"),
        ("wrong_home", "tool_success", "task_home_used"),
        ("prints_its_key", "tool_success", "secrets_kept"),
        ("shows_its_key", "tool_success", "secrets_kept"),
        ("litters", "tool_success", "footprint_expected"),
    ],
)
def test_a_planted_defect_is_caught(
    defect: Defect, scenario: str, check: str, engine: Engine, tmp_path: Path
) -> None:
    result = judged(engine, tmp_path, scenario, defect)
    failed = {verdict.check for verdict in result.verdicts if verdict.status is Status.FAIL}
    assert check in failed, failed
    assert result.state is CellState.FAIL


def test_a_harness_that_calls_no_model_is_a_failure_record_and_no_zero(
    engine: Engine, tmp_path: Path
) -> None:
    judged(engine, tmp_path, "tool_success", "no_call")
    cell = cell_folder(tmp_path, f"fake/{IMAGE}/tool_success")
    assert (cell / "failures.jsonl").is_file()
    assert not (cell / "rollouts.jsonl").exists()
