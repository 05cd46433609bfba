"""``kill -9`` of a real run at random moments of its whole life: what the next start must undo.

A harness in sh from another package makes cells that last about a second, so that every phase of a
run is hit. After each kill the run is gone on with (or, if it had not begun or nothing of it is
missing, engine and temporary folder are swept by another start), and then nothing of the killed
process may be left, while a sandbox, a network and a volume of a living owner are as they were.

``make kill-runner`` kills 50 times; here are a few (``--kills``, ``--kill-seed``).
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandbox.cache import cache_root
from sandbox.engine.client import Engine
from sandbox.engine.link import open_link
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.engine.sweep import create_volume, remove_volume
from sandbox.evidence.folder import find_cells, read_cell
from sandbox.progress import PlainProgress
from tests.conformance.cli import ARGV, Ended, sandbox
from tests.conformance.foreign import Foreign, install

pytestmark = pytest.mark.docker

CELLS = ("tool_success", "tool_failure", "model_error")
WORDS = tuple(f"pocket/alpine-3.23/{name}" for name in CELLS)
MARK = "SANDBOX_KILL_TEST"
GONE_WITHIN_S = 30.0
STRIPES = 10


@dataclass(frozen=True)
class Stage:
    """Where the killed processes live: a package, a cache and a temporary folder of their own."""

    foreign: Foreign
    root: Path
    mark: str

    @property
    def temporary(self) -> Path:
        return self.root / "tmp"

    @property
    def runtimes(self) -> Path:
        return self.root / "cache" / "sandbox" / "runtimes"

    @property
    def env(self) -> dict[str, str]:
        return {
            **self.foreign.env,
            "XDG_CACHE_HOME": str(self.root / "cache"),
            "TMPDIR": str(self.temporary),
            MARK: self.mark,
        }

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*ARGV, *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **self.env},
        )

    def run(self, *words: str) -> Ended:
        return sandbox(*words, env=self.env)

    def processes(self) -> list[str]:
        """Name this machine's living processes that carry the mark, wherever they are."""
        wanted = f"{MARK}={self.mark}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return found


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = Stage(install(tmp_path / "foreign"), tmp_path, uuid.uuid4().hex)
    made.temporary.mkdir()
    made.runtimes.parent.mkdir(parents=True)
    for shared in ("images", "engine"):  # images are made by other tests
        (made.runtimes.parent / shared).symlink_to(cache_root() / shared)
    return made


@dataclass
class Bystander:
    """A run of a living owner beside the killed ones: sandbox with a process, network, volume."""

    engine: Engine
    box: Sandbox
    volume: str
    before: object = field(init=False)

    def __post_init__(self) -> None:
        script = "echo mine >/root/kept; nohup sleep 4747 >/dev/null 2>&1 &"
        assert self.box.exec(["sh", "-c", script], deadline_s=30).exit_code == 0
        self.before = self.seen()

    def seen(self) -> object:
        """Everything of it that a sweep could harm."""
        state = self.engine.sdk.api.inspect_container(self.box.id)
        networks = sorted(state["NetworkSettings"]["Networks"])
        return (
            state["State"]["Pid"],
            state["State"]["StartedAt"],
            state["RestartCount"],
            networks,
            [process.identity for process in self.box.processes()],
            self.box.read("/root/kept"),
            self.engine.sdk.api.inspect_volume(self.volume)["CreatedAt"],
        )


@pytest.fixture
def bystander(engine: Engine, image_refs: dict[str, str]) -> Iterator[Bystander]:
    owner = Ownership.current(run_id=f"bystander-{uuid.uuid4().hex[:8]}")
    volume = f"{owner.run_id}-volume"
    with ExitStack() as stack:
        quiet = PlainProgress(quiet=True)
        link = stack.enter_context(open_link(engine, owner, isolation="bridge", progress=quiet))
        box = Sandbox(engine, image_refs["alpine-3.23"], owner=owner, link=link)
        stack.enter_context(box)
        create_volume(engine, volume, owner)
        stack.callback(remove_volume, engine, volume)
        yield Bystander(engine, box, volume)


@dataclass
class Left:
    """What is there of a process, by kind."""

    containers: list[str]
    networks: list[str]
    volumes: list[str]
    groups: list[str]
    files: list[str]
    processes: list[str]

    def kinds(self) -> list[str]:
        return [kind for kind, names in vars(self).items() if names]


def left_of(engine: Engine, pid: int, ids: set[str], stage: Stage, folder: Path) -> Left:
    """Look for everything that the killed process may have left; ``ids``: its containers."""
    label, api = {"label": [f"sandbox.pid={pid}"]}, engine.sdk.api
    found = [str(one["Id"]) for one in api.containers(all=True, filters=label)]
    ids.update(found)
    return Left(
        containers=found,
        networks=[str(one["Name"]) for one in api.networks(filters=label)],
        volumes=[str(one["Name"]) for one in api.volumes(filters=label)["Volumes"] or ()],
        groups=[str(path) for name in ids for path in groups_of(name)],
        files=[str(path) for path in unready(stage, folder)],
        processes=stage.processes(),
    )


