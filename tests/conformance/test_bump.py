"""Two versions of a harness of another package, side by side in real sandboxes.

The harness comes with a pins file and a registry of its own; ``pins bump`` uses the same functions.
"""

from __future__ import annotations

import datetime as dt
import gzip
import hashlib
import io
import json
import tarfile
import uuid
from pathlib import Path

import pytest

from sandbox.commands.pins_cells import Behaviour, conclude
from sandbox.conformance.compare import judged, run_both
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.prepare import prepare_images
from sandbox.conformance.printed import printed_version
from sandbox.conformance.scenarios import SCENARIOS
from sandbox.conformance.world import World
from sandbox.engine.client import Engine
from sandbox.engine.images import LoadedImage
from sandbox.engine.owner import Ownership
from sandbox.evidence.baseline import Baseline
from sandbox.evidence.difference import Difference
from sandbox.evidence.verdict import Status
from sandbox.progress import PlainProgress, Step
from sandbox.runtimes.artifacts import NpmPin
from sandbox.runtimes.bump import Bump, plan_bump
from sandbox.runtimes.fetch import Arrival
from sandbox.runtimes.integrity import Integrity
from sandbox.runtimes.library import RuntimeLibrary
from sandbox.runtimes.lock import Wanted
from sandbox.runtimes.pinedit import edited
from sandbox.runtimes.store import Store
from sandbox.runtimes.trying import expect_output
from sandbox.runtimes.workingcopy import WorkingCopy, working_copy
from tests.conformance.fake_harness import FakeHarness

pytestmark = pytest.mark.docker
IMAGE = "alpine-3.23"
CELL = f"fake/{IMAGE}/tool_success"
QUIET = PlainProgress(quiet=True)
PINS = """
schema = 1

# as another package pins it
[artifact.fake]
client = "npm"
name = "fake"
version = "1.0.0"
licence = "MIT"

[harness.fake]
licence = "MIT"
version = "1.0.0"
version_output = "fake 1.0.0"
platforms = ["{platform}"]

[[harness.fake.runtime]]
platforms = ["{platform}"]
entry = {{ kind = "link", program = "libexec/fake" }}

[[harness.fake.runtime.content]]
artifact = "fake"
take = "package/"
put = "libexec/"
"""
PROGRAM = """#!/bin/sh
[ "${{1-}}" = --version ] && echo "{said}" && exit
{change}
exec sh "$@"
"""
VERSIONS = {
    "1.0.0": PROGRAM.format(said="fake 1.0.0", change=""),
    "1.1.0": PROGRAM.format(said="fake 1.1.0 (a build)", change=""),
    "2.0.0": PROGRAM.format(said="fake 2.0.0", change="export DEFECT=skips_a_tool"),
}


class Registry:
    """Holds the versions; a source of artifacts."""

    def bring(
        self, pin: NpmPin | Wanted, folder: Path, *,
        integrity: Integrity | None, size: int | None, step: Step,
    ) -> Arrival:  # fmt: skip
        data = VERSIONS[pin.version].encode()
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as archive:
            info = tarfile.TarInfo("package/fake")
            info.size, info.mode = len(data), 0o755
            archive.addfile(info, io.BytesIO(data))
        path = folder / "file"
        path.write_bytes(gzip.compress(out.getvalue(), mtime=0))
        said = Integrity.parse(f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}")
        return Arrival(path, f"fake-{pin.version}.tgz", integrity or said)


@pytest.fixture(scope="module")
def image(engine: Engine) -> LoadedImage:
    return prepare_images(engine, [IMAGE], QUIET)[IMAGE]


def opened(path: Path, store: Path) -> RuntimeLibrary:
    return RuntimeLibrary(path, store=Store(store), sources={"npm": Registry})


