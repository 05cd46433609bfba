"""facts, processes, diff and resources: what is seen is what is there."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.engine.archive import PutFile
from sandbox.engine.limits import Limits
from sandbox.engine.sandbox import Sandbox
from tests.contract.kit import run, said, sh, until

pytestmark = pytest.mark.docker

HOG = "dd if=/dev/zero of=/dev/null bs=256M count=1"
LOADERS = {"glibc": "ld-linux", "musl": "ld-musl"}


def test_libc_and_platform(box: Sandbox) -> None:
    facts = box.facts()
    architecture = {"x86_64": "x64", "aarch64": "arm64"}[platform.machine()]
    word = {"glibc": "gnu", "musl": "musl"}[facts.libc]
    assert facts.platform == f"linux-{architecture}-{word}"
    assert any(LOADERS[facts.libc] in loader for loader in facts.loaders)
    if architecture == "x64":
        flags = Path("/proc/cpuinfo").read_text().partition("\nflags")[2].partition("\n")[0].split()
        assert facts.cpu is not None
        assert (facts.cpu >= "x86-64-v2") == ("sse4_2" in flags)
        assert (facts.cpu >= "x86-64-v3") == ("avx2" in flags)
    assert facts.libc_version is not None
    if facts.libc == "glibc":
        assert said(run(box, "getconf", "GNU_LIBC_VERSION")) == f"glibc {facts.libc_version}\n"
    else:
        assert f"Version {facts.libc_version}\n" in run(box, facts.loaders[0]).stderr.text


def test_facts_agree_with_the_image(box: Sandbox) -> None:
    facts = box.facts()
    assert facts.libc == {"debian": "glibc", "alpine": "musl"}[facts.distribution.split()[0]]
    assert (facts.uid, facts.gid, facts.user) == (0, 0, "root")
    assert (facts.home, facts.passwd_home) == ("/root", "/root")
    assert facts.sh == {"glibc": "dash", "musl": "ash"}[facts.libc]
    tests = " && ".join(f"test -x {path}" for path in facts.tools.values())
    assert sh(box, tests).ok
    assert all(path.endswith(f"/{tool}") for tool, path in facts.tools.items())
    assert "sh" in facts.tools
    assert "tar" in facts.tools
    assert "no-such-tool" not in facts.tools
    assert (facts.ca_file is not None) == sh(box, "test -s /etc/ssl/certs/ca-certificates.crt").ok


def test_writable_places(box: Sandbox, user_box: Sandbox) -> None:
    places = {place.path: place.executable for place in box.facts().writable}
    assert places["/root"]
    assert places["/tmp"]
    assert places["/dev/shm"] is False
    mine = {place.path for place in user_box.facts().writable}
    assert "/tmp" in mine
    assert not {"/", "/root", "/etc"} & mine


def test_facts_of_a_bare_uid(make: Callable[..., Sandbox]) -> None:
    with make(user="4242:4343", workdir="/workspace") as own:
        facts = own.facts()
    assert (facts.uid, facts.gid, facts.user, facts.passwd_home) == (4242, 4343, None, None)
    assert (facts.workdir, facts.home) == ("/workspace", "/")


def test_facts_of_a_named_user(make: Callable[..., Sandbox]) -> None:
    with make(user="nobody") as own:
        facts = own.facts()
        assert facts.user == "nobody"
        assert said(sh(own, "id -u; id -g; echo $HOME")).split() == [
            str(facts.uid),
            str(facts.gid),
            facts.home,
        ]
        own.put([PutFile(path="mine", data=b"")], "/opt/mine")
        assert said(run(own, "stat", "-c", "%u %g", "/opt/mine/mine")) == (
            f"{facts.uid} {facts.gid}\n"
        )


def test_facts_are_found_out_once(box: Sandbox) -> None:
    assert box.facts() is box.facts()


@pytest.mark.parametrize("tracking", ["auto", "scan"])
def test_processes(make: Callable[..., Sandbox], tracking: str) -> None:
    with make(tracking=tracking) as own:
        assert own.processes() == ()
        said(
            sh(
                own,
                "sleep 600 >/dev/null 2>&1 & su -s /bin/sh nobody -c 'sleep 700' >/dev/null 2>&1 &",
            )
        )
        assert until(lambda: ("sleep", "700") in [process.argv for process in own.processes()])
        seen = {process.argv: process for process in own.processes()}
        assert seen["sleep", "600"].uid == 0
        assert seen["sleep", "600"].parent == 1
        nobody = int(said(sh(own, "id -u nobody")))
        assert seen["sleep", "700"].uid == nobody
        status = said(sh(own, f"cat /proc/{seen['sleep', '600'].pid}/comm"))
        assert status == "sleep\n"


def test_zombies_are_not_processes(make: Callable[..., Sandbox]) -> None:
    with make() as own:
        sh(own, "sh -c 'true & exec sleep 600' >/dev/null 2>&1 &")
        assert until(lambda: [process.argv for process in own.processes()] == [("sleep", "600")])


def test_odd_names_and_words(make: Callable[..., Sandbox]) -> None:
    for tracking in ("auto", "scan"):
        with make(tracking=tracking) as own:
            script = (
                "cp \"$(command -v sleep)\" '/opt/a) b (c'; '/opt/a) b (c' 600 >/dev/null 2>&1 &"
            )
            if "busybox" in own.facts().tools:
                script = "ln -s /bin/busybox '/opt/sleep'; /opt/sleep 600 >/dev/null 2>&1 &"
            said(sh(own, script))
            assert until(lambda: [one.argv[1:] for one in own.processes()] == [("600",)])


def test_diff(make: Callable[..., Sandbox]) -> None:
    with make() as own:
        sh(own, "echo x >/opt/new; echo y >>/etc/profile; rm /etc/os-release; echo z >/tmp/z")
        changes = {change.path: change.change for change in own.diff()}
        assert changes["/opt/new"] == "added"
        assert changes["/etc/profile"] == "modified"
        assert changes["/etc/os-release"] == "deleted"
        assert "/tmp/z" not in changes


@pytest.mark.parametrize("tracking", ["auto", "scan"])
def test_resources(make: Callable[..., Sandbox], tracking: str) -> None:
    with make(tracking=tracking) as own:
        before = own.resources()
        assert sh(own, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done").ok
        assert sh(own, "dd if=/dev/zero of=/tmp/x bs=1M count=64").ok
        after = own.resources()
        assert after.cpu_time_s > before.cpu_time_s + 0.05
        assert after.peak_memory_mib >= 64
        assert after.oom_kills == before.oom_kills == 0


@pytest.mark.parametrize("tracking", ["auto", "scan"])
def test_oom_is_told_by_the_kernels_count(make: Callable[..., Sandbox], tracking: str) -> None:
    with make(limits=Limits(memory_mib=64), tracking=tracking) as own:
        killed = sh(own, f"exec {HOG}")
        assert (killed.exit_code, killed.oom_killed) == (137, True)
        hidden = sh(own, f"{HOG} & wait $!; exit 0")
        assert (hidden.exit_code, hidden.oom_killed) == (0, True)
        assert not sh(own, "echo Out of memory: Killed process; exit 137").oom_killed
        assert own.resources().oom_kills >= 2
