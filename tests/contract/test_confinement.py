"""What a sandbox is: confined, bounded, and still good for a task's work."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sandbox.engine.client import Engine
from sandbox.engine.limits import Limits
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import UsageError
from tests.contract.kit import run, said, sh, until

pytestmark = pytest.mark.docker


def test_what_a_sandbox_is(engine: Engine, box: Sandbox) -> None:
    told = engine.sdk.api.inspect_container(box.id)
    host = told["HostConfig"]
    assert host["Init"] is True
    assert host["NetworkMode"] == "none"
    assert host["CapDrop"] == ["ALL"]
    assert (host["PidsLimit"], host["Memory"]) == (1024, 4096 << 20)
    assert host["MemorySwap"] == host["Memory"]
    assert told["Config"]["Healthcheck"] == {"Test": ["NONE"]}
    assert said(sh(box, "ls /sys/class/net")) == "lo\n"
    status = said(sh(box, "cat /proc/self/status"))
    assert "NoNewPrivs:\t1" in status
    assert capabilities(status) == {0, 1, 3, 4, 5, 6, 7, 10}
    assert said(sh(box, "cat /proc/1/comm")) != "sleep\n"


def capabilities(status: str) -> set[int]:
    line = next(line for line in status.splitlines() if line.startswith("CapBnd:"))
    return {number for number in range(64) if int(line.split()[1], 16) >> number & 1}


def test_a_plain_user_has_no_capabilities(user_box: Sandbox) -> None:
    for user in ("1000:1000", "0"):
        assert capabilities(said(run(user_box, "cat", "/proc/self/status", user=user))) == set()


def test_root_can_do_a_tasks_work(box: Sandbox) -> None:
    script = """set -e; cd /opt; echo x >owned; chown 1234:1234 owned; chmod 4755 owned
        su -s /bin/sh nobody -c 'id -u'; su -s /bin/sh nobody -c 'sleep 50' >/dev/null 2>&1 &
        sleep 0.2; kill $!"""
    assert sh(box, script).ok
    assert sh(box, "mknod /opt/device c 1 3 || chroot / true").exit_code != 0


def test_tmp_is_in_memory_executable_and_bounded(make: Callable[..., Sandbox]) -> None:
    with make(limits=Limits(tmp_mib=16)) as own:
        assert said(run(own, "stat", "-c", "%a", "/tmp")) == "1777\n"
        script = "printf '#!/bin/sh\\necho ran' >/tmp/x; chmod +x /tmp/x; /tmp/x; rm /tmp/x"
        assert said(sh(own, script)) == "ran\n"
        assert sh(own, "dd if=/dev/zero of=/tmp/full bs=1M count=32").exit_code != 0
        assert said(sh(own, "wc -c </tmp/full")).strip() == str(16 << 20)


def test_pids_are_bounded(make: Callable[..., Sandbox]) -> None:
    with make(limits=Limits(pids=20)) as own:
        result = sh(own, "i=0; while [ $i -lt 60 ]; do sleep 30 & i=$((i+1)); done", deadline_s=3)
        assert result.exit_code != 0
        assert until(lambda: len(own.processes()) <= 20)


@pytest.mark.parametrize("broken", [{"memory_mib": 5}, {"pids": 0}, {"tmp_mib": 0}])
def test_limits_must_leave_room(broken: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        Limits(**broken)


def test_env_and_workdir_of_the_sandbox(make: Callable[..., Sandbox]) -> None:
    with make(env={"KIT": "a b\nc"}, workdir="/made/for/it") as own:
        assert said(sh(own, 'printf %s "$KIT"')) == "a b\nc"
        assert said(run(own, "pwd")) == "/made/for/it\n"
        assert said(run(own, "printenv", "KIT", env={"KIT": "other"})) == "other\n"
