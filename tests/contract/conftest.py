"""Fixtures of the sandbox kit: every test runs in each task image."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sandbox.engine.client import Engine
from sandbox.engine.imagebuild.definition import default_images
from sandbox.engine.images import ensure_image, image_definition
from sandbox.engine.owner import PROJECT_FILTER, Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.progress import PlainProgress

CHOSEN = os.environ.get("SANDBOX_TEST_IMAGES", "")
IMAGES = CHOSEN.split(",") if CHOSEN else sorted(default_images())


@pytest.fixture(scope="session")
def owner() -> Ownership:
    return Ownership.current(run_id=f"kit-{uuid.uuid4().hex[:8]}", cell_id="kit")


def labelled(engine: Engine, label: str = PROJECT_FILTER) -> list[str]:
    """Name all containers, networks and volumes that carry a label."""
    api, mine = engine.sdk.api, {"label": [label]}
    return [
        *(f"container {one['Names'][0]}" for one in api.containers(all=True, filters=mine)),
        *(f"network {one['Name']}" for one in api.networks(filters=mine)),
        *(f"volume {one['Name']}" for one in api.volumes(filters=mine)["Volumes"] or ()),
    ]


@pytest.fixture(scope="session", params=IMAGES)
def image(request: pytest.FixtureRequest, engine: Engine) -> str:
    """Give the reference of a task image: a defined one by its name, or one from outside."""
    if CHOSEN and ":" in request.param:
        return str(request.param)
    return ensure_image(engine, image_definition(request.param), PlainProgress(quiet=True)).ref


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let the tests of exec run both ways: through the kept channel, and by the engine alone."""
    if "way" in metafunc.fixturenames and re.search("exec_(?!channel)", metafunc.module.__name__):
        metafunc.parametrize("way", ["channel", "engine"], indirect=True, scope="session")


@pytest.fixture(scope="session")
def way(request: pytest.FixtureRequest) -> str:
    """Say how commands are started."""
    return str(getattr(request, "param", "channel"))


@pytest.fixture(scope="session")
def make(engine: Engine, image: str, owner: Ownership, way: str) -> Callable[..., Sandbox]:
    """Give a maker of sandboxes that are not started yet."""

    def made(**options: Any) -> Sandbox:
        return Sandbox(engine, image, **{"owner": owner, "channel": way == "channel", **options})

    return made


@pytest.fixture(scope="session")
def box(make: Callable[..., Sandbox]) -> Iterator[Sandbox]:
    """Give the sandbox that all tests of one image share: leave it as you found it."""
    with make() as started:
        yield started


@pytest.fixture(scope="session")
def user_box(make: Callable[..., Sandbox]) -> Iterator[Sandbox]:
    """Give a shared sandbox of a plain user."""
    with make(user="1000:1000", workdir="/workspace") as started:
        yield started


@pytest.fixture(scope="session")
def scan_box(make: Callable[..., Sandbox]) -> Iterator[Sandbox]:
    """Give a shared sandbox of which nothing is seen from the host, as on a remote engine."""
    with make(tracking="scan") as started:
        yield started


@pytest.fixture(params=["cgroup", "freezer", "scan"])
def tracked(request: pytest.FixtureRequest, make: Callable[..., Sandbox]) -> Iterator[Sandbox]:
    """Give a fresh sandbox for each way to follow a command's processes."""
    with make(tracking=request.param) as started:
        yield started
