"""Fixtures of all tests: the engine, and nothing left of ours on it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from sandbox.engine.client import Engine
from sandbox.engine.owner import PROJECT_FILTER, owner_is_alive
from sandbox.errors import PrerequisiteMissing

SWEEP_PATIENCE_S = 60.0

# `make test` looks at fewer examples than a search for new faults would:
# HYPOTHESIS_PROFILE=search make test-unit
settings.register_profile("suite", max_examples=10, deadline=None)
settings.register_profile("search", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--run",
        dest="run_folder",
        type=Path,
        metavar="DIR",
        help="judge this run: one item for each cell and check (tests/conformance)",
    )


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """Give the engine; without one, tests that need it are skipped here and fail in CI.

    At the end no container, network or volume of ours may be there that was not there before.
    What another living process owns belongs to a run beside this one.
    """
    try:
        connected = Engine.connect()
    except PrerequisiteMissing as error:
        if os.environ.get("CI") or os.environ.get("SANDBOX_REQUIRE_ENGINE"):
            raise
        pytest.skip(str(error))
    with connected:
        before = set(leftovers(connected))
        yield connected
        # a test in another process may be about to sweep what it has killed
        until = time.monotonic() + SWEEP_PATIENCE_S
        while (left := sorted(set(leftovers(connected)) - before)) and time.monotonic() < until:
            time.sleep(0.5)
    assert left == [], f"the tests left on the engine: {left}"


def leftovers(engine: Engine) -> list[str]:
    """Name what carries our label and is ours or of a dead owner."""
    api, ours = engine.sdk.api, {"label": [PROJECT_FILTER]}
    containers = [(one["Names"][0], one) for one in api.containers(all=True, filters=ours)]
    networks = [(one["Name"], one) for one in api.networks(filters=ours)]
    volumes = [(one["Name"], one) for one in api.volumes(filters=ours)["Volumes"] or ()]
    found = [*containers, *networks, *volumes]
    return [name for name, one in found if not _of_another(one["Labels"] or {})]


def _of_another(labels: dict[str, str]) -> bool:
    return labels.get("sandbox.pid") != str(os.getpid()) and owner_is_alive(labels)
