"""Podman's service as the engine: what the sandbox kit asks holds there, and a real cell passes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.engine.client import Engine
from sandbox.engine.images import ensure_image, image_definition
from sandbox.engine.link import open_link
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.progress import PlainProgress
from tests.conformance.cli import sandbox
from tests.contract.conftest import labelled
from tests.contract.kit import said, sh
from tests.contract.podman_service import podman_service, require_podman
from tests.contract.test_link import GET, echo

pytestmark = pytest.mark.docker
QUIET = PlainProgress(quiet=True)
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist")
KIT = ("test_exec_missing.py", "test_files.py", "test_lifecycle.py")

NOT_THERE = {
    "test_a_failed_start_leaves_nothing": "its link looks for the resolv.conf that Podman does not "
    "make for a container without a network",
    "test_an_image_without_a_shell": "it names its image without a registry, and Podman looks for "
    "such names in registries first",
}
"""Tests of the kit that ask for what Docker alone has, and what that is."""


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    require_podman()
    with podman_service() as address:
        yield address


@pytest.fixture(scope="module")
def podman(host: str) -> Iterator[Engine]:
    with Engine.connect(host) as engine:
        ensure_image(engine, image_definition("alpine-3.23"), QUIET)
        yield engine
        assert labelled(engine) == []


def test_it_is_known_for_what_it_is(podman: Engine) -> None:
    info = podman.info
    assert (info.product, info.is_local, info.can_enter_namespaces) == ("podman", True, True)
    assert not info.rootless
    assert any(option.startswith("seccomp=") for option in info.security)
    assert set(info.limits.values()) == {True}


def test_an_image_keeps_its_id_and_is_loaded_once(podman: Engine) -> None:
    definition = image_definition("alpine-3.23")
    found = ensure_image(podman, definition, QUIET)
    assert found.image_id == definition.expect[found.arch]


def test_the_kit_holds(podman: Engine, host: str) -> None:
    left_out = " or ".join(NOT_THERE)
    ended = subprocess.run(
        [*PYTEST, "-k", f"not ({left_out})", *(f"tests/contract/{name}" for name in KIT)],
        capture_output=True,
        text=True,
        env={**os.environ, "DOCKER_HOST": host, "SANDBOX_TEST_IMAGES": "alpine-3.23"},
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-8000:]
    passed = re.search(r"(\d+) passed, (\d+) deselected", ended.stdout)
    assert passed is not None
    assert int(passed[1]) > 40
    assert int(passed[2]) >= len(NOT_THERE)


@pytest.mark.parametrize("isolation", ["namespace", "relay"])
def test_the_model_link(podman: Engine, isolation: str) -> None:
    owner = Ownership.current(run_id="podman-link")
    image = ensure_image(podman, image_definition("alpine-3.23"), QUIET).ref
    with (
        open_link(podman, owner, isolation=isolation, progress=QUIET) as link,  # type: ignore[arg-type]
        Sandbox(podman, image, owner=owner, link=link) as box,
        echo(link.listen()),
    ):
        assert said(sh(box, GET["alpine"], link.host, str(link.port))) == "HELLO"
        assert said(sh(box, "cut -d: -f1 /proc/net/dev | tail -n +3")).split() == ["lo"]
        assert sh(box, "getent hosts name.test").exit_code == 2
        names = {event.name for event in link.egress()}
        assert names == ({"name.test"} if link.egress_seen else set())


def test_a_real_cell(podman: Engine, host: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    cell = ("--harness", "pi", "--image", "alpine-3.23", "--scenario", "tool_success")
    ended = sandbox("conformance", *cell, "--output", str(folder), env={"DOCKER_HOST": host})
    assert ended.code == 0, ended.out + ended.err
    record = json.loads((folder / "cells/pi/alpine-3.23/tool_success/cell.json").read_text())
    assert (record["engine"]["product"], record["isolation"]) == ("podman", "namespace")
    held = {one["name"]: one["holds"] for one in record["guarantees"]}
    assert held["memory limit"] is True
    assert held["disk limit"] is False
