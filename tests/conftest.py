"""Fixtures of all tests: the engine, and nothing left of ours on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from sandbox.engine.client import Engine
from sandbox.engine.owner import PROJECT_FILTER, owner_is_alive
from sandbox.errors import PrerequisiteMissing


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """Give the engine; without one, tests that need it are skipped here and fail in CI."""
    try:
        connected = Engine.connect()
    except PrerequisiteMissing as error:
        if os.environ.get("CI") or os.environ.get("SANDBOX_REQUIRE_ENGINE"):
            raise
        pytest.skip(str(error))
    with connected:
        yield connected


@pytest.fixture(scope="session", autouse=True)
def no_leftovers() -> Iterator[None]:
    """Fail when there are containers, networks or volumes of ours that were not there before.

    What another living process owns belongs to a run beside this one.
    """
    before = set(leftovers())
    yield
    left = sorted(set(leftovers()) - before)
    assert left == [], f"the tests left on the engine: {left}"


def leftovers() -> list[str]:
    """Name what carries our label and is ours or of a dead owner; none without an engine."""
    with suppress(PrerequisiteMissing), Engine.connect() as engine:
        api, ours = engine.sdk.api, {"label": [PROJECT_FILTER]}
        found = [
            *(
                (f"container {one['Names'][0]}", one)
                for one in api.containers(all=True, filters=ours)
            ),
            *((f"network {one['Name']}", one) for one in api.networks(filters=ours)),
            *((f"volume {one['Name']}", one) for one in api.volumes(filters=ours)["Volumes"] or ()),
        ]
        return [name for name, one in found if not _of_another(one["Labels"] or {})]
    return []


def _of_another(labels: dict[str, str]) -> bool:
    return labels.get("sandbox.pid") != str(os.getpid()) and owner_is_alive(labels)
