"""How often one cell asks the engine: what it needs, and no request more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.commands.library import open_library
from sandbox.conformance.cellbench import Cells, too_many
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.prepare import prepare_images
from sandbox.conformance.world import World
from sandbox.engine.client import Engine
from sandbox.engine.keeper import switch_reaper_off_unless_local
from sandbox.harnesses.registry import registered
from sandbox.progress import PlainProgress

pytestmark = pytest.mark.docker
SPEC = CellSpec(harness="codex", image="alpine-3.23", scenario="tool_success")


@pytest.fixture
def world(engine: Engine, tmp_path: Path) -> Iterator[World]:
    if not engine.info.can_enter_namespaces:
        pytest.skip("the counts are those of an engine that is looked into from here")
    switch_reaper_off_unless_local(engine)  # asked once a process, not once a cell
    quiet, known = PlainProgress(quiet=True), registered()
    with open_library(quiet, known) as library:
        yield World(
            engine=engine,
            images=prepare_images(engine, [SPEC.image], quiet),
            harnesses=known.harnesses,
            library=library,
            run_id="calls",
            folder=tmp_path,
            progress=quiet,
            way="mount",
        )


class Curious(Engine):
    """An engine whose info is asked for with an inspection of all containers: the defect."""

    @property
    def info(self):  # type: ignore[no-untyped-def, override]
        self.sdk.api.containers()
        return self._info

    @info.setter
    def info(self, info):  # type: ignore[no-untyped-def]
        self._info = info


def test_a_cell_asks_the_engine_for_what_it_needs_once(world: World) -> None:
    seen = Cells(world, SPEC).run()
    assert too_many(seen.calls) == {}, seen.calls
    assert seen.calls["POST /containers/create"] == seen.calls["POST /containers/{id}/start"] == 1


def test_a_planted_request_is_found(engine: Engine, world: World) -> None:
    seen = Cells(replace(world, engine=Curious(engine.sdk, engine.info)), SPEC).run()
    assert set(too_many(seen.calls)) == {"GET /containers/json"}, seen.calls
