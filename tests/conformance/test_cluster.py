"""A run on a Dask cluster of real worker processes that share this machine's engine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandbox.conformance.cluster.driver import Patience
from sandbox.conformance.cluster.run import Scheduler, run_on_cluster
from sandbox.conformance.configuration import configuration
from sandbox.conformance.plan import cell_spec
from sandbox.conformance.prepare import prepare
from sandbox.conformance.world import World
from sandbox.engine.client import Engine
from sandbox.engine.owner import start_ticks
from sandbox.errors import ExitCode
from sandbox.evidence.cell import CellRecord, RunRecord
from sandbox.evidence.folder import find_cells, read_cell
from sandbox.harnesses.registry import registered
from sandbox.progress import PlainProgress
from sandbox.runtimes.collection import RuntimeCollection
from sandbox.runtimes.library import RuntimeLibrary
from tests.conformance.cli import ARGV, Ended, sandbox
from tests.conformance.dask_cluster import DaskCluster, containers_with, dask_cluster, wait_for
from tests.conformance.foreign import Foreign, install

pytestmark = pytest.mark.docker

IMAGE = "alpine-3.23"
PLAN = [f"pocket/{IMAGE}/{name}" for name in ("tool_success", "tool_failure", "model_error")]
TWO = PLAN[:2]


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    return install(tmp_path_factory.mktemp("foreign"))


@pytest.fixture(scope="module")
def cluster(
    foreign: Foreign, engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DaskCluster]:
    """Three workers with one slot each."""
    del engine  # only to be sure that there is one
    with dask_cluster(tmp_path_factory.mktemp("cluster"), foreign.env) as running:
        for name in ("w1", "w2", "w3"):
            running.worker(name)
        yield running


def run(cluster: DaskCluster, folder: Path, *cells: str) -> Ended:
    words = ("--scheduler", cluster.address, "--output", str(folder))
    return sandbox("conformance", *cells, *words, env=cluster.env)


def records(folder: Path) -> dict[str, CellRecord]:
    found = [read_cell(cell).cell for cell in find_cells(folder)]
    return {one.cell_id: one for one in found}


def verdicts(folder: Path) -> dict[str, dict[str, str]]:
    """Every check's status by cell, as the judge wrote them."""
    told = [json.loads((cell / "verdicts.json").read_text()) for cell in find_cells(folder)]
    return {
        one["cell_id"]: {each["check"]: each["status"] for each in one["verdicts"]} for one in told
    }


def nothing_is_left(engine: Engine, folder: Path) -> bool:
    run_id = json.loads((folder / "run.json").read_text())["run_id"]
    return not containers_with(engine, f"sandbox.run_id={run_id}")


def is_busy(engine: Engine, pid: int) -> bool:
    return bool(containers_with(engine, f"sandbox.pid={pid}"))


@contextmanager
def when(reached: Callable[[], object], do: Callable[[], None], what: str) -> Iterator[None]:
    """Do something beside the block, as soon as something is reached; it must be."""

    def watch() -> None:
        wait_for(reached, what)
        do()
        done.set()

    done = threading.Event()
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    yield
    watcher.join(5)
    assert done.is_set(), f"{what}: it was not seen before the run ended"


def test_three_workers_give_the_verdicts_of_a_local_run(
    cluster: DaskCluster, engine: Engine, tmp_path: Path
) -> None:
    local, spread = tmp_path / "local", tmp_path / "spread"
    codex = f"codex/{IMAGE}/tool_success"
    here = sandbox("conformance", *PLAN, codex, "--output", str(local), env=cluster.env)
    there = run(cluster, spread, *PLAN, codex)
    assert (here.code, there.code) == (0, 0), here.err + there.err
    assert verdicts(spread) == verdicts(local)
    assert records(spread).keys() == {*PLAN, codex}
    assert not any(one.earlier_attempts for one in records(spread).values())
    assert there.err.count(": recorded (") == len(PLAN) + 1
    assert "result" in there.out
    assert nothing_is_left(engine, spread)


def test_a_killed_workers_cell_is_run_elsewhere(
    cluster: DaskCluster, engine: Engine, tmp_path: Path
) -> None:
    victim = cluster.workers["w1"]
    folder = tmp_path / "run"
    with when(lambda: is_busy(engine, victim.pid), victim.kill, "a cell of w1"):
        ended = run(cluster, folder, *PLAN)
    victim.wait()
    cluster.worker("w1")
    assert ended.code == 0, ended.err
    tried = [one for one in records(folder).values() if one.earlier_attempts]
    assert [len(one.earlier_attempts) for one in tried] == [1]
    assert "worker w1 is gone" in tried[0].earlier_attempts[0].reason
    assert records(folder).keys() == {*PLAN}
    assert ended.err.count(": recorded (") == len(PLAN)
    assert nothing_is_left(engine, folder), "the dead worker's sandbox was not swept"


