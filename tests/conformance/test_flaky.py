"""A cell whose engine failed is tried again and called flaky; an outcome never is."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from sandbox.conformance.cell import run_cell
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.prepare import prepare_images
from sandbox.conformance.scenarios import SCENARIOS
from sandbox.conformance.world import World
from sandbox.engine.client import Engine
from sandbox.evidence.cell import CellRecord
from sandbox.evidence.folder import cell_folder
from sandbox.evidence.observations import Observations
from sandbox.harnesses.base import LaunchContext, LaunchPlan, NativeContext
from sandbox.progress import PlainProgress
from sandbox.runtimes.library import RuntimeLibrary
from tests.conformance.fake_harness import Defect, FakeHarness, FakeLibrary

pytestmark = pytest.mark.docker
IMAGE = "alpine-3.23"


@dataclass(frozen=True)
class Watched(FakeHarness):
    """Tells when it is planned, and when its transcript is read: then its sandbox can go."""

    planned: Callable[[], None] = lambda: None
    read: Callable[[], None] = lambda: None

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        self.planned()
        return super().plan(ctx)

    def parse(self, native: Path, context: NativeContext) -> Observations:
        self.read()
        return super().parse(native, context)


def run(
    engine: Engine, folder: Path, *, wrecks: int, defect: Defect = "none"
) -> tuple[CellRecord, int]:
    """Run a cell whose container somebody removes in its first ``wrecks`` attempts."""
    quiet, run_id = PlainProgress(quiet=True), f"flaky-{uuid.uuid4().hex[:8]}"
    images, attempts = prepare_images(engine, [IMAGE], quiet), [0]

    def count() -> None:
        attempts[0] += 1

    def wreck() -> None:
        if attempts[0] <= wrecks:
            mine = {"label": [f"sandbox.run_id={run_id}"]}
            for one in engine.sdk.api.containers(filters=mine):
                engine.sdk.api.remove_container(one["Id"], force=True)

    harness = Watched(SCENARIOS["tool_success"], defect, planned=count, read=wreck)
    world = World(
        engine=engine,
        images=images,
        harnesses={"fake": harness},
        library=cast("RuntimeLibrary", FakeLibrary(folder, images[IMAGE].platform)),
        run_id=run_id,
        folder=folder,
        progress=quiet,
    )
    record = run_cell(CellSpec(harness="fake", image=IMAGE, scenario="tool_success"), world)
    return record, attempts[0]


@pytest.mark.parametrize(("wrecks", "refused"), [(1, False), (2, True)])
def test_an_engine_failure_is_tried_again_once(
    engine: Engine, tmp_path: Path, wrecks: int, refused: bool
) -> None:
    record, attempts = run(engine, tmp_path, wrecks=wrecks)
    assert attempts == 2
    assert len(record.earlier_attempts) == 1
    assert record.earlier_attempts[0].kind == "error"
    assert (record.refusal is not None) == refused
    cell = cell_folder(tmp_path, record.cell_id)
    assert (cell / "rollouts.jsonl").exists() != refused
    assert list(tmp_path.glob(".cell-*")) == []


def test_an_outcome_is_never_tried_again(engine: Engine, tmp_path: Path) -> None:
    record, attempts = run(engine, tmp_path, wrecks=0, defect="no_call")
    assert attempts == 1
    assert record.earlier_attempts == ()
