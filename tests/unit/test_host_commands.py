"""Running and starting programs of the host."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from sandbox.engine.hostcommands import LocalCommands

HOST = LocalCommands()


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + 30
    while not path.exists() or not path.read_text().endswith("end\n"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return path.read_text()


def test_output_is_both_streams_and_input_is_empty() -> None:
    done = HOST.run(["sh", "-c", "cat; echo out; echo err >&2; exit 3"], deadline_s=10)
    assert (done.exit_code, done.output) == (3, "out\nerr\n")


def test_the_environment_is_extended_and_the_path_has_sbin() -> None:
    script = 'echo "$GREETING"; case ":$PATH:" in *:/usr/sbin:*) echo sbin;; esac'
    done = HOST.run(["sh", "-c", script], deadline_s=10, env={"GREETING": "hello"})
    assert done.output == "hello\nsbin\n"


def test_bytes_that_are_no_text_do_not_matter() -> None:
    assert HOST.run(["printf", r"\377"], deadline_s=10).output == "\N{REPLACEMENT CHARACTER}"


def test_a_program_that_does_not_end_is_stopped() -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"sleep did not end within 0\.1 s"):
        HOST.run(["sleep", "60"], deadline_s=0.1)
    assert time.monotonic() - began < 30


def test_which_looks_beyond_the_users_path() -> None:
    assert HOST.which("sh") is not None
    assert HOST.which("no-such-program-anywhere") is None


def test_a_started_program_is_on_its_own(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    reading, writing = os.pipe()
    try:
        os.set_inheritable(writing, True)
        script = (
            "echo $$; cut -d' ' -f6 /proc/self/stat; pwd; umask; ls -m /proc/$$/fd; "
            "echo err >&2; echo end; exec sleep 60"
        )
        pid = HOST.spawn(["sh", "-c", script], log=log)
        before, own, session, folder, mask, files, err, _ = wait_for(log).splitlines()
        assert (before, own, session) == ("before", str(pid), str(pid))
        assert (folder, mask, files, err) == ("/", "0022", "0, 1, 2", "err")
        assert not HOST.has_ended(pid)
        os.kill(pid, 9)
        deadline = time.monotonic() + 30
        while not HOST.has_ended(pid):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert HOST.has_ended(pid)
    finally:
        os.close(reading)
        os.close(writing)


IGNORING = """
import ctypes, platform, signal, sys
from pathlib import Path
from sandbox.engine.hostcommands import LocalCommands

for name in ("SIGINT", "SIGQUIT", "SIGHUP"):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
ignore = (1).to_bytes(8, "little") + bytes(24)  # SIG_IGN
number = {"x86_64": 13}.get(platform.machine(), 134)  # rt_sigaction; the C library refuses 32
assert ctypes.CDLL(None).syscall(number, 32, ignore, None, 8) == 0
print(Path("/proc/self/status").read_text())
script = "grep SigIgn /proc/self/status; echo end"
LocalCommands().spawn(["sh", "-c", script], log=Path(sys.argv[1]))
"""


def test_what_is_started_ignores_no_signal(tmp_path: Path) -> None:
    """An engine that ignores a signal hands that on to everything it starts."""
    log = tmp_path / "log"
    caller = HOST.run([sys.executable, "-c", IGNORING, str(log)], deadline_s=30)
    assert caller.exit_code == 0, caller.output
    assert {1, 2, 3, 32} <= _ignored(caller.output)
    assert _ignored(wait_for(log)) == set()


def _ignored(status: str) -> set[int]:
    line = next(line for line in status.splitlines() if line.startswith("SigIgn"))
    mask = int(line.split()[1], 16)
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}
