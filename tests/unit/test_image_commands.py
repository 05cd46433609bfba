"""Running the host's tools: output, deadlines, and nothing that outlives us."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandbox.engine.imagebuild.commands import Host, run_tool, tool_env

ENV = {"PATH": os.environ["PATH"], "ONLY": "this"}


def test_output_and_exit_code() -> None:
    done = run_tool(["sh", "-c", "echo out; echo err >&2; exit 3"], env=ENV, deadline_s=10)
    assert (done.code, done.stdout, done.tail) == (3, "out\n", "err")


def test_the_environment_is_exact_and_the_umask_fixed() -> None:
    before = os.umask(0o077)
    try:
        done = run_tool(["sh", "-c", "umask; env"], env=ENV, deadline_s=10)
    finally:
        os.umask(before)
    assert done.stdout.startswith("0022\n")
    assert "ONLY=this" in done.stdout
    assert "HOME=" not in done.stdout


def test_a_long_message_is_cut_to_its_end() -> None:
    script = "i=0; while [ $i -lt 3000 ]; do echo line $i >&2; i=$((i+1)); done; exit 1"
    done = run_tool(["sh", "-c", script], env=ENV, deadline_s=30)
    assert done.tail.endswith("line 2999")
    assert len(done.tail) <= 4000


def test_a_password_in_an_address_is_not_repeated() -> None:
    done = run_tool(
        ["sh", "-c", "echo E: http://me:secret@h.invalid/x >&2"], env=ENV, deadline_s=10
    )
    assert done.tail == "E: http://***@h.invalid/x"


def test_past_its_deadline_the_whole_group_is_gone(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"sleep 300 & echo $! >{pid_file}; wait"
    for deadline_s in (0.5, 5, 50):  # the first that is long enough for its start
        done = run_tool(["sh", "-c", script], env=ENV, deadline_s=deadline_s)
        assert done.code is None
        if pid_file.exists() and pid_file.read_text():
            break
    pid = int(pid_file.read_text())
    wait_for(lambda: gone(pid))


def test_a_tool_dies_with_us(tmp_path: Path) -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv (package util-linux) is not installed")
    pid_file = tmp_path / "pid"
    code = (
        "import sys; from sandbox.engine.imagebuild.commands import run_tool\n"
        "run_tool(['sh', '-c', 'echo $$ >$0; exec sleep 300', sys.argv[1]],"
        " env={'PATH': '/usr/bin:/bin'}, deadline_s=300)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(pid_file)]) as runner:
        wait_for(lambda: pid_file.exists() and bool(pid_file.read_text()))
        runner.send_signal(signal.SIGKILL)
    pid = int(pid_file.read_text())
    wait_for(lambda: gone(pid))


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


def wait_for(condition: object, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def test_a_missing_tool() -> None:
    assert run_tool(["no-such-tool-anywhere"], env=ENV, deadline_s=10).code == 127


def test_a_tools_environment_keeps_the_proxies_only() -> None:
    host = Host(
        environ={"HTTPS_PROXY": "p", "no_proxy": "n", "LANG": "x", "HOME": "/h", "PATH": "/"}
    )
    env = tool_env(host, EXTRA="1")
    assert env == {
        "PATH": env["PATH"],
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "HTTPS_PROXY": "p",
        "no_proxy": "n",
        "HOME": "/h",
        "EXTRA": "1",
    }
    assert env["PATH"].startswith("/usr/local/sbin")
