"""What ``make bench-scale`` refuses, what it counts, and that it leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scale.bench import NEAR_LINEAR, Measured, faults, growth_of, on_disk, stated_mib

ROOT = Path(__file__).parents[2]


def runs(cost: Callable[[int], float], mib: float = 60.0) -> list[Measured]:
    return [Measured(n, cost(n), 1.0, mib) for n in (25_000, 50_000, 100_000)]


def test_what_is_linear_or_nearly_is_no_fault() -> None:
    assert faults({"merge": runs(lambda n: n / 250), "plan": runs(lambda n: n**1.1 / 500)}) == []


@pytest.mark.parametrize("power", [1.2, 2.0])
def test_what_grows_faster_is_a_fault(power: float) -> None:
    (fault,) = faults({"merge": runs(lambda n: n**power / 1000), "part": runs(lambda n: n / 250)})
    assert fault.startswith("merge: CPU time per cell grows by ")


def test_the_time_that_python_starts_in_hides_no_growth() -> None:
    start, squared = 0.5, 30 / 100_000**2
    short = runs(lambda n: start + squared * n**2)
    assert short[0].cpu_s > 2.0
    assert (growth_of(short) or 0) > NEAR_LINEAR
    assert growth_of([Measured(10, 0.5, 1.0, 50.0), Measured(40, 2.5, 1.0, 50.0)]) is None


def test_memory_above_what_is_stated_is_a_fault() -> None:
    most = stated_mib(25_000)
    assert faults({"merge": runs(lambda n: n / 250, most)}) == []
    (fault,) = faults({"merge": runs(lambda n: n / 250, most + 1)})
    assert fault.startswith("merge of 25000 cells: ")


def test_making_the_run_is_not_judged() -> None:
    assert faults({"make": runs(lambda n: n**2, 10_000.0)}) == []


def test_a_file_with_many_names_is_counted_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one").write_bytes(b"x" * 2**20)
    os.link(tmp_path / "a" / "one", tmp_path / "two")
    found = on_disk(tmp_path)
    assert found.inodes == 2
    assert found.mib == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_when_it_is_ended(number: signal.Signals, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.scale.bench", "--sizes", "50000"]
    quiet = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        words, cwd=ROOT, env=quiet, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        _until(lambda: any(tmp_path.glob("scale-*/part0/cells/*")))
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode != 0
    assert list(tmp_path.iterdir()) == []


def _until(seen: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not seen():
        assert time.monotonic() < deadline, "no cell was made in 60 s"
        time.sleep(0.02)