def test_ctrl_c_ends_the_cells_and_leaves_nothing(
    cluster: DaskCluster, engine: Engine, tmp_path: Path
) -> None:
    folder, cell = tmp_path / "run", f"pocket/{IMAGE}/run_timeout"
    words = ("conformance", cell, "--scheduler", cluster.address, "--output", str(folder))
    pids = [worker.pid for worker in cluster.workers.values()]
    with subprocess.Popen(
        [*ARGV, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **cluster.env},
    ) as process:
        wait_for(lambda: any(is_busy(engine, pid) for pid in pids), "the cell")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=400)
    assert process.returncode == ExitCode.INTERRUPTED, err
    assert records(folder).keys() == {cell}
    assert nothing_is_left(engine, folder)


@dataclass
class Lines(PlainProgress):
    """Keeps what is said."""

    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(quiet=True)

    def say(self, line: str) -> None:
        self.lines.append(line)


def test_a_worker_that_was_thought_lost_may_answer_late(
    cluster: DaskCluster,
    foreign: Foreign,
    engine: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(foreign.site))
    known, said, frozen = registered(), Lines(), cluster.workers["w2"]
    plan = tuple(cell_spec(name) for name in PLAN)
    with RuntimeCollection(RuntimeLibrary(), known.pins_files, progress=said) as library:
        images = prepare(engine, library, plan, said, "mount")
        asked = configuration(
            plan, profile="quick", repeat=1, isolation="auto", install="auto", conditions=(),
            images=images, runtimes=library.entries(),
        )  # fmt: skip
        record = RunRecord(
            run_id="late-answer", profile="quick", cells=asked.plan, started_at=0.0,
            configuration=asked,
        )  # fmt: skip
        world = World(
            engine=engine, images=images, harnesses=known.harnesses, library=library,
            run_id=record.run_id, folder=tmp_path, progress=said, way="mount",
        )  # fmt: skip
        silent = "worker w2 gave no sign of life"
        stop = when(lambda: is_busy(engine, frozen.pid), lambda: frozen.send_signal(signal.SIGSTOP),
                    "a cell of w2")  # fmt: skip
        go_on = when(lambda: any(silent in line for line in said.lines),
                     lambda: frozen.send_signal(signal.SIGCONT), "w2's silence")  # fmt: skip
        scheduler = Scheduler(address=cluster.address, patience=Patience(silence=10.0))
        with stop, go_on:
            run_on_cluster(plan, world, record=record, harnesses=known, scheduler=scheduler)
    assert records(tmp_path).keys() == {*PLAN}
    assert len([line for line in said.lines if ": recorded (" in line]) == len(PLAN)
    assert nothing_is_left(engine, tmp_path)


def test_a_wrong_pin_store_is_refused_by_name_and_an_empty_one_is_filled(
    foreign: Foreign, engine: Engine, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    shutil.copytree(foreign.site, site)
    lock = site / "pocket_harness/pins.lock"
    told = json.loads(lock.read_text())
    for bundle in told["bundles"]["pocket"].values():
        bundle["sha256"] = "0" * 64
    lock.write_text(json.dumps(told))
    nowhere = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "nowhere")}
    with dask_cluster(tmp_path / "cluster", foreign.env) as cluster:
        cluster.worker("wrong", env={"PYTHONPATH": str(site)})
        refused = run(cluster, tmp_path / "refused", *TWO)
        assert refused.code == ExitCode.PREREQUISITE
        assert "worker wrong: its pin of pocket linux-x64-musl is 1.0 sha256:000" in refused.err
        cluster.worker("empty", env={**nowhere, "XDG_CACHE_HOME": str(tmp_path / "cache")})
        ended = run(cluster, tmp_path / "run", *TWO)
        assert ended.code == 0, ended.err
        assert "left out: worker wrong" in ended.err
        assert "worker empty lacks runtime pocket linux-x64-musl: sending it" in ended.err
        assert records(tmp_path / "run").keys() == {*TWO}
        again = run(cluster, tmp_path / "again", TWO[0])
        assert (again.code, "sending it" in again.err) == (0, False), again.err
    bundles = tmp_path / "cache/sandbox/runtimes/bundles"
    assert [path.suffix for path in bundles.iterdir() if path.name[0] != "."].count(".tar") == 1
    assert not list(bundles.glob(".arrive-*")), "half a file was left"


def test_a_lost_scheduler_loses_nothing(foreign: Foreign, engine: Engine, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with dask_cluster(tmp_path / "cluster", foreign.env) as cluster:
        worker, scheduler = cluster.worker("w1"), cluster.scheduler
        assert scheduler is not None
        with when(lambda: find_cells(folder), scheduler.kill, "the first cell"):
            ended = run(cluster, folder, *PLAN)
        assert ended.code == ExitCode.ERROR, ended.err
        assert "is lost" in ended.err
        assert "--resume" in ended.err
        assert 1 <= len(records(folder)) < len(PLAN)
        wait_for(lambda: start_ticks(worker.pid) is None, "the end of its worker")
        assert not is_busy(engine, worker.pid), "the worker ended before its sandbox"
    with dask_cluster(tmp_path / "second", foreign.env) as cluster:
        cluster.worker("w1")
        words = ("--resume", str(folder), "--scheduler", cluster.address)
        ended = sandbox("conformance", *words, env=cluster.env)
    assert ended.code == 0, ended.err
    assert records(folder).keys() == {*PLAN}
    assert nothing_is_left(engine, folder)
