"""supervisor.sh in real images: every shell, as root and as a plain user."""

from __future__ import annotations

import json
import re
import shlex
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from sandbox.agents.supervisor import Command, StopAnswer, SupervisionError, Supervisor
from sandbox.engine.limits import Limits
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import ContainerGone
from sandbox.evidence.records import CleanupReceipt
from tests.agents.conftest import SETTINGS, Bench

STUBBORN = "trap '' TERM; while :; do sleep 0.05; done"
Wait = Callable[[], bool]


def until(true: Wait, seconds: float = 60) -> None:
    """Wait for a fact of the sandbox."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.02)


def supervised(
    bench: Bench, script: str, *, deadline_s: float = 30, exclusive: bool = True
) -> tuple[Supervisor, threading.Thread, list[CleanupReceipt | Exception]]:
    """Start a script under the supervisor in another thread, and wait until it runs."""
    made = bench.supervisor(exclusive=exclusive)
    command = bench.command(f'echo yes >"$READY"; {script}', env={"READY": f"{bench.folder}/ready"})
    results: list[CleanupReceipt | Exception] = []

    def run() -> None:
        try:
            results.append(made.run(command, deadline_s=deadline_s))
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: bool(results) or there(bench, f"{bench.folder}/ready"))
    return made, thread, results


def there(bench: Bench, path: str) -> bool:
    return bench.box.exec(["test", "-s", path], deadline_s=10).exit_code == 0


def receipt_of(results: list[CleanupReceipt | Exception]) -> CleanupReceipt:
    (result,) = results
    assert isinstance(result, CleanupReceipt), result
    return result


# --- natural ends ------------------------------------------------------------------------------


def test_a_natural_end_has_a_complete_receipt(bench: Bench) -> None:
    began = time.monotonic()
    receipt = bench.run("exit 0")
    took = time.monotonic() - began
    assert receipt == receipt.model_copy(
        update={
            "cleanup_confirmed": True,
            "launched": True,
            "return_code": 0,
            "timed_out": False,
            "stopped": False,
            "error": None,
            "survivors": (),
        }
    )
    assert receipt.hostname == bench.do("hostname").strip()
    assert receipt.duration_s is not None
    assert 0 <= receipt.duration_s <= took


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 7", 7), ("exit 255", 255), ("kill -KILL $$", 137), ("kill -INT $$; sleep 5", 130)],
    ids=["7", "255", "KILL", "INT"],
)
def test_the_wait_status_is_the_commands(bench: Bench, script: str, status: int) -> None:
    receipt = bench.run(script)
    assert receipt.return_code == status
    assert receipt.error is None
    assert receipt.cleanup_confirmed


def test_a_command_that_is_not_there_is_127(bench: Bench) -> None:
    made = bench.supervisor()
    receipt = made.run(Command(argv=["/nope"], env={}, cwd="/"), deadline_s=30)
    assert receipt.return_code == 127
    assert receipt.launched
    assert "/nope" in bench.text("stderr")


def test_a_folder_that_is_not_there_launches_nothing(bench: Bench) -> None:
    receipt = bench.run("exit 0", cwd="/nowhere")
    assert not receipt.launched
    assert receipt.error is not None
    assert "/nowhere" in receipt.error


def test_streams_are_apart_and_input_is_empty(bench: Bench) -> None:
    receipt = bench.run("read -r line && exit 9; printf 'a\\0b\\n'; echo oops >&2; exit 3")
    assert receipt.return_code == 3
    assert bench.text("stdout") == "a\0b\n"
    assert bench.text("stderr") == "oops\n"


def test_the_command_runs_in_the_workdir(bench: Bench) -> None:
    bench.run("pwd -P")
    assert bench.text("stdout") == "/workspace\n"


ODD = {
    "NEWLINES": "first\nSECOND=not a variable\n\nlast\n",
    "QUOTES": 'it\'s "quoted" $HOME `id` \\n',
    "EMPTY": "",
    "UNICODE": "äöü 漢字 \U0001f600",
    "EQUALS": "a=b=c",
    "with.dots-and dashes": "x",
    "LONG": "x" * 100_000,
}


def test_the_environment_is_what_was_given_and_the_tag(bench: Bench) -> None:
    made = bench.supervisor()
    made.run(Command(argv=["cat", "/proc/self/environ"], env=ODD, cwd="/"), deadline_s=10)
    tag, *said = bench.text("stdout").split("\0")[:-1]
    assert re.fullmatch("SANDBOX_SESSION=[0-9a-f]{32}", tag)
    assert said == [f"{name}={value}" for name, value in ODD.items()]


def test_arguments_arrive_as_given(bench: Bench) -> None:
    odd = ["", " a  b ", "new\nline", "-n", "$(x)", "*", "--", "'\"", "\\"]
    bench.run("printf '<%s>' \"$@\"", *odd)
    assert bench.text("stdout") == "".join(f"<{word}>" for word in odd)


def test_a_very_long_argument_arrives(bench: Bench) -> None:
    bench.run('printf "%s" "${#1}"', "x" * 130_000)
    assert bench.text("stdout") == "130000"


def test_the_command_ignores_no_signal_of_the_supervisors(bench: Bench) -> None:
    """A background command of a shell ignores INT and QUIT, and so would all its tools.

    What the engine itself ignores, the sandbox's first process has from it: that is not ours.
    """
    bench.run("exec grep -h SigIgn /proc/1/status /proc/self/status")
    first, ours = (int(line.split()[1], 16) for line in bench.text("stdout").splitlines())
    assert not ours & ~first
    assert not ours & 0b110  # INT and QUIT


def test_the_command_leads_its_own_session(bench: Bench) -> None:
    bench.run("read -r pid _ _ _ group session _ </proc/self/stat; echo $$ $group $session")
    assert len(set(bench.text("stdout").split())) == 1


def test_a_tool_that_detached_is_left_alone_and_listed(bench: Bench) -> None:
    receipt = bench.run("setsid sleep 301 >/dev/null 2>&1 & sleep 302 >/dev/null & exit 0")
    assert receipt.return_code == 0
    assert receipt.cleanup_confirmed
    assert sorted(s.command for s in receipt.survivors) == ["sleep 301", "sleep 302"]
    bench.gone(*(survivor.pid for survivor in receipt.survivors))


def test_what_dies_with_the_command_is_no_survivor(bench: Bench) -> None:
    receipt = bench.run("(sleep 0.15) & exit 0")
    assert receipt.survivors == ()


def test_a_cleared_environment_hides_nothing_from_an_exclusive_one(bench: Bench) -> None:
    receipt = bench.run("env -i setsid sleep 303 >/dev/null 2>&1 & sleep 0.1; exit 0")
    assert [s.command for s in receipt.survivors] == ["sleep 303"]
    bench.gone(receipt.survivors[0].pid)


NAMES = ['q"uote', "back\\slash", "tab\there", "new\nline", "ünï", "b\udcffad", "$(x)`y`%s", "\x7f"]


def test_any_command_name_makes_a_valid_receipt(bench: Bench) -> None:
    raw = [name.encode(errors="surrogateescape") for name in NAMES]
    octal = ["".join(f"\\{byte:03o}" for byte in name) for name in raw]
    start = "name=$(printf '{}_'); name=${{name%_}}; sh -c 'sleep 304; :' \"$name\" & "
    receipt = bench.run("".join(start.format(name) for name in octal) + "sleep 0.05")
    bench.gone(*(survivor.pid for survivor in receipt.survivors))
    commands = "\n".join(survivor.command for survivor in receipt.survivors)
    for name in raw:
        shown = "".join(
            c if c >= " " and c != "\x7f" else " " for c in name.decode(errors="replace")
        )
        assert f"sh -c sleep 304; : {shown}".rstrip() in commands


# --- forced stops ------------------------------------------------------------------------------


def ended_late(
    bench: Bench, script: str, *, trap: str = "", **options: Any
) -> tuple[CleanupReceipt, float]:
    """Run a script, then wait for TERM, under the first deadline that is long enough for that."""
    last = f"trap '{trap}' TERM; echo yes >/tmp/begun; while :; do sleep 0.05; done"
    for deadline_s in (0.5, 4.0, 30.0):
        receipt = bench.run(f"{script}{last}", deadline_s=deadline_s, **options)
        if there(bench, "/tmp/begun"):
            bench.do("rm", "/tmp/begun")
            return receipt, deadline_s
    raise AssertionError("it does not start")


def forced(receipt: CleanupReceipt, *, timed_out: bool) -> None:
    assert receipt.launched
    assert receipt.timed_out == timed_out
    assert receipt.stopped != timed_out
    assert receipt.error is None
    assert receipt.survivors == ()
    assert receipt.cleanup_confirmed


def test_the_deadline_ends_a_command_politely(bench: Bench) -> None:
    receipt, deadline_s = ended_late(bench, "", trap="echo bye; exit 5", grace_s=60)
    forced(receipt, timed_out=True)
    assert receipt.return_code == 5
    assert bench.text("stdout") == "bye\n"
    assert receipt.duration_s is not None
    assert deadline_s <= receipt.duration_s < 60  # its grace is not waited for


def test_the_deadline_ends_one_that_ignores_it(bench: Bench) -> None:
    receipt, _ = ended_late(bench, "")
    forced(receipt, timed_out=True)
    assert receipt.return_code == 137
    assert bench.box.processes() == ()


ESCAPES = {
    "background": "sleep 305 & ",
    "new-session": "setsid sleep 305 & ",
    "stubborn-session": f"setsid sh -c {shlex.quote(STUBBORN)} & ",
    "grandchild": "(setsid sh -c 'setsid sleep 305 & setsid sleep 305 & exit' &) ; ",
    "stopped": "setsid sh -c 'kill -STOP $$; sleep 305' & ",
}
HIDDEN = {
    "cleared": "env -i setsid sleep 305 & ",
    "cleared-orphan": "(env -i setsid sleep 305 &) ; sleep 0.1; ",
    "cleared-chain": "env -i sh -c '(env -i setsid sleep 305 &)' ; sleep 0.1; ",
}


@pytest.mark.parametrize("exclusive", [False, True], ids=["shared", "exclusive"])
def test_a_forced_stop_takes_every_descendant(bench: Bench, exclusive: bool) -> None:
    escapes = "".join(ESCAPES.values())
    receipt, _ = ended_late(bench, escapes, exclusive=exclusive, grace_s=0.1)
    forced(receipt, timed_out=True)
    assert bench.box.processes() == ()


def test_an_exclusive_one_takes_those_that_hide_too(bench: Bench) -> None:
    hidden = "".join(HIDDEN.values())
    receipt, _ = ended_late(bench, hidden, grace_s=0.1)
    forced(receipt, timed_out=True)
    assert bench.box.processes() == ()


def test_a_family_is_followed_even_without_the_tag(bench: Bench) -> None:
    receipt, _ = ended_late(bench, "env -i setsid sleep 306 & ", exclusive=False)
    forced(receipt, timed_out=True)
    assert bench.box.processes() == ()


def test_commands_of_the_engine_are_not_the_agents(bench: Bench) -> None:
    """The witness looks into the sandbox while the agent works, and must not be killed for it."""
    _, thread, results = supervised(bench, STUBBORN, deadline_s=2)
    witness = bench.box.exec(["sh", "-c", "sleep 3; echo saw"], deadline_s=20)
    thread.join()
    assert witness.stdout.text == "saw\n"
    forced(receipt_of(results), timed_out=True)


def test_what_was_there_before_stays(bench: Bench) -> None:
    bench.do("sh", "-c", "setsid sleep 307 >/dev/null 2>&1 &")
    receipt, _ = ended_late(bench, "")
    forced(receipt, timed_out=True)
    (left,) = bench.running("sleep 307")
    bench.gone(left)


def test_a_stop_ends_everything(bench: Bench) -> None:
    made, thread, results = supervised(bench, f"setsid sleep 308 & {STUBBORN}")
    assert made.request_stop() is StopAnswer.REQUESTED
    thread.join()
    forced(receipt_of(results), timed_out=False)
    assert bench.box.processes() == ()


def test_a_stop_that_comes_first_starts_nothing(bench: Bench) -> None:
    made = bench.supervisor()
    assert made.request_stop() is StopAnswer.PREVENTED
    receipt = made.run(bench.command("echo ran >/workspace/ran"), deadline_s=30)
    assert not receipt.launched
    assert receipt.stopped
    assert receipt.return_code is None
    assert receipt.cleanup_confirmed
    assert bench.box.exec(["test", "-e", "/workspace/ran"], deadline_s=30).exit_code == 1
    assert not there(bench, f"{bench.folder}/launched")


@pytest.mark.parametrize("bench", [SETTINGS[0], SETTINGS[-1]], ids=str, indirect=True)
def test_whoever_wins_the_race_the_answer_is_true(bench: Bench) -> None:
    answers = set()
    for turn in range(20):
        made = bench.supervisor(grace_s=0.1)
        asked: list[StopAnswer] = []

        def ask(made: Supervisor = made, turn: int = turn, asked: list[StopAnswer] = asked) -> None:
            time.sleep(turn * 0.004)
            asked.append(made.request_stop())

        asking = threading.Thread(target=ask)
        asking.start()
        receipt = made.run(bench.command("sleep 309"), deadline_s=20)
        asking.join()
        assert receipt.stopped
        # The supervisor may see the stop before the one who asked has claimed the launch: it is
        # first then, and launches nothing either.
        assert not receipt.launched or asked == [StopAnswer.REQUESTED]
        assert receipt.launched == there(bench, f"{bench.folder}/launched")
        assert receipt.error is None
        assert bench.box.processes() == ()
        answers.add(asked[0])
    assert answers


# --- the supervisor itself is ended -------------------------------------------------------------


def supervisor_pids(bench: Bench) -> list[int]:
    """The processes that run the script of the last folder: the supervisor, then the runner."""
    script = f"{bench.folder}/supervisor.sh"
    seen = [p for p in bench.box.processes() if script in p.argv[:3]]
    supervisor = next(p.pid for p in seen if "--runner" not in p.argv)
    runner = next(p.pid for p in seen if "--runner" in p.argv)
    return [supervisor, runner]


def test_the_duration_is_the_commands_however_late_its_end_is_seen(bench: Bench) -> None:
    began = time.monotonic()
    _, thread, results = supervised(bench, "until [ -e /tmp/go ]; do sleep 0.1; done")
    supervisor, runner = supervisor_pids(bench)
    bench.kill(supervisor, signal="STOP")
    bench.do("touch", "/tmp/go")
    while runner in {one.pid for one in bench.box.processes()}:
        assert time.monotonic() < began + 60, "it does not end"
        time.sleep(0.02)
    ended = time.monotonic()
    time.sleep(1.0)
    bench.kill(supervisor, signal="CONT")
    thread.join()
    bench.do("rm", "/tmp/go")
    receipt = receipt_of(results)
    assert (receipt.return_code, receipt.error) == (0, None)
    assert receipt.duration_s is not None
    assert 0 < receipt.duration_s <= ended - began


@pytest.mark.parametrize("signal", ["TERM", "INT", "HUP"])
def test_a_signal_to_the_supervisor_stops_everything(bench: Bench, signal: str) -> None:
    _, thread, results = supervised(bench, f"setsid sleep 310 & {STUBBORN}")
    supervisor, _ = supervisor_pids(bench)
    bench.kill(supervisor, signal=signal)
    thread.join()
    receipt = receipt_of(results)
    forced(receipt, timed_out=False)
    assert receipt.return_code == 137
    assert bench.box.processes() == ()


def test_a_signal_to_its_whole_group_stops_everything(bench: Bench) -> None:
    _, thread, results = supervised(bench, STUBBORN)
    bench.kill(*supervisor_pids(bench), signal="TERM")
    thread.join()
    assert receipt_of(results).cleanup_confirmed
    assert bench.box.processes() == ()


@pytest.mark.parametrize("which", ["supervisor", "runner", "both"])
def test_what_a_killed_supervisor_leaves_is_killed(bench: Bench, which: str) -> None:
    _, thread, results = supervised(bench, f"setsid sleep 311 & {STUBBORN}")
    supervisor, runner = supervisor_pids(bench)
    bench.kill(*{"supervisor": [supervisor], "runner": [runner]}.get(which, [supervisor, runner]))
    thread.join()
    receipt = receipt_of(results)
    assert receipt.launched
    assert receipt.cleanup_confirmed
    assert not receipt.timed_out
    assert not receipt.stopped
    assert receipt.error is not None
    assert ("runner was killed" if which == "runner" else "left no receipt") in receipt.error
    assert receipt.return_code == (137 if which == "supervisor" else None)
    assert receipt.pid == supervisor
    assert bench.box.processes() == ()


def test_without_any_receipt_the_error_says_whether_it_was_launched(bench: Bench) -> None:
    made, thread, results = supervised(bench, f"{STUBBORN} & wait", exclusive=False)
    bench.do("rm", f"{bench.folder}/supervisor.sh")
    bench.do("mkdir", f"{bench.folder}/receipt.tmp")
    made.request_stop()
    thread.join()
    (error,) = results
    assert isinstance(error, SupervisionError)
    assert error.launched is True
    with pytest.raises(SupervisionError):
        made.settle()


def test_a_receipt_appears_whole(bench: Bench) -> None:
    """Read in a tight loop inside the sandbox: never a part of it."""
    made = bench.supervisor()
    loop = 'while :; do [ -e "$1" ] || continue; cat "$1"; exit; done'
    seen: list[str] = []
    reading = threading.Thread(
        target=lambda: seen.append(
            bench.box.exec(
                ["sh", "-c", loop, "sh", f"{bench.folder}/receipt.json"], deadline_s=20
            ).stdout.text
        )
    )
    reading.start()
    many = " ".join(["setsid sleep 312 >/dev/null 2>&1 &"] * 30)
    receipt = made.run(bench.command(f"{many} exit 0"), deadline_s=10)
    reading.join()
    assert len(json.loads(seen[0])["survivors"]) == 30
    bench.gone(*(survivor.pid for survivor in receipt.survivors))


def test_a_used_folder_is_refused(bench: Bench) -> None:
    made = bench.supervisor()
    first = made.run(bench.command("exit 4"), deadline_s=30)
    assert made.run(bench.command("exit 5"), deadline_s=30) == first


# --- broken sandboxes ---------------------------------------------------------------------------


def test_without_setsid_the_receipt_says_so(own_bench: Bench) -> None:
    own_bench.do("sh", "-c", 'rm "$(command -v setsid)"')
    receipt = own_bench.run("exit 0")
    assert not receipt.launched
    assert receipt.error == "the image has no setsid"


def test_a_container_that_is_removed_is_no_supervision_error(own_bench: Bench) -> None:
    _, thread, results = supervised(own_bench, "sleep 313")
    own_bench.box.close()
    thread.join()
    (error,) = results
    assert isinstance(error, ContainerGone), error


def test_a_sandbox_full_of_processes_is_stopped(make: Callable[..., Sandbox]) -> None:
    for image in ("debian-12", "alpine-3.23"):
        with make(image, workdir="/workspace", limits=Limits(pids=60)) as box:
            bench = Bench(box)
            bomb = "exec awk 'BEGIN { while (1) system(\"sleep 314 &\") }' 2>/dev/null"
            receipt = bench.run(bomb, deadline_s=15)
            assert receipt.error is not None
            assert "process limit" in receipt.error
            assert receipt.launched
            assert receipt.cleanup_confirmed
            assert receipt.survivors == ()
            assert box.processes() == ()


def test_a_full_disk_leaves_a_receipt(make: Callable[..., Sandbox]) -> None:
    for image in ("debian-12", "alpine-3.23"):
        with make(image, workdir="/workspace", limits=Limits(tmp_mib=4)) as box:
            bench = Bench(box)
            receipt = bench.run("cat /dev/zero; exit 6")
            assert receipt.return_code == 6
            assert receipt.error is None


def test_a_disk_that_is_full_before_the_launch_launches_nothing(own_bench: Bench) -> None:
    own_bench.do("sh", "-c", "mkdir /small")
    made = own_bench.supervisor()
    own_bench.box.exec(["sh", "-c", "cat /dev/zero >/tmp/fill"], deadline_s=60)
    with pytest.raises(SupervisionError) as caught:
        made.run(own_bench.command("echo ran >/workspace/ran"), deadline_s=30)
    assert caught.value.launched is False
    own_bench.do("rm", "/tmp/fill")
    assert own_bench.box.exec(["test", "-e", "/workspace/ran"], deadline_s=30).exit_code == 1
