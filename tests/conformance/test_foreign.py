"""A harness from another package: listed, pinned, installed and run without a change of ours."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sandbox.engine.client import Engine
from sandbox.errors import ExitCode
from tests.conformance.cli import Ended, sandbox
from tests.conformance.foreign import Foreign, install, write_artifact

BROKEN = """\
[sandbox.harnesses]
wrecked = wrecked_harness:WRECKED
"""


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    return install(tmp_path_factory.mktemp("foreign"))


@pytest.fixture
def own(foreign: Foreign, tmp_path: Path) -> Foreign:
    """A copy of the installed package that a test may damage."""
    shutil.copytree(foreign.site, tmp_path / "site")
    shutil.copytree(foreign.wheels, tmp_path / "wheels")
    return Foreign(site=tmp_path / "site", wheels=tmp_path / "wheels")


def run(package: Foreign, cache: Path, *words: str) -> Ended:
    return sandbox(*words, env={**package.env, "XDG_CACHE_HOME": str(cache)})


def test_its_cells_and_runtimes_are_listed_beside_ours(foreign: Foreign, tmp_path: Path) -> None:
    listed = run(foreign, tmp_path, "list", "--profile", "full", "--json")
    assert (listed.code, listed.err) == (0, "")
    assert {cell["harness"] for cell in json.loads(listed.out)} > {"pocket", "codex", "pi"}
    runtimes = run(foreign, tmp_path, "pins", "list", "--json")
    assert (runtimes.code, runtimes.err) == (0, "")
    found = {(entry["harness"], entry["platform"]) for entry in json.loads(runtimes.out)}
    assert found > {("pocket", "linux-x64-musl"), ("codex", "linux-x64-musl")}


def test_its_lock_comes_out_the_same_again(foreign: Foreign, tmp_path: Path) -> None:
    ended = run(foreign, tmp_path, "pins", "lock", "--pins", str(foreign.pins))
    assert (ended.code, ended.out.split()[0]) == (0, "unchanged:")


@pytest.mark.docker
def test_it_runs_in_a_real_sandbox_and_passes_every_check(
    foreign: Foreign, engine: Engine, tmp_path: Path
) -> None:
    del engine  # only to be sure that there is one
    words = ("conformance", "pocket/alpine-3.23/tool_failure", "--output", str(tmp_path / "run"))
    ended = sandbox(*words, env=foreign.env)
    assert ended.code == 0, ended.out + ended.err
    record = json.loads(
        (tmp_path / "run/cells/pocket/alpine-3.23/tool_failure/cell.json").read_text()
    )
    locked = json.loads(foreign.pins.with_suffix(".lock").read_text())
    pinned = locked["bundles"]["pocket"][record["pin"]["platform"]]["sha256"]
    assert record["pin"]["bundle_sha256"] == pinned


def test_other_bytes_under_its_name_are_refused(own: Foreign, tmp_path: Path) -> None:
    wheel = write_artifact(own.wheels)
    wheel.write_bytes(wheel.read_bytes().replace(b"exit code", b"exit_code"))
    ended = run(own, tmp_path, "runtimes", "fetch", "--harness", "pocket")
    assert ended.code == ExitCode.ERROR
    assert "another hash than the pinned one" in ended.err


def test_without_its_lock_only_it_is_left_out(own: Foreign, tmp_path: Path) -> None:
    own.pins.with_suffix(".lock").unlink()
    assert run(own, tmp_path, "list", "pocket/*").code == 0
    runtimes = run(own, tmp_path, "pins", "list", "--json")
    assert "codex" in {entry["harness"] for entry in json.loads(runtimes.out)}
    assert "pocket is left out: no lock file" in runtimes.err
    fetched = run(own, tmp_path, "runtimes", "fetch", "--harness", "pocket")
    assert fetched.code == ExitCode.PREREQUISITE
    assert f"sandbox pins lock --pins {own.pins}" in fetched.err
    assert run(own, tmp_path, "pins", "verify").code == ExitCode.FAILED


def test_a_package_that_cannot_be_imported_takes_nothing_else_away(
    own: Foreign, tmp_path: Path
) -> None:
    info = own.site / "wrecked_harness-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wrecked-harness\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(BROKEN)
    (own.site / "wrecked_harness.py").write_text("import nothing_of_that_name\n")
    listed = run(own, tmp_path, "list", "--profile", "full")
    assert listed.code == 0
    assert "pocket/alpine-3.23/tool_success" in listed.out
    assert "harness 'wrecked' of package wrecked-harness cannot be loaded" in listed.err
    assert "repair or uninstall package wrecked-harness" in listed.err
    # a run that quietly left it out would look whole
    asked = run(own, tmp_path, "conformance", "--profile", "full")
    assert asked.code == ExitCode.USAGE
    assert "--skip 'wrecked/*'" in asked.err
