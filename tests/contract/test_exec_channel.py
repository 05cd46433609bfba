"""exec through the kept channel: what a command sees, and what happens when its shell is lost."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from sandbox.engine.archive import PutFile
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import EngineFailure, NotFound
from tests.contract.kit import run, said, sh

pytestmark = pytest.mark.docker

SEES = """
for file in status limits cgroup; do cat /proc/self/$file; done
cat /proc/self/attr/current /proc/self/oom_score_adj /proc/self/coredump_filter 2>&1
tr '\\0' '\\n' </proc/self/environ | sort
id; umask; pwd; ls /proc/self/fd | wc -l; readlink /proc/self/fd/0 /proc/self/exe
read -r _ _ _ _ group session terminal _ </proc/$$/stat
[ "$group.$session" = "$$.$$" ] && echo "leads a session, terminal $terminal"
"""
OWN = re.compile(  # a command by the engine may look before it is moved into its group
    r"(?m)^(SigQ|Pid|PPid|Tgid|Ngid|NS\w+|Vm\w+|Rss\w+|\w+_ctxt_switches|FDSize):.*"
    r"|/exec-\w+-\d+$"
)


@pytest.fixture(scope="session")
def way() -> str:
    return "channel"


def shells(box: Sandbox) -> list[int]:
    """List the host's pids of the shells that wait in the sandbox."""
    channel = box._running.executor._channel
    assert channel is not None
    return [lane._pid for idle in channel._idle.values() for lane in idle]


@pytest.mark.parametrize("options", [{}, {"user": "1000:1000"}], ids=["root", "plain user"])
def test_a_command_is_what_the_engine_makes_of_it(
    make: Callable[..., Sandbox], options: dict[str, str]
) -> None:
    env = {"ADDED": "a b\nc", "HOME": "/elsewhere"}
    with make(env={"OF_THE_SANDBOX": "1"}, **options) as own:
        for more in ({}, {"env": env, "cwd": "/etc"}, {"user": "12345:67"}):
            texts = [
                OWN.sub("", said(sh(own, SEES, apart=apart, **more))) for apart in (False, True)
            ]
            assert shells(own), "no shell was kept"
            assert texts[0] == texts[1]
            assert "leads a session" in texts[0]


def test_the_waiting_shells_are_nobodys(make: Callable[..., Sandbox]) -> None:
    with make() as own:
        before = own.diff()
        said(sh(own, "sleep 300 >/dev/null 2>&1 &"))
        said(run(own, "true"))
        said(run(own, "true"))
        assert [process.argv for process in own.processes()] == [("sleep", "300")]
        assert len(shells(own)) == 1  # the first shell was not kept: a process lives in its group
        assert own.diff() == before


def test_a_command_that_ends_its_shell_fails_and_is_not_run_again(
    make: Callable[..., Sandbox],
) -> None:
    with make() as own:
        script = "echo run >>/tmp/runs; kill -9 $PPID; sleep 301"
        with pytest.raises(EngineFailure, match="kept shell that ran"):
            sh(own, script)
        assert own.processes() == ()
        assert said(run(own, "cat", "/tmp/runs")) == "run\n"


def test_a_shell_that_was_ended_while_it_waited_is_not_missed(
    make: Callable[..., Sandbox],
) -> None:
    with make() as own:
        said(run(own, "sh", "-c", ":"))
        (pid,) = shells(own)
        os.kill(pid, signal.SIGKILL)
        assert said(sh(own, "echo run >>/tmp/runs; cat /tmp/runs")) == "run\n"


def test_a_shell_that_is_stopped_ends_with_the_deadline(make: Callable[..., Sandbox]) -> None:
    with make() as own:
        assert sh(own, "kill -STOP $PPID; exit 3", deadline_s=1.0).timed_out
        assert own.processes() == ()
        assert sh(own, "exit 4").exit_code == 4


def test_many_commands_at_once(box: Sandbox) -> None:
    def one(number: int) -> tuple[int | None, str, str]:
        ended = sh(box, 'echo "$1"; echo "$1" >&2; exit "$1"', str(number))
        return ended.exit_code, ended.stdout.text, ended.stderr.text

    with ThreadPoolExecutor(16) as threads:
        outcomes = list(threads.map(one, range(64)))
    assert outcomes == [(number, f"{number}\n", f"{number}\n") for number in range(64)]
    assert box.processes() == ()


def test_much_output_and_then_the_same_shell(make: Callable[..., Sandbox]) -> None:
    with make() as own:
        for _ in range(2):
            ended = sh(own, "head -c 50000000 /dev/zero; echo end; echo x >&2", cap_bytes=100)
            assert (ended.exit_code, ended.stdout.total, ended.stderr.text) == (
                0,
                50_000_004,
                "x\n",
            )
            assert ended.stdout.tail.endswith(b"\0end\n")
        assert len(shells(own)) == 1


def test_a_program_that_changed_is_the_engines(make: Callable[..., Sandbox]) -> None:
    with make() as own:
        own.put([PutFile(path="tool", data=b"#!/bin/sh\necho one\n", mode=0o755)], "/opt")
        assert [said(run(own, "/opt/tool")) for _ in range(2)] == ["one\n", "one\n"]
        own.put([PutFile(path="tool", data=b"echo a shell would run me\n", mode=0o755)], "/opt")
        assert not run(own, "/opt/tool").ok
        said(run(own, "rm", "/opt/tool"))
        with pytest.raises(NotFound):
            run(own, "/opt/tool")
