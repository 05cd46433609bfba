"""exec: at the deadline or on cancellation the whole process tree is gone, and nothing else."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from sandbox.engine import cgroup
from sandbox.engine.sandbox import Sandbox
from sandbox.engine.tracker import CgroupTracker
from sandbox.errors import ContainerGone, UsageError
from tests.contract.kit import alive, cancelled, run, said, sh, until

pytestmark = pytest.mark.docker

ESCAPES = {
    "plain": "sleep 4001 & sleep 4001",
    "setsid": "setsid sleep 4001 & sleep 4002",
    "ignores TERM": "trap '' TERM HUP INT; sleep 4001 & sleep 4001",
    "cleared environment": "env -i setsid sleep 4001 & sleep 4002",
    "daemon": "(setsid sh -c 'env -i sleep 4001 >/dev/null 2>&1 &' &) ; sleep 4002",
    "closed output": "exec >/dev/null 2>&1 </dev/null; sleep 4001 & sleep 4001",
    "stopped": "kill -STOP $$; sleep 4001",
    "forks on": "f() { while :; do sleep 0.02 & sleep 0.01; done; }; f & f & sleep 4001",
}

ALL = 'echo started; for script in "$@"; do sh -c "$script" & done; sleep 4003'


@pytest.mark.parametrize("script", ESCAPES.values(), ids=ESCAPES.keys())
def test_the_tree_is_gone_at_the_deadline(box: Sandbox, script: str) -> None:
    before = box.processes()
    result = sh(box, script, deadline_s=0.3)
    assert (result.timed_out, result.cancelled, result.exit_code) == (True, False, None)
    assert not result.sandbox_killed
    assert 0.3 <= result.duration_s < 3.0
    assert box.processes() == before


def test_every_tracker_ends_the_tree_and_nothing_else(tracked: Sandbox) -> None:
    said(sh(tracked, "sleep 4100 >/dev/null 2>&1 & env -i setsid sleep 4100 >/dev/null 2>&1 &"))
    before = {process.identity for process in tracked.processes()}
    assert len(before) == 2
    result = cancelled(tracked, ALL, *ESCAPES.values(), at="4003", deadline_s=60)
    assert (result.cancelled, result.sandbox_killed) == (True, False)
    assert result.stdout.text == "started\n"
    assert {process.identity for process in tracked.processes()} == before


def test_other_users_processes_are_ended(tracked: Sandbox) -> None:
    script = "su -s /bin/sh nobody -c 'setsid sleep 4200 >/dev/null 2>&1 &'; sleep 4201"
    assert cancelled(tracked, script, at="4200").cancelled
    assert tracked.processes() == ()


def test_a_plain_users_tree_is_ended(user_box: Sandbox) -> None:
    assert cancelled(user_box, ALL, *ESCAPES.values(), at="4003").cancelled
    assert user_box.processes() == ()


def test_last_resort_is_the_sandbox(make: Callable[..., Sandbox]) -> None:
    with make(tracking="sandbox") as own:
        result = cancelled(own, "echo kept; sleep 4300", at="4300")
        assert (result.cancelled, result.sandbox_killed) == (True, True)
        assert result.stdout.text == "kept\n"
        with pytest.raises(ContainerGone):
            run(own, "true")


def test_partial_output_is_kept(box: Sandbox) -> None:
    result = cancelled(box, "echo out; echo err >&2; printf part; sleep 4400", at="4400")
    assert (result.stdout.text, result.stderr.text) == ("out\npart", "err\n")


def test_endless_output_ends_at_the_deadline(box: Sandbox) -> None:
    result = run(box, "yes", deadline_s=0.5, cap_bytes=1000)
    assert result.timed_out
    assert result.stdout.truncated
    assert result.duration_s < 3.0


def test_unread_stdin_does_not_outlive_the_deadline(box: Sandbox) -> None:
    result = run(box, "sleep", "4500", stdin=b"x" * 3_000_000, deadline_s=0.5)
    assert result.timed_out
    assert result.duration_s < 2.0


@pytest.mark.parametrize("deadline_s", [0.000_1, 0.02, 0.05])
def test_deadline_shorter_than_the_launch(box: Sandbox, deadline_s: float) -> None:
    before = box.processes()
    assert sh(box, "sleep 4600", deadline_s=deadline_s).timed_out
    time.sleep(0.2)
    assert box.processes() == before


@pytest.mark.parametrize("deadline_s", [0, -1, float("nan")])
def test_deadline_must_lie_ahead(box: Sandbox, deadline_s: float) -> None:
    with pytest.raises(UsageError):
        run(box, "true", deadline_s=deadline_s)


def test_cancel_ends_the_tree(box: Sandbox) -> None:
    before = box.processes()
    result = cancelled(box, "echo begun; setsid sleep 4700 & sleep 4701", at="4701", deadline_s=60)
    assert (result.cancelled, result.timed_out, result.exit_code) == (True, False, None)
    assert result.stdout.text == "begun\n"
    assert box.processes() == before


def test_cancel_before_the_launch(box: Sandbox) -> None:
    cancel = threading.Event()
    cancel.set()
    result = sh(box, "sleep 4800", cancel=cancel)
    assert (result.cancelled, result.exit_code) == (True, None)
    assert result.duration_s < 0.1
    assert not alive(box, "4800")


def test_an_interrupt_ends_the_tree(box: Sandbox) -> None:
    before = box.processes()
    threading.Timer(0.4, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        sh(box, "setsid sleep 4850 & sleep 4850")
    assert until(lambda: box.processes() == before)


def test_killing_while_frozen_leaves_nothing_frozen(make: Callable[..., Sandbox]) -> None:
    with make(tracking="freezer") as own, ThreadPoolExecutor() as threads:
        running = threads.submit(sh, own, ESCAPES["forks on"], deadline_s=30, apart=True)
        assert until(lambda: len(own.processes()) > 3)
        tracker = own._running.executor.inside.tracker
        assert isinstance(tracker, CgroupTracker)
        assert tracker._launching.take(time.monotonic() + 30)  # until all of it is in its group
        tracker._launching.give_back()
        (place,) = tracker._root.glob("exec-*")
        cgroup._kill_frozen(place)
        assert running.result().exit_code == 137
        assert until(lambda: own.processes() == ())
        assert run(own, "true").ok


def test_cancel_after_the_end_changes_nothing(box: Sandbox) -> None:
    cancel = threading.Event()
    result = run(box, "true", cancel=cancel)
    cancel.set()
    assert (result.exit_code, result.cancelled) == (0, False)


@pytest.mark.parametrize("tracking", ["cgroup", "freezer"])
def test_concurrent_commands_do_not_kill_each_other(
    make: Callable[..., Sandbox], tracking: str
) -> None:
    def one(box: Sandbox, number: int) -> tuple[bool, int | None]:
        short = number % 2 == 0
        script = f"""env -i setsid sleep 49{number} >/dev/null 2>&1 &
            sleep {49 if short else 1.0}; exit {number}"""
        result = sh(box, script, deadline_s=0.6 if short else 20)
        return result.timed_out, result.exit_code

    with make(tracking=tracking) as own, ThreadPoolExecutor() as threads:
        outcomes = list(threads.map(lambda number: one(own, number), range(6)))
        assert outcomes == [
            (True, None) if number % 2 == 0 else (False, number) for number in range(6)
        ]
        left = sorted(process.argv for process in own.processes())
        assert left == [("sleep", "491"), ("sleep", "493"), ("sleep", "495")]


def test_a_scan_that_cannot_tell_ends_the_sandbox(make: Callable[..., Sandbox]) -> None:
    with make(tracking="scan") as own, ThreadPoolExecutor() as threads:
        other = threads.submit(sh, own, "sleep 30")
        assert until(lambda: alive(own, "30"))
        escape = "env -i setsid sleep 4900 >/dev/null 2>&1 & sleep 4901"
        result = cancelled(own, escape, at="4900")
        assert (result.cancelled, result.sandbox_killed) == (True, True)
        with pytest.raises(ContainerGone):
            other.result()


def test_a_scan_tells_tagged_commands_apart(make: Callable[..., Sandbox]) -> None:
    with make(tracking="scan") as own, ThreadPoolExecutor() as threads:
        script = "until [ -e /tmp/go ]; do sleep 0.1; done; exit 4"
        other = threads.submit(sh, own, script, "other", deadline_s=60)
        assert until(lambda: alive(own, "other"))
        ended = cancelled(own, "setsid sleep 4950 & sleep 4951", at="4950")
        assert (ended.cancelled, ended.sandbox_killed) == (True, False)
        said(sh(own, ": >/tmp/go"))
        assert other.result().exit_code == 4
        assert own.processes() == ()


def test_background_processes_outlive_a_natural_end(box: Sandbox) -> None:
    assert said(sh(box, "sleep 4999 >/dev/null 2>&1 & echo $!")).strip().isdecimal()
    assert until(lambda: alive(box, "4999"))
    assert sh(box, "sleep 4998", deadline_s=0.3).timed_out
    assert alive(box, "4999")
    for process in box.processes():
        run(box, "/bin/sh", "-c", f"kill -9 {process.pid}")
    assert until(lambda: box.processes() == ())


def test_a_child_that_holds_the_output_does_not_hold_the_result(box: Sandbox) -> None:
    result = sh(box, "echo done; sleep 1.7 & exit 5")
    assert (result.exit_code, result.stdout.text) == (5, "done\n")
    assert result.duration_s < 1.5
    assert until(lambda: not alive(box, "1.7"))


def test_a_command_may_close_its_output_and_go_on(box: Sandbox) -> None:
    result = sh(box, "echo early; exec >&- 2>&-; sleep 0.3; exit 6")
    assert (result.exit_code, result.stdout.text) == (6, "early\n")
    assert result.duration_s >= 0.3


def test_a_plain_user_cannot_end_its_sandbox(user_box: Sandbox) -> None:
    sh(user_box, "kill -9 -1; kill -9 1", deadline_s=5, apart=True)
    assert said(run(user_box, "echo", "still here")) == "still here\n"
