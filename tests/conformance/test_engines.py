"""Real cells on engines that are not this machine's to look into: elsewhere, or another user's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.cache import cache_root
from sandbox.engine.client import Engine
from sandbox.engine.locality import INITIAL_PID_NAMESPACE
from sandbox.engine.owner import pid_namespace
from tests.conformance.cli import sandbox
from tests.contract.severed import Severable

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
]
NOBODY = 64123
CELL = ("--harness", "pi", "--image", "alpine-3.23", "--scenario", "tool_success")
# Nothing of the engine's processes can be seen from a pid namespace of one's own.
ELSEWHERE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def ran(folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Give a cell's record and its verdicts by check."""
    cell = folder / "cells/pi/alpine-3.23/tool_success"
    verdicts = json.loads((cell / "verdicts.json").read_text())["verdicts"]
    return (
        json.loads((cell / "cell.json").read_text()),
        {one["check"]: one["status"] for one in verdicts},
    )


def held(record: dict[str, Any]) -> dict[str, bool | None]:
    return {one["name"]: one["holds"] for one in record["guarantees"]}


def test_loopback_may_be_this_machine(engine: Engine) -> None:
    with Severable(engine.info.host, tcp=True) as road, Engine.connect(road.address) as found:
        assert found.info.host == road.address
        assert found.info.is_local is (pid_namespace() == INITIAL_PID_NAMESPACE)


@pytest.mark.parametrize("install", ["mount", "copy"])
def test_a_cell_on_an_engine_elsewhere(engine: Engine, tmp_path: Path, install: str) -> None:
    with Severable(engine.info.host, tcp=True) as road:
        ended = sandbox(
            *("conformance", *CELL, "--install", install, "--output", str(tmp_path / "run")),
            env={"DOCKER_HOST": road.address},
            prefix=ELSEWHERE,
        )
    assert ended.code == 0, ended.out + ended.err
    record, verdicts = ran(tmp_path / "run")
    assert record["isolation"] == "relay"
    assert verdicts["model_reached_only_through_link"] == "pass"
    assert verdicts["egress_quiet"] == "not_applicable"
    assert held(record)["no network"] is True
    assert held(record)["egress log"] is False
    assert "not guaranteed here: egress log" in ended.out


@pytest.fixture
def home() -> Iterator[Path]:
    """Give a folder that another user can reach; pytest's are for their owner alone."""
    with tempfile.TemporaryDirectory(prefix="kit-user-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "home"


def test_a_cell_of_a_user_in_the_docker_group(engine: Engine, home: Path) -> None:
    place = engine.info.host.removeprefix("unix://")
    if not Path(place).is_socket():
        pytest.skip(f"{engine.info.host} is no socket that a group may use")
    share_bundle(home / "cache/sandbox/runtimes/bundles")
    for folder in (home, *home.rglob("*")):
        if folder.is_dir():
            os.chown(folder, NOBODY, NOBODY)
    ended = sandbox(
        *("conformance", *CELL, "--output", str(home / "run")),
        env={
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / "cache"),
            "DOCKER_HOST": engine.info.host,
        },
        prefix=as_nobody(Path(place).stat().st_gid),
    )
    assert ended.code == 0, ended.out + ended.err
    record, verdicts = ran(home / "run")
    assert record["isolation"] == "bridge"
    assert verdicts["model_reached_only_through_link"] == "pass"
    assert verdicts["egress_quiet"] == "not_applicable"
    assert {name for name, holds in held(record).items() if holds is not True} == {
        *("no network", "egress log", "disk limit", "resources counted")
    }
    assert "not guaranteed here: no network" in ended.out


def share_bundle(folder: Path) -> None:
    """Give another cache the bundle of the cell, so that it fetches nothing."""
    entries = json.loads(sandbox("pins", "list", "--json").out)
    (sha256,) = (
        one["sha256"]
        for one in entries
        if (one["harness"], one["platform"]) == ("pi", "linux-x64-musl")
    )
    folder.mkdir(parents=True)
    for file in (cache_root() / "runtimes/bundles").glob(f"{sha256}.tar*"):
        if file.name.endswith((".tar", ".ok")):
            shutil.copyfile(file, folder / file.name)


def as_nobody(group: int) -> tuple[str, ...]:
    """Become a user of no right but the group's; reading is allowed where this code is root's."""
    plain = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", f"--groups={group}")
    reading = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    can = subprocess.run(
        [*plain, sys.executable, "-c", "import sandbox, docker"], capture_output=True, check=False
    )
    return plain if can.returncode == 0 else (*plain, *reading)
