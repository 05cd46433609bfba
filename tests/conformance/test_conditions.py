"""Hard conditions: every cell ends typed, in time and clean, as its preflight foretold.

The fake harness is real where it matters here: install, supervisor, requests, tools, files.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from sandbox.conformance.cell import run_cell
from sandbox.conformance.conditions import CONDITIONS, YEAR_S, limits_under, shift_times
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.prepare import prepare_images
from sandbox.conformance.scenarios import SCENARIOS
from sandbox.conformance.world import World
from sandbox.engine.archive import PutFile
from sandbox.engine.client import Engine
from sandbox.engine.imagebuild.commands import Host
from sandbox.engine.imagebuild.definition import ImageDef, image_definitions, load_definition
from sandbox.engine.images import LoadedImage, ensure_image
from sandbox.engine.limits import Limits
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import UsageError
from sandbox.evidence.folder import CellFiles, cell_folder, read_cell
from sandbox.evidence.rows import SuccessRow
from sandbox.progress import PlainProgress
from sandbox.runtimes.library import RuntimeLibrary
from tests.conformance.fake_harness import FakeHarness, FakeLibrary
from tests.conftest import FaultClock

pytestmark = pytest.mark.docker
QUIET = PlainProgress(quiet=True)
SCENARIO = "tool_success"
PLAIN, NONROOT = "alpine-3.23", "alpine-3.23-nonroot"


def ran(
    engine: Engine, folder: Path, image: LoadedImage, conditions: tuple[str, ...] = ()
) -> CellFiles:
    """Run one cell and give what was recorded of it."""
    world = World(
        engine=engine,
        images={image.name: image},
        harnesses={"fake": FakeHarness(SCENARIOS[SCENARIO])},
        library=cast("RuntimeLibrary", FakeLibrary(folder, image.platform)),
        run_id=f"conditions-{uuid.uuid4().hex[:8]}",
        folder=folder,
        progress=QUIET,
        conditions=conditions,
    )
    spec = CellSpec(harness="fake", image=image.name, scenario=SCENARIO)
    run_cell(spec, world)
    files = read_cell(cell_folder(folder, spec.cell_id))
    assert files.problems == {}
    assert files.cell.conditions == conditions
    if files.witness is not None:
        assert files.witness.teardown is not None
        assert files.witness.teardown.container_gone
        assert files.witness.teardown.errors == ()
    return files


def graded(files: CellFiles) -> bool:
    assert files.cell.refusal is None, files.cell.refusal
    assert isinstance(files.row, SuccessRow), files.row
    return files.row.reward == 1


@pytest.mark.parametrize(
    ("image", "conditions", "root"),
    [
        (PLAIN, ("read-only-root",), "/tmp/"),
        (NONROOT, ("read-only-root",), "/tmp/"),
        (PLAIN, ("noexec-tmp",), "/var/tmp/"),
        (NONROOT, ("read-only-tmp",), "/var/tmp/"),
        (PLAIN, ("tiny-tmp",), "/var/tmp/"),
        (PLAIN, ("tiny-shm", "few-pids", "little-memory"), "/var/tmp/"),
        (NONROOT, ("odd-workdir", "bare-environment"), "/tmp/"),
        (PLAIN, ("long-workdir",), "/tmp/"),
        (PLAIN, ("linked-workdir", "read-only-root"), "/tmp/"),
        (PLAIN, ("clock-ahead", "odd-workdir"), "/tmp/"),
        (NONROOT, ("clock-behind",), "/tmp/"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else None,
)
def test_under_a_hard_condition_the_agent_finds_another_place(
    engine: Engine,
    tmp_path: Path,
    image: str,
    conditions: tuple[str, ...],
    root: str,
    fault: FaultClock,
) -> None:
    fault.strikes()
    files = ran(engine, tmp_path, prepare_images(engine, [image], QUIET)[image], conditions)
    fault.ended("graded")
    assert graded(files)
    ends = [CONDITIONS[name].link or CONDITIONS[name].workdir for name in conditions]
    assert all((files.cell.workdir or "").endswith(f"/{end}") for end in ends if end)
    assert (files.cell.session_dir or "").startswith(root)


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        (("read-only-root", "noexec-tmp"), "/tmp: mounted noexec; /var/tmp: mounted read-only"),
        (("read-only-root", "read-only-tmp"), "/tmp: mounted read-only"),
        (("read-only-root", "tiny-tmp"), "MiB needed"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else None,
)
def test_without_any_place_it_is_refused_with_all_reasons(
    engine: Engine, tmp_path: Path, conditions: tuple[str, ...], said: str, fault: FaultClock
) -> None:
    image = prepare_images(engine, [NONROOT], QUIET)[NONROOT]
    fault.strikes()
    refusal = ran(engine, tmp_path, image, conditions).cell.refusal
    fault.ended("refused with its reasons")
    assert refusal is not None
    assert refusal.kind == "unsupported"
    assert said in refusal.reason
    assert refusal.cure


@pytest.fixture
def odd(tmp_path: Path, engine: Engine) -> Iterator[ImageDef]:
    """An image with a workdir behind a link, spaces and other letters in it, and no environment."""
    root = tmp_path / "images"
    shutil.copytree(image_definitions()[PLAIN].folder, root / PLAIN)
    name = f"test-{uuid.uuid4().hex[:12]}"
    folder = root / name
    folder.mkdir()
    text = (root / PLAIN / "image.toml").read_text().partition("[config]")[0]
    text = text.replace(f'name = "{PLAIN}"', f'name = "{name}"').replace("default = true\n", "")
    (folder / "image.toml").write_text(
        text
        + '[config]\nworkdir = "/task"\n[recipe]\nkind = "derived"\n'
        + f'base = "{PLAIN}"\n[layout.folders]\n"/srv/ein wörk dir" = {{}}\n'
        + '[layout.links]\n"/srv/ein wörk dir" = ["/task"]\n',
        encoding="utf-8",
    )
    yield load_definition(folder)
    for image in engine.sdk.images.list(f"sandbox/{name}"):
        engine.sdk.images.remove(image.id, force=True)
    for path in Host().images.glob(f"{name}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_a_linked_workdir_with_odd_letters_and_an_empty_environment(
    engine: Engine, tmp_path: Path, odd: ImageDef
) -> None:
    files = ran(engine, tmp_path, ensure_image(engine, odd, QUIET))
    assert graded(files)
    assert files.cell.workdir == "/srv/ein wörk dir"


def test_the_sandbox_is_what_the_conditions_say(engine: Engine) -> None:
    ref = prepare_images(engine, [PLAIN], QUIET)[PLAIN].ref
    script = """
        echo root >/probe 2>/dev/null && echo root can be written
        echo task >probe 2>/dev/null && echo workdir can be written
        df -Pk /dev/shm /tmp | awk 'NR > 1 { print $2 }'
        awk '$5 == "/tmp" { print $6 }' /proc/self/mountinfo
    """
    limits = Limits(read_only_root=True, tmp="noexec", shm_mib=1, tmp_mib=16)
    owner = Ownership.current(run_id="test", cell_id="conditions")
    with Sandbox(engine, ref, owner=owner, limits=limits) as box:
        said = box.exec(["sh", "-c", script], deadline_s=30).stdout.text.splitlines()
    assert said[:3] == ["workdir can be written", "1024", "16384"]
    assert "noexec" in said[3].split(",")


@pytest.mark.parametrize("name", ["clock-ahead", "clock-behind"])
def test_the_times_of_the_tasks_files_are_a_year_off(engine: Engine, name: str) -> None:
    ref = prepare_images(engine, [NONROOT], QUIET)[NONROOT].ref
    owner = Ownership.current(run_id="test", cell_id="clock")
    now = time.time()
    with Sandbox(engine, ref, owner=owner) as box:
        folder = box.facts().workdir
        box.put([PutFile(path="a b/file", data=b"x")], folder)
        shift_times(box, folder, ["a b/file"], ["tiny-shm", name], now=now)
        said = box.exec(["stat", "-c", "%Y", "a b/file"], cwd=folder, deadline_s=30)
        shift_times(box, folder, ["a b/file"], ["tiny-shm"], now=0)
    years = {"clock-ahead": 1, "clock-behind": -1}
    assert int(said.stdout.text) == int(now) + years[name] * YEAR_S


def test_conditions_add_up_and_an_unknown_one_is_refused() -> None:
    assert limits_under(["tiny-shm", "few-pids"]) == Limits(shm_mib=1, pids=16)
    with pytest.raises(UsageError, match="read-only-root"):
        limits_under(["dark"])
    changed = [
        one.workdir or one.bare or one.ahead_s or limits_under([n]) != Limits()
        for n, one in CONDITIONS.items()
    ]
    assert all(changed)


def test_a_bare_environment_has_nothing_of_the_image(engine: Engine) -> None:
    ref = prepare_images(engine, [NONROOT], QUIET)[NONROOT].ref
    owner = Ownership.current(run_id="test", cell_id="bare")
    with Sandbox(engine, ref, owner=owner, bare=True, env={"OWN": "1"}) as box:
        lines = box.exec(["env"], deadline_s=30).stdout.text.splitlines()
        names = {line.partition("=")[0] for line in lines}
        assert names <= {"PATH", "HOSTNAME", "HOME", "OWN"}
        assert "OWN=1" in lines
        assert set(box.facts().env) <= {"PATH", "OWN"}
