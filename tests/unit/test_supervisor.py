"""The supervisor's host side: what it refuses, and what it concludes from what it reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sandbox.agents.supervisor import (
    ARGUMENT_LIMIT,
    TAG_NAME,
    Command,
    StopAnswer,
    SupervisionError,
    Supervisor,
    check_command,
    parse_receipt,
)
from sandbox.errors import CommandLost, ContainerGone, EngineFailure, Unsupported
from tests.unit.agent_fakes import FolderPlace, Ran

RECEIPT = {
    "cleanup_confirmed": True,
    "launched": True,
    "return_code": 0,
    "timed_out": False,
    "stopped": False,
    "error": None,
    "survivors": [{"pid": 4, "command": "sleep 9"}],
    "hostname": "box",
    "pid": 7,
    "duration_s": 0.01,
}


def command(*argv: str, **env: str) -> Command:
    return Command(argv=argv, env=env, cwd="/")


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (command(), "no command"),
        (command("a=b"), "has a '='"),
        (Command(argv=["x"], env={"": "v"}, cwd="/"), "not a name"),
        (Command(argv=["x"], env={"A=B": "v"}, cwd="/"), "not a name"),
        (Command(argv=["x"], env={TAG_NAME: "v"}, cwd="/"), "own variable"),
        (command("x", "a\0b"), "zero byte"),
        (command("x", "y" * ARGUMENT_LIMIT), "longer than the kernel's"),
        (command("x", LONG="ü" * (ARGUMENT_LIMIT // 2)), "longer than the kernel's"),
        (command("x", *["y" * (ARGUMENT_LIMIT - 1)] * 16), "are longer than"),
    ],
    ids=["empty", "equals", "unnamed", "name", "tag", "zero", "long", "long-env", "all-long"],
)
def test_what_a_command_line_cannot_carry_is_refused(bad: Command, word: str) -> None:
    with pytest.raises(Unsupported, match=word):
        check_command(bad)


def test_the_longest_argument_passes() -> None:
    check_command(command("x", "y" * (ARGUMENT_LIMIT - 1), NEW="a\nb'\"$(x)"))


def test_a_receipt_is_read_strictly() -> None:
    receipt = parse_receipt(json.dumps(RECEIPT).encode())
    assert receipt.survivors[0].command == "sleep 9"
    raw = json.dumps(RECEIPT).encode().replace(b"sleep 9", b"sl\xffep")
    assert parse_receipt(raw).survivors[0].command == "sl�ep"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        json.dumps(RECEIPT)[:-30].encode(),
        json.dumps({**RECEIPT, "extra": 1}).encode(),
        json.dumps({k: v for k, v in RECEIPT.items() if k != "pid"}).encode(),
        json.dumps({**RECEIPT, "return_code": "zero"}).encode(),
    ],
    ids=["empty", "brace", "cut", "extra", "missing", "type"],
)
def test_anything_else_is_a_supervision_error(data: bytes) -> None:
    with pytest.raises(SupervisionError, match="not readable"):
        parse_receipt(data)


@pytest.fixture
def place(tmp_path: Path) -> FolderPlace:
    return FolderPlace(tmp_path)


@pytest.fixture
def supervisor(place: FolderPlace) -> Supervisor:
    folder = place.root / "tmp" / "run"
    folder.mkdir()
    made = Supervisor(place, str(folder), grace_s=0.2, margin_s=1)
    made.install()
    return made


def shell(script: str) -> Command:
    return Command(argv=["sh", "-c", script], env={"PATH": "/usr/bin:/bin"}, cwd="/")


def test_a_command_is_run_and_accounted_for(place: FolderPlace, supervisor: Supervisor) -> None:
    receipt = supervisor.run(shell("echo hello; exit 9"), deadline_s=10)
    assert receipt.launched
    assert receipt.return_code == 9
    assert receipt.cleanup_confirmed
    assert not receipt.timed_out
    assert (place.root / "tmp/run/stdout").read_text() == "hello\n"
    assert supervisor.settle() == receipt


def test_a_stop_that_comes_first_prevents_the_launch(
    place: FolderPlace, supervisor: Supervisor
) -> None:
    assert supervisor.request_stop() is StopAnswer.PREVENTED
    receipt = supervisor.run(shell("touch ran"), deadline_s=10)
    assert not receipt.launched
    assert receipt.stopped
    assert receipt.return_code is None
    assert supervisor.request_stop() is StopAnswer.REQUESTED


def test_a_supervisor_that_cannot_be_written_says_why(place: FolderPlace) -> None:
    def full(verb: str, words: Sequence[str]) -> None:
        raise EngineFailure("tar: No space left on device")

    place.before = full
    with pytest.raises(SupervisionError, match="No space left") as raised:
        Supervisor(place, "/run").install()
    assert raised.value.launched is False
    assert raised.value.cure == "is there space left in /run?"


def test_a_shell_that_is_lost_with_the_supervisor_is_settled(
    place: FolderPlace, supervisor: Supervisor
) -> None:
    run = place.exec

    def losing(argv: Sequence[str], **options: Any) -> Ran:
        if "--recover" in argv:
            return run(argv, **options)
        run(["sh", "-c", 'mkdir "$1/claim"; echo 4 >"$1/launched"', "sh", argv[3]], **options)
        raise CommandLost("its shell has ended")

    place.exec = losing  # type: ignore[method-assign]
    receipt = supervisor.run(shell("exit 0"), deadline_s=10)
    assert receipt.error == "the supervisor died and left no receipt"
    assert receipt.cleanup_confirmed


def test_a_folder_is_used_once(supervisor: Supervisor, place: FolderPlace) -> None:
    receipt = supervisor.run(shell("exit 3"), deadline_s=10)
    assert supervisor.run(shell("exit 4"), deadline_s=10) == receipt


def test_a_supervisor_that_cannot_start_is_a_supervision_error(place: FolderPlace) -> None:
    with pytest.raises(SupervisionError) as caught:
        Supervisor(place, f"{place.root}/none", margin_s=1).run(shell("exit 0"), deadline_s=5)
    assert caught.value.launched is False


def test_a_supervisor_that_refuses_says_why(place: FolderPlace, supervisor: Supervisor) -> None:
    command = Command(argv=["true"], env={}, cwd="")
    with pytest.raises(SupervisionError, match="refused: exit 64; .*needs --cwd") as caught:
        supervisor.run(command, deadline_s=5)
    assert caught.value.launched is False


def breaking(gone_at: str) -> Callable[[str, Sequence[str]], None]:
    def before(verb: str, words: Sequence[str]) -> None:
        if any(gone_at in word for word in words):
            raise ContainerGone("gone")

    return before


def test_a_container_that_is_gone_is_no_supervision_error(
    place: FolderPlace, supervisor: Supervisor
) -> None:
    place.before = breaking("--deadline")
    with pytest.raises(ContainerGone):
        supervisor.run(shell("exit 0"), deadline_s=5)


def test_settling_what_never_began_says_that_nothing_ran(supervisor: Supervisor) -> None:
    receipt = supervisor.settle()
    assert not receipt.launched
    assert receipt.error is not None
    assert receipt.cleanup_confirmed


def test_a_stop_that_cannot_be_asked_for_is_said(place: FolderPlace) -> None:
    with pytest.raises(SupervisionError, match="cannot ask for a stop"):
        Supervisor(place, f"{place.root}/none").request_stop()
