"""A kept shell that is lost: who ended the answer, the shell or the engine."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from typing import cast

import pytest

from sandbox.engine.command import Command
from sandbox.engine.lane import Lane
from sandbox.engine.stream import HijackedConnection
from sandbox.engine.tracker import CgroupTrack
from sandbox.errors import CommandLost, EngineFailure


class Group:
    """A control group from which a process that ends has not gone yet."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def members(self) -> list[int]:
        return [self.pid]

    def kill(self) -> bool:
        return True

    def release(self) -> None:
        """Hold nothing."""


def lost(pid: int) -> EngineFailure:
    """Run a command in the shell ``pid``, whose answer ends right after it has begun."""
    near, far = socket.socketpair()
    near.settimeout(0.0)

    def begin() -> None:
        ident = far.recv(4096).split()[1]
        answer = ident + b" yes\n"
        far.sendall(b"\1\0\0\0" + len(answer).to_bytes(4, "big") + answer)
        far.close()

    lane = Lane(HijackedConnection(near, None, b""), cast("CgroupTrack", Group(pid)))
    lane._pid = pid
    shell = threading.Thread(target=begin)
    shell.start()
    command = Command(argv=["true"], deadline_s=30)
    until = time.monotonic() + 30
    with pytest.raises(EngineFailure) as caught:
        lane.run(command, folder="/", until=until, stdout=len, stderr=len)
    shell.join()
    return caught.value


def test_a_shell_that_ends_is_what_ended_its_answer() -> None:
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # a zombie until the block's end
        assert isinstance(lost(ended.pid), CommandLost)


def test_a_shell_that_lives_is_not() -> None:
    failure = lost(os.getpid())
    assert type(failure) is EngineFailure
    assert "the engine ended the answer" in failure.message
