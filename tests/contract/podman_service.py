"""Podman's service in namespaces of its own, with storage of its own, beside the shared engine."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.engine.apt import Apt
from sandbox.engine.client import Engine
from sandbox.engine.hostcommands import LocalCommands
from sandbox.errors import PrerequisiteMissing

READY_S = 60.0

# Its own network namespace keeps it from the other engine's bridge and packet filter, its own
# mounts go with it. rlimits: its defaults are above what a container without CAP_SYS_RESOURCE may
# have. runc where there is one: crun refuses hosts that mount both versions of control groups.
ENGINE = """\
[engine]
runtime = "{runtime}"
cgroup_manager = "cgroupfs"
events_logger = "none"
lock_type = "file"
tmp_dir = "{root}/tmp"
volume_path = "{root}/volumes"
network_config_dir = "{root}/networks"
[containers]
default_ulimits = ["nofile={files}:{files}", "nproc=4096:4096"]
log_driver = "none"
"""
STORAGE = """\
[storage]
driver = "overlay"
graphroot = "{root}/storage"
runroot = "{root}/run"
"""
START = "ip link set lo up; exec podman system service --time 0 unix://$1/sock"


def require_podman() -> None:
    """Install podman where a test may do that; else skip, with the reason."""
    if shutil.which("podman") is not None and os.geteuid() == 0:
        return
    apt = Apt(LocalCommands())
    if not (os.environ.get("CI") or os.environ.get("SANDBOX_REQUIRE_ENGINE")):
        pytest.skip("podman is not installed, or this user cannot start its service")
    if not apt.usable():
        raise PrerequisiteMissing("podman cannot be installed here", cure="run as root, with apt")
    apt.install(("podman", "catatonit"))


@contextmanager
def podman_service() -> Iterator[str]:
    """Serve below a short path (a socket's address has at most 107 octets); give its address."""
    root = Path(subprocess.check_output(["mktemp", "-d", "/tmp/sbx-XXXXXX"], text=True).strip())
    files = min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    runtime = "runc" if shutil.which("runc", path="/usr/sbin:/usr/bin:/sbin:/bin") else "crun"
    (root / "containers.conf").write_text(ENGINE.format(root=root, files=files, runtime=runtime))
    (root / "storage.conf").write_text(STORAGE.format(root=root))
    environ = {
        **os.environ,
        "CONTAINERS_CONF": str(root / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(root / "storage.conf"),
    }
    argv = ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", START, "sh"]
    try:
        with (root / "log").open("wb") as log:
            service = subprocess.Popen([*argv, str(root)], env=environ, stdout=log, stderr=log)
        try:
            _await(f"unix://{root}/sock", service, root / "log")
            yield f"unix://{root}/sock"
        finally:
            service.send_signal(signal.SIGTERM)
            service.wait(30)
    finally:
        shutil.rmtree(root)


def _await(host: str, service: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + READY_S
    while True:
        try:
            Engine.connect(host).close()
        except PrerequisiteMissing:
            assert service.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.1)
        else:
            return
