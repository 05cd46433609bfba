"""A Dask scheduler and its workers, as processes on the loopback; ports are the system's choice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.engine.client import Engine

START_S = 240.0
QUIET = {"DASK_DISTRIBUTED__DIAGNOSTICS__NVML": "False"}


@dataclass
class DaskCluster:
    """A running scheduler; ``folder`` has its file and the logs."""

    folder: Path
    env: Mapping[str, str]
    scheduler: subprocess.Popen[bytes] | None = None
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return (self.folder / "address").read_text().strip()

    def start(self) -> None:
        words = ("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        self.scheduler = self._process("scheduler", *words)
        self._wait_for("scheduler", "Scheduler at:", self.scheduler)
        line = next(line for line in self.log("scheduler") if "Scheduler at:" in line)
        (self.folder / "address").write_text("tcp://" + line.rpartition("tcp://")[2].strip())

    def worker(
        self, name: str, *, slots: int | None = 1, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a worker and wait until the scheduler has it."""
        words = ["dask_worker", self.address, "--no-nanny", "--no-dashboard", "--name", name]
        words += ["--host", "127.0.0.1", "--memory-limit", "0", "--nthreads", str(slots or 1)]
        words += ["--local-directory", str(self.folder / f"{name}.space")]
        words += [] if slots is None else ["--resources", f"engine={slots}"]
        process = self.workers[name] = self._process(name, *words, env=env)
        self._wait_for(name, "Registered to:", process)
        return process

    def log(self, name: str) -> list[str]:
        return (self.folder / f"{name}.log").read_text(errors="replace").splitlines()

    def _process(
        self, name: str, *words: str, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", f"distributed.cli.{words[0]}", *words[1:]],
                stdout=log,
                stderr=log,
                env={**os.environ, **QUIET, **self.env, **(env or {})},
            )

    def _wait_for(self, name: str, text: str, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + START_S
        while not any(text in line for line in self.log(name)):
            assert process.poll() is None, "\n".join(self.log(name))
            assert time.monotonic() < until, f"{name} says no {text!r} within {START_S:.0f} s"
            time.sleep(0.05)


def containers_with(engine: Engine, label: str) -> list[str]:
    """The containers that carry a label, as ``sandbox.run_id=...``."""
    found = engine.sdk.api.containers(all=True, filters={"label": [label]})
    return [str(one["Id"]) for one in found]


def wait_for(reached: Callable[[], object], what: str, within_s: float = 400.0) -> None:
    until = time.monotonic() + within_s
    while not reached():
        assert time.monotonic() < until, f"{what}: not within {within_s:.0f} s"
        time.sleep(0.02)


@contextmanager
def dask_cluster(folder: Path, env: Mapping[str, str] | None = None) -> Iterator[DaskCluster]:
    """Run a scheduler while inside; its workers are ended with it."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = DaskCluster(folder, env or {})
    try:
        cluster.start()
        yield cluster
    finally:
        processes = [*cluster.workers.values(), *filter(None, [cluster.scheduler])]
        for process in processes:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
