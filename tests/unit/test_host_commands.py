"""Running and starting programs of the host."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from sandbox.engine.hostcommands import LocalCommands

HOST = LocalCommands()


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + 10
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
    assert time.monotonic() - began < 5


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
            "echo $$; cut -d' ' -f6 /proc/self/stat; pwd; umask; ls /proc/$$/fd | wc -l; "
            "echo err >&2; echo end; exec sleep 60"
        )
        pid = HOST.spawn(["sh", "-c", script], log=log)
        before, own, session, folder, mask, files, err, _ = wait_for(log).splitlines()
        assert (before, own, session) == ("before", str(pid), str(pid))
        assert (folder, mask, files, err) == ("/", "0022", "3", "err")
        assert not HOST.has_ended(pid)
        os.kill(pid, 9)
        deadline = time.monotonic() + 10
        while not HOST.has_ended(pid):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert HOST.has_ended(pid)
    finally:
        os.close(reading)
        os.close(writing)


def test_what_is_started_ignores_no_signal(tmp_path: Path) -> None:
    """An engine that ignores a signal hands that on to everything it starts."""
    log = tmp_path / "log"
    pid = HOST.spawn(["sh", "-c", "grep SigIgn /proc/self/status; echo end"], log=log)
    said = wait_for(log)
    while not HOST.has_ended(pid):
        time.sleep(0.01)
    status = Path("/proc/self/status").read_text()
    ours = next(line for line in status.splitlines() if line.startswith("SigIgn"))
    python_ignores = {signal.SIGPIPE, signal.SIGXFSZ}
    allowed = _ignored(ours) - python_ignores  # what this process was started with
    assert _ignored(said) <= allowed


def _ignored(line: str) -> set[int]:
    mask = int(line.split()[1], 16)
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}