def carried_out(copy: WorkingCopy, bump: Bump, tmp_path: Path) -> RuntimeLibrary:
    copy.pins_path.write_text(edited(copy.pins_path.read_text(), bump.edits))
    library = opened(copy.pins_path, tmp_path / "store")
    library.update_lock(["fake"])
    return library


def world(engine: Engine, image: LoadedImage, library: RuntimeLibrary, folder: Path) -> World:
    folder.mkdir()
    return World(
        engine=engine,
        images={IMAGE: image},
        harnesses={"fake": FakeHarness(SCENARIOS["tool_success"])},
        library=library,
        run_id=f"bump-{uuid.uuid4().hex[:8]}",
        folder=folder,
        progress=QUIET,
    )


def bumped(
    version: str, engine: Engine, image: LoadedImage, tmp_path: Path
) -> tuple[Bump, Difference, str]:
    """Bump in a working copy, run both, and return the plan, what differs, and what was printed."""
    path = tmp_path / "pins.toml"
    path.write_text(PINS.format(platform=image.platform))
    with opened(path, tmp_path / "store") as old:
        old.update_lock()
        before = path.read_text()
        bump = plan_bump(old.pins, path, "fake", version, lambda _: dict.fromkeys(VERSIONS))
        with working_copy(old.pins, path) as copy:
            new = carried_out(copy, bump, tmp_path)
            bundle = new.ensure_bundle("fake", image.platform)
            owner = Ownership.current(run_id=f"bump-{uuid.uuid4().hex[:8]}")
            said = printed_version(engine, image, bundle, owner)
            if expect_output(copy, bump, said):
                new = opened(copy.pins_path, tmp_path / "store")
                new.update_lock(["fake"])
            plan = (CellSpec(harness="fake", image=IMAGE, scenario="tool_success"),)
            here = world(engine, image, old, tmp_path / "results")
            folders = run_both(plan, here, new, profile="quick", jobs=1)
        found = judged(folders, baseline=Baseline(), today=dt.date(2026, 1, 1))
    assert path.read_text() == before
    return bump, found, said


def recorded(tmp_path: Path) -> list[tuple[str, str]]:
    pins = [
        json.loads((tmp_path / "results" / side / "cells" / CELL / "cell.json").read_text())["pin"]
        for side in ("old", "new")
    ]
    return [(pin["version"], pin["bundle_sha256"]) for pin in pins]


def test_a_bump_that_changes_behaviour_is_reported(
    engine: Engine, image: LoadedImage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bump, found, _ = bumped("2.0.0", engine, image, tmp_path)
    assert found.versions == {f"fake/{IMAGE}": ("1.0.0", "2.0.0")}
    changes = {change.check: (change.old, change.new) for change in found.verdicts}
    assert changes["script_followed"] == (Status.PASS, Status.FAIL), changes
    (old, new) = recorded(tmp_path)
    assert (old[0], new[0]) == ("1.0.0", "2.0.0")
    assert old[1] != new[1]
    said = Behaviour(bumps=(bump,), sizes=(), difference=found, results=tmp_path / "results")
    assert conclude(said, as_json=False) == 1
    shown = capsys.readouterr().out
    assert f"{CELL} script_followed (P0): pass -> fail" in shown
    assert "start to first request" in shown
    assert "nothing was written" in shown
    assert (tmp_path / "results" / "difference.json").is_file()


def test_a_bump_that_changes_only_what_is_printed_differs_in_no_check(
    engine: Engine, image: LoadedImage, tmp_path: Path
) -> None:
    bump, found, said = bumped("1.1.0", engine, image, tmp_path)
    assert said == "fake 1.1.0 (a build)"  # the pins learnt it: nothing else would have installed
    assert found.versions == {f"fake/{IMAGE}": ("1.0.0", "1.1.0")}
    assert (found.verdicts, found.unknown) == ((), ())
    result = Behaviour(bumps=(bump,), sizes=(), difference=found, results=tmp_path / "results")
    assert conclude(result, as_json=True) == 0
