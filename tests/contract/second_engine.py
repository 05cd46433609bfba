"""A second engine in a network namespace of its own, to be started and stopped at will."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sandbox.engine.host import Daemon, running

NEEDS = (
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can start an engine"),
    pytest.mark.skipif(shutil.which("dockerd") is None, reason="dockerd is not installed"),
)

# Its own network namespace keeps it from the other engine's bridge and packet filter.
START = (
    "ip link set lo up; echo started >>$1/starts; exec dockerd --data-root $1/data "
    "--exec-root $1/exec --pidfile $1/pid -H unix://$1/sock"
)


@contextmanager
def second_engine() -> Iterator[Daemon]:
    """Describe an engine below a short path (a socket's address has at most 107 octets)."""
    root = Path(subprocess.check_output(["mktemp", "-d", "/tmp/sbx-XXXXXX"], text=True).strip())
    made = Daemon(
        argv=("unshare", "--net", "sh", "-c", START, "sh", str(root)),
        host=f"unix://{root}/sock",
        pidfile=root / "pid",
        containerd_pidfile=root / "exec/containerd/containerd.pid",
        service=None,
        state=root / "state",
    )
    try:
        yield made
    finally:
        stop(made, signal.SIGTERM)
        if f" {root}/data " in Path("/proc/self/mounts").read_text():
            subprocess.run(["umount", str(root / "data")], check=True)  # a killed engine's
        shutil.rmtree(root)


def stop(daemon: Daemon, how: signal.Signals) -> None:
    """End the engine of ``daemon``, and reap it when it is this process's child."""
    pid = running(daemon.pidfile, "dockerd")
    if pid is None:
        return
    os.kill(pid, how)
    deadline = time.monotonic() + 120
    while Path(f"/proc/{pid}").exists():
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        assert time.monotonic() < deadline, f"engine {pid} does not end"
        time.sleep(0.05)