def groups_of(container: str) -> list[Path]:
    """Find the control groups of a container, ours of its commands included."""
    root = Path("/sys/fs/cgroup")
    return [path for depth in ("*", "*/*", "*/*/*") for path in root.glob(f"{depth}/*{container}*")]


def unready(stage: Stage, folder: Path) -> Iterator[Path]:
    """Find temporary files: in the temporary folder, of the run, and in the cache."""
    yield from stage.temporary.iterdir()
    if folder.is_dir():
        yield from folder.glob(".cell-*")
        yield from folder.rglob(".*.tmp-*")
    if stage.runtimes.is_dir():
        yield from stage.runtimes.rglob(".*.tmp-*")


def until(reached: Callable[[], object]) -> None:
    """Wait for it to be so, at most ``GONE_WITHIN_S``."""
    end = time.monotonic() + GONE_WITHIN_S
    while not reached() and time.monotonic() < end:
        time.sleep(0.1)


@dataclass
class Kills:
    """All kills of one test: when they came, and what lay there right afterwards."""

    seed: int
    life_s: float
    moments: list[float] = field(default_factory=list)
    hit: Counter[str] = field(default_factory=Counter)

    def lines(self) -> Iterator[str]:
        begun = sum(share < 1 for share in self.moments)
        times = len(self.moments)
        yield f"kill -9 of a run: {times} times, seed {self.seed}, {begun} of them alive"
        stripes = Counter(min(int(share * STRIPES), STRIPES - 1) for share in self.moments)
        for stripe in range(STRIPES):
            at = stripe * self.life_s / STRIPES
            yield f"kill -9 of a run: from {at:5.1f} s {'#' * stripes[stripe]}"
        had = ", ".join(f"{kind} {count}" for kind, count in sorted(self.hit.items()))
        yield f"kill -9 of a run: left by so many of the kills, until the next start: {had}"


def warm_life(stage: Stage) -> float:
    """Run the cells once, undisturbed; how long a run lives in seconds."""
    began = time.monotonic()
    ended = stage.run("conformance", *WORDS, "--output", str(stage.root / "undisturbed"))
    assert ended.code == 0, ended.out + ended.err
    return time.monotonic() - began


def test_nothing_of_a_killed_run_outlives_the_next_start(
    engine: Engine,
    stage: Stage,
    bystander: Bystander,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    seed = request.config.getoption("kill_seed")
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    chance = random.Random(seed)
    kills = Kills(seed=seed, life_s=warm_life(stage))
    for number in range(request.config.getoption("kills")):
        if chance.random() < 0.25:  # a part of the lives fetches and unpacks the runtime too
            shutil.rmtree(stage.runtimes, ignore_errors=True)
        where = f"seed {seed}, kill {number}"
        folder = stage.root / f"run-{number}"
        one_kill(engine, stage, kills, chance.random(), folder=folder, where=where)
        assert bystander.seen() == bystander.before, (
            f"{where}: a living owner's things were touched"
        )
    for line in kills.lines():
        record_property("figure", line)


def one_kill(
    engine: Engine, stage: Stage, kills: Kills, share: float, *, folder: Path, where: str
) -> None:
    """Kill a run at that share of its life, go on with it, and look for what is left."""
    ids: set[str] = set()
    process = stage.start("conformance", *WORDS, "--output", str(folder))
    try:
        process.wait(share * kills.life_s)
        kills.moments.append(1.0)
    except subprocess.TimeoutExpired:
        kills.moments.append(share)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kills.hit.update(left_of(engine, process.pid, ids, stage, folder).kinds())
    go_on(stage, folder, where)
    until(lambda: not left_of(engine, process.pid, ids, stage, folder).kinds())
    left = left_of(engine, process.pid, ids, stage, folder)
    assert left.kinds() == [], f"{where}: {left}"
    shutil.rmtree(folder, ignore_errors=True)


def go_on(stage: Stage, folder: Path, where: str) -> None:
    """Start again: the run's rest if there is one, whose every cell is whole then, or a sweep."""
    begun = (folder / "run.json").is_file()
    again = stage.run("conformance", "--resume", str(folder)) if begun else None
    whole = again is not None and again.code == 3 and "nothing is missing" in again.err
    if again is None or whole:  # nothing was started
        swept = stage.run("sweep")
        assert swept.code == 0, f"{where}: {swept.err}"
    if again is None:
        return
    assert whole or again.code == 0, f"{where}: {again.code} {again.out} {again.err}"
    cells = [read_cell(path) for path in find_cells(folder)]
    assert {cell.cell.scenario for cell in cells} == set(CELLS), where
    assert all(cell.problems == {} and cell.cell.refusal is None for cell in cells), where
    assert stage.run("judge", str(folder)).code == 0, where
