"""A cell folder depends on its job alone: on no process, folder, or earlier cell."""

from __future__ import annotations

import datetime as dt
import json
import os
import pickle
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from sandbox.conformance.cellpack import place
from sandbox.conformance.configuration import scenario_digest
from sandbox.conformance.job import CellJob
from sandbox.conformance.plan import cell_spec
from sandbox.conformance.prepare import prepare_images
from sandbox.conformance.scenarios import SCENARIOS
from sandbox.engine.client import Engine
from sandbox.engine.shipping import image_content
from sandbox.engine.workroom import own_prefix
from sandbox.evidence.baseline import Baseline
from sandbox.evidence.cell import CellRecord, Refusal
from sandbox.evidence.folder import cell_folder, read_cell
from sandbox.evidence.judge import judge
from sandbox.progress import PlainProgress
from tests.conformance.cli import sandbox
from tests.conformance.foreign import Foreign, install
from tests.contract.kit import until

pytestmark = pytest.mark.docker

CELL = "pocket/alpine-3.23/tool_failure"
DO_IT = """
import pickle, sys
from sandbox.conformance.workplace import Workplace
job = pickle.load(sys.stdin.buffer)
with Workplace.opened(job.run_id) as place:
    sys.stdout.buffer.write(place.run(job))
"""


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    return install(tmp_path_factory.mktemp("foreign"))


@pytest.fixture(scope="module")
def job(foreign: Foreign, engine: Engine) -> CellJob:
    spec = cell_spec(CELL)
    image = prepare_images(engine, [spec.image], PlainProgress(quiet=True))[spec.image]
    locked = json.loads(foreign.pins.with_suffix(".lock").read_text())
    bundle = locked["bundles"]["pocket"][image.platform]
    return CellJob(
        spec=spec,
        run_id=f"job-{uuid.uuid4().hex[:8]}",
        image=image,
        image_content=image_content(engine, image),
        pin=f"{bundle['version']} sha256:{bundle['sha256']}",
        scenario=scenario_digest(SCENARIOS[spec.scenario]),
    )


def environment(foreign: Foreign, folder: Path) -> dict[str, str]:
    env = {**os.environ, **foreign.env, "HOME": str(folder), "TMPDIR": str(folder)}
    env.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    return env


def done(job: CellJob, foreign: Foreign, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """Do the job in a new process that works in a folder of its own."""
    folder.mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", DO_IT],
        input=pickle.dumps(job),
        capture_output=True,
        cwd=folder,
        env=environment(foreign, folder),
        timeout=300,
        check=False,
    )
    assert list(folder.iterdir()) == [], "the job left something behind"
    return ended


def verdicts(run: Path) -> dict[str, tuple[str, str]]:
    today = dt.datetime.now(dt.UTC).date()
    (cell,) = judge(run, baseline=Baseline(), today=today).cells
    return {one.check: (one.status.value, one.reason) for one in cell.verdicts}


def test_two_processes_give_the_same_cell_and_the_second_replaces_the_first(
    job: CellJob, foreign: Foreign, tmp_path: Path
) -> None:
    run, seen, records = tmp_path / "run", [], list[CellRecord]()
    for name in ("first", "second"):
        ended = done(job, foreign, tmp_path / name)
        assert ended.returncode == 0, ended.stderr.decode()
        records.append(place(run, CELL, ended.stdout, run_id=job.run_id))
        seen.append(verdicts(run))
    assert {status for status, _ in seen[0].values()} <= {"pass", "not_applicable"}
    assert {name: status for name, (status, _) in seen[0].items()} == {
        name: status for name, (status, _) in seen[1].items()
    }
    assert records[0].rollout_id != records[1].rollout_id
    files = read_cell(cell_folder(run, CELL))
    assert files.cell == records[1]
    told = {exchange.rollout_id for exchange in files.exchanges or ()}
    assert told == {records[1].rollout_id}, "no line of the first is left"


@pytest.mark.parametrize("wrong", ["pin", "scenario"])
def test_a_job_is_not_done_with_another_runtime_or_scenario(
    wrong: str, job: CellJob, foreign: Foreign, tmp_path: Path
) -> None:
    other = job.model_copy(update={wrong: "1.0 sha256:00"})
    ended = done(other, foreign, tmp_path / "work")
    assert ended.returncode != 0
    assert b"the job's 1.0 sha256:00" in ended.stderr


def test_what_was_lost_before_is_part_of_the_job_and_of_the_folder(
    job: CellJob, foreign: Foreign, tmp_path: Path
) -> None:
    lost = Refusal(kind="error", reason="worker w1 is gone")
    ended = done(job.model_copy(update={"earlier": (lost,)}), foreign, tmp_path / "work")
    record = place(tmp_path / "run", CELL, ended.stdout, run_id=job.run_id)
    assert record.earlier_attempts == (lost,)


def test_the_folder_of_a_killed_job_goes_with_the_next_sweep(
    job: CellJob, foreign: Foreign, tmp_path: Path
) -> None:
    living = tmp_path / f"{own_prefix()}job-living"
    living.mkdir()
    env = environment(foreign, tmp_path)
    with subprocess.Popen([sys.executable, "-c", DO_IT], stdin=subprocess.PIPE, env=env) as worker:
        assert worker.stdin is not None
        worker.stdin.write(pickle.dumps(job))
        worker.stdin.close()
        try:
            assert until(lambda: len(list(tmp_path.glob("*-job-*"))) == 2, 120)
        finally:
            worker.kill()
    ended = sandbox("sweep", env={"TMPDIR": str(tmp_path)})
    assert ended.code == 0, ended.err
    assert f"removed folder {tmp_path}/sandbox-work-{worker.pid}-" in ended.out
    assert list(tmp_path.glob("sandbox-*")) == [living]
