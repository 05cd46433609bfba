"""The kept shell: what it is told and what it answers, with the shells of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.engine.framing import Reply, carries, request
from sandbox.engine.limits import Limits
from sandbox.engine.output import BoundedOutput
from sandbox.engine.processes import KEPT_SHELL, ProcessInfo, of_the_task
from sandbox.engine.programs import Programs
from sandbox.engine.scripts import script
from sandbox.errors import EngineFailure

IDENT = "0123456789abcdef" * 2
SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]
TEXT = st.text(
    st.sampled_from("ab-=~ *?'\"\\$`!#;&|\n\t\r\x01\x7f\x81\x88é\U0001f350"), max_size=12
)


def answered(
    shell: str, *requests: bytes, env: dict[str, str] | None = None
) -> tuple[bytes, bytes]:
    """Give the two streams of a shell of this machine that was kept for these requests."""
    path = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    ended = subprocess.run(
        ["sh", *KEPT_SHELL[1:]],
        executable=shutil.which(shell),
        input=script("channel").encode() + b"".join(requests),
        env={**path, **(env or {})},
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert ended.stdout.startswith(b"ready\n")
    return ended.stdout.removeprefix(b"ready\n"), ended.stderr


def replied(chunks: list[bytes], errors: list[bytes]) -> tuple[Reply, bytes, bytes]:
    out, err = bytearray(), bytearray()
    reply = Reply(IDENT, stdout=out.extend, stderr=err.extend)
    for chunk in chunks:
        reply.out(memoryview(chunk))
    for chunk in errors:
        reply.err(memoryview(chunk))
    return reply, bytes(out), bytes(err)


def answer(data: bytes, status: int = 0, ident: str = IDENT) -> bytes:
    return f"{ident} yes\n".encode() + data + f"{ident} {status}\n".encode()


@given(
    data=st.one_of(st.binary(max_size=80), st.just(IDENT[:31].encode() + b" 0\n")),
    cuts=st.lists(st.integers(0, 160), max_size=6),
    status=st.integers(0, 255),
)
def test_output_passes_whole_however_it_is_cut(data: bytes, cuts: list[int], status: int) -> None:
    whole = answer(data, status)
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    chunks = [whole[a:b] for a, b in pairwise(edges)]
    reply, out, err = replied(chunks, [b"oh", f"{IDENT} {status}\n".encode()])
    assert (reply.complete(), reply.status, out, err) == (True, status, data, b"oh")


def test_an_answer_is_not_complete_before_both_streams_are() -> None:
    assert not replied([answer(b"x")], [b"so far"])[0].complete()
    assert not replied([f"{IDENT} yes\nx".encode()], [f"{IDENT} 0\n".encode()])[0].complete()


def test_what_was_held_back_is_passed_on_when_nothing_follows() -> None:
    reply, out, _ = replied([f"{IDENT} yes\n".encode() + IDENT[:20].encode()], [])
    assert out == b""
    kept = BoundedOutput(100)
    reply = Reply(IDENT, stdout=kept.write, stderr=kept.write)
    reply.out(memoryview(f"{IDENT} yes\n".encode() + IDENT[:20].encode()))
    reply.flush()
    assert kept.stream().data == IDENT[:20].encode()


def test_the_mark_of_another_request_is_output() -> None:
    foreign = answer(b"", 3, ident=IDENT[::-1])
    reply, out, _ = replied([answer(foreign, 4)], [f"{IDENT} 4\n".encode()])
    assert (out, reply.status) == (foreign, 4)


def test_a_refusal_passes_nothing_on() -> None:
    reply, out, _ = replied([f"{IDENT} no\n{IDENT} 0\n".encode()], [f"{IDENT} 0\n".encode()])
    assert (reply.began, reply.refused, reply.complete(), out) == (False, True, True, b"")


@pytest.mark.parametrize("said", [b"sh: syntax error\n", f"{IDENT} maybe\n".encode()])
def test_what_is_no_answer_is_refused(said: bytes) -> None:
    with pytest.raises(EngineFailure, match="the kept shell says"):
        replied([said], [])


@pytest.mark.parametrize("line", [b"x\n", b"1234567", b"\n"])
def test_a_broken_end_is_refused(line: bytes) -> None:
    with pytest.raises(EngineFailure, match="answer is broken"):
        replied([f"{IDENT} yes\n{IDENT} ".encode() + line], [])


@pytest.mark.parametrize("shell", SHELLS)
@settings(max_examples=5, deadline=None)
@given(words=st.lists(TEXT, max_size=6), value=TEXT)
def test_words_and_values_arrive_unchanged(shell: str, words: list[str], value: str) -> None:
    argv = ["printf", "%s\\0", *words]
    env = {"VALUE": value, "nonce": "1"}
    line = request(IDENT, argv, folder="/", env=env)
    told = request(IDENT, ["printenv", "VALUE"], folder="/", env=env)
    out, err = answered(shell, line, told)
    sent = "".join(f"{word}\0" for word in words or [""]).encode()
    assert out == answer(sent) + answer(value.encode() + b"\n")
    assert err == f"{IDENT} 0\n".encode() * 2


@pytest.mark.parametrize("shell", SHELLS)
def test_a_command_gets_the_shells_environment_and_nothing_of_the_shell(shell: str) -> None:
    own = {"GIVEN": "a\nb", "HOME": "/x"}
    line = request(IDENT, ["env", "-0"], folder="/usr", env={"MORE": "m"})
    out, _ = answered(shell, line, env=own)
    seen = set(out.removeprefix(f"{IDENT} yes\n".encode()).split(b"\0")[:-1])
    wanted = {**own, "MORE": "m", "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    assert seen == {f"{name}={text}".encode() for name, text in wanted.items()}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_command_does_not_read_the_next_request(shell: str) -> None:
    first = request(IDENT, ["cat"], folder="/")
    out, _ = answered(shell, first, request(IDENT, ["echo", "next"], folder="/"))
    assert out == answer(b"") + answer(b"next\n")


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_outlives_what_happens_to_a_command(shell: str) -> None:
    ends = ["kill -9 $$", "kill -TERM 0", "exit 7", "exec >&- 2>&-"]
    lines = [request(IDENT, ["sh", "-c", end], folder="/") for end in ends]
    lines.append(request(IDENT, ["true"], folder="/no/such/folder"))
    out, err = answered(shell, *lines)
    refused = f"{IDENT} no\n{IDENT} 0\n".encode()
    assert out == answer(b"", 137) + answer(b"", 143) + answer(b"", 7) + answer(b"") + refused
    assert err == "".join(f"{IDENT} {code}\n" for code in (137, 143, 7, 0, 0)).encode()


@pytest.mark.parametrize("name", ["A", "a_1", "PATH", "LC_ALL"])
def test_plain_names_are_carried(name: str) -> None:
    assert carries({"HOME": "/", name: "x"})


@pytest.mark.parametrize("name", ["my-var", "1A", "IFS", "_", "PWD", "BASH_ENV", "OPTIND", "é"])
def test_names_that_a_shell_would_change_are_not_carried(name: str) -> None:
    assert not carries({"HOME": "/", name: "x"})


def test_a_narrow_sandbox_keeps_no_shells() -> None:
    assert Limits().leaves_room
    assert not Limits(pids=16).leaves_room
    assert not Limits(memory_mib=64).leaves_room


def test_only_engine_started_shells_count_as_kept() -> None:
    def process(pid: int, parent: int, argv: tuple[str, ...]) -> ProcessInfo:
        return ProcessInfo(pid=pid, parent=parent, uid=0, argv=argv, state="S", started_ticks=pid)

    init, keeper = process(1, 0, ("init",)), process(2, 1, ("sleep",))
    kept, own = process(3, 0, KEPT_SHELL), process(4, 0, ("sh", "-s"))
    forged, forked = process(5, 1, KEPT_SHELL), process(6, 3, KEPT_SHELL)
    assert of_the_task([init, keeper, kept, own, forged, forked]) == (own, forged, forked)


def test_programs_are_known_by_file_and_change(tmp_path: Path) -> None:
    for folder in ("bin", "usr/bin"):
        (tmp_path / folder).mkdir(parents=True)
    tool = tmp_path / "usr/bin/tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    (tmp_path / "bin/link").symlink_to("/usr/bin/tool")  # the sandbox's /usr, not the host's
    programs = Programs(tmp_path)
    found = programs.find("link", "/bin:/usr/bin", "/")
    assert found == programs.find("tool", "/bin:/usr/bin", "/") is not None
    assert not programs.knows(found)
    programs.add(found)
    assert programs.knows(programs.find("../bin/link", None, "/usr"))
    tool.chmod(0o777)
    assert not programs.knows(programs.find("tool", "/usr/bin", "/"))


@pytest.mark.parametrize("word", ["-tool", "to=ol", "none", "folder", "hidden"])
def test_odd_programs_are_the_engines(tmp_path: Path, word: str) -> None:
    (tmp_path / "folder").mkdir(mode=0o755)
    for name in ("-tool", "to=ol", "hidden"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o700 if name == "hidden" else 0o755)
    programs = Programs(tmp_path)
    assert programs.find(word, "/", "/") is None
    assert programs.find("tool", "relative:/", "/") is None
    assert not programs.knows(None)
