"""Fixtures of the conformance tests: the task images, and one real run that several tests read."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.conformance.prepare import prepare_images
from sandbox.engine.client import Engine
from sandbox.engine.imagebuild.definition import default_images
from sandbox.progress import PlainProgress
from tests.conformance.cli import Ended, sandbox

_OF_A_RUN = ("test_cells.py", "test_rows.py")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the items of a run's cells only when a run is given."""
    if config.getoption("run_folder") is None:
        return
    other = [item for item in items if item.path.name not in _OF_A_RUN]
    items[:] = [item for item in items if item.path.name in _OF_A_RUN]
    config.hook.pytest_deselected(items=other)


@pytest.fixture(scope="session")
def image_refs(engine: Engine) -> dict[str, str]:
    """Give the engine's reference of each task image by its name."""
    images = prepare_images(engine, default_images(), PlainProgress(quiet=True))
    return {name: image.ref for name, image in images.items()}


@pytest.fixture(scope="session")
def quick_run(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    """Run the quick profile of two harnesses once; `make conformance` runs it for all."""
    folder = tmp_path_factory.mktemp("quick") / "run"
    two = ("--harness", "codex", "--harness", "opencode")
    return folder, sandbox("conformance", "--profile", "quick", *two, "--output", str(folder))
