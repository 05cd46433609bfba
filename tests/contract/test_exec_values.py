"""exec: what a command gives back, byte for byte, is what it did."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from sandbox.engine.command import MAX_WORD_BYTES
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import UsageError
from tests.contract.kit import run, said, sh

pytestmark = pytest.mark.docker


@pytest.mark.parametrize("code", [0, 1, 7, 125, 126, 127, 128, 255])
def test_exit_code_is_a_value(box: Sandbox, code: int) -> None:
    result = sh(box, f"exit {code}")
    assert (result.exit_code, result.ok) == (code, code == 0)
    flags = (result.timed_out, result.cancelled, result.oom_killed, result.sandbox_killed)
    assert not any(flags)


@pytest.mark.parametrize("number", [1, 6, 9, 11, 15])
def test_signal_is_128_plus_its_number(box: Sandbox, number: int) -> None:
    assert sh(box, f"kill -{number} $$").exit_code == 128 + number


def test_streams_are_apart(box: Sandbox) -> None:
    result = sh(box, "echo out; echo err >&2; echo out2; echo err2 >&2")
    assert result.stdout.data == b"out\nout2\n"
    assert result.stderr.data == b"err\nerr2\n"


def test_each_stream_is_in_order(box: Sandbox) -> None:
    result = sh(box, "i=0; while [ $i -lt 3000 ]; do echo $i; echo e$i >&2; i=$((i+1)); done")
    assert result.stdout.text.split() == [str(number) for number in range(3000)]
    assert result.stderr.text.split() == [f"e{number}" for number in range(3000)]


def test_utf8_may_be_split_anywhere(box: Sandbox) -> None:
    pieces = (r"\360", r"\237\215", r"\220 \303", r"\251")
    script = "; sleep 0.1; ".join(f"printf '{piece}'" for piece in pieces)
    assert sh(box, script).stdout.text == "🍐 é"


def test_binary_output_is_kept(box: Sandbox) -> None:
    everything = bytes(range(256)) * 64
    result = run(box, "cat", stdin=everything)
    assert result.stdout.data == everything
    assert sh(box, "cat >&2", stdin=everything).stderr.data == everything


def test_invalid_utf8_is_replaced_in_text_only(box: Sandbox) -> None:
    result = sh(box, r"printf 'a\377b'")
    assert (result.stdout.data, result.stdout.text) == (b"a\xffb", "a�b")


def test_empty_output(box: Sandbox) -> None:
    result = run(box, "true")
    assert (result.stdout.data, result.stderr.data, result.stdout.total) == (b"", b"", 0)


@pytest.mark.parametrize("text", ["no newline at the end", "two\n\n", "\n", " \t"])
def test_blanks_and_newlines_are_kept(box: Sandbox, text: str) -> None:
    assert run(box, "printf", "%s", text).stdout.text == text


def test_no_shell_reads_the_words(box: Sandbox) -> None:
    words = ["$HOME", "`id`", "a b", "", "*", "'", '"', "\\", "; exit 3", "-n", "é\n"]
    assert run(box, "printf", "[%s]", *words).stdout.text == "".join(f"[{word}]" for word in words)


def test_longest_word_passes(box: Sandbox) -> None:
    word = "x" * MAX_WORD_BYTES
    assert said(sh(box, 'echo "${#1}"', word)) == f"{MAX_WORD_BYTES}\n"


def test_longer_word_is_refused_before_the_engine_sees_it(box: Sandbox) -> None:
    with pytest.raises(UsageError, match=r"at most 131071 bytes in one\n.*standard input"):
        run(box, "echo", "x" * (MAX_WORD_BYTES + 1))
    with pytest.raises(UsageError, match="at most 131071 bytes"):
        run(box, "true", env={"BIG": "é" * (MAX_WORD_BYTES // 2)})


@pytest.mark.parametrize(
    "argv",
    [[], [""], "true", ["a\0b"], ["true", 7]],
    ids=["none", "empty", "text", "nul", "number"],
)
def test_what_is_no_command_is_refused(box: Sandbox, argv: list[str]) -> None:
    with pytest.raises(UsageError):
        box.exec(argv, deadline_s=5)


def test_words_of_engine_errors_change_nothing(box: Sandbox) -> None:
    words = (
        "OCI runtime exec failed: exec failed: unable to start container process: exec: "
        '"sh": executable file not found in $PATH: unknown\r\n'
        "Error response from daemon: No such container: x\nservice foo is not running\n"
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock\n"
        "unable to find user root: no matching entries in passwd file\nOOMKilled\nKilled\n"
    )
    for code in (0, 1, 126, 127, 137):
        result = sh(box, 'printf %s "$1"; printf %s "$1" >&2; exit "$2"', words, str(code))
        assert (result.exit_code, result.oom_killed) == (code, False)
        assert result.stdout.text == result.stderr.text == words


def test_stdin_is_given_and_ends(box: Sandbox) -> None:
    assert run(box, "cat", stdin=b"one\ntwo").stdout.data == b"one\ntwo"
    assert run(box, "cat", stdin=b"").stdout.data == b""


def test_no_stdin_is_end_of_file(box: Sandbox) -> None:
    assert run(box, "cat").exit_code == 0


def test_large_stdin_while_output_flows_back(box: Sandbox) -> None:
    data = bytes(range(251)) * 40_000
    result = run(box, "cat", stdin=data, cap_bytes=len(data))
    assert result.stdout.data == data


def test_unread_stdin_is_no_error(box: Sandbox) -> None:
    result = sh(box, "exec <&-; echo gone", stdin=b"x" * 5_000_000)
    assert (result.exit_code, result.stdout.text) == (0, "gone\n")


def test_cwd(box: Sandbox) -> None:
    assert said(run(box, "pwd", cwd="/usr/lib")) == "/usr/lib\n"
    with pytest.raises(UsageError):
        run(box, "pwd", cwd="relative")


@pytest.mark.parametrize(
    "value", ["", "two\nlines\n", "a=b=c", " blank ", "é🍐", "$HOME", "x" * 70_000], ids=len
)
def test_env_values_are_kept(box: Sandbox, value: str) -> None:
    assert said(sh(box, 'printf %s "$VALUE"', env={"VALUE": value})) == value


def test_env_is_added_to_the_images(box: Sandbox) -> None:
    names = said(run(box, "env", env={"ONE": "1"})).splitlines()
    assert "ONE=1" in names
    assert any(line.startswith("PATH=") for line in names)
    assert said(sh(box, "echo ${ONE-none}")) == "none\n"


def test_env_overrides_the_images(box: Sandbox) -> None:
    assert said(run(box, "/bin/sh", "-c", "echo $PATH", env={"PATH": "/bin"})) == "/bin\n"


@pytest.mark.parametrize("name", ["", "A=B", "N\0"])
def test_env_names_are_checked(box: Sandbox, name: str) -> None:
    with pytest.raises(UsageError):
        run(box, "true", env={name: "x"})


@pytest.mark.parametrize(
    ("user", "uid", "gid"), [("0", "0", "0"), ("root", "0", "0"), ("12345:678", "12345", "678")]
)
def test_user(box: Sandbox, user: str, uid: str, gid: str) -> None:
    assert said(sh(box, "id -u; id -g", user=user)).split() == [uid, gid]


def test_named_user_and_its_home(box: Sandbox) -> None:
    line = said(sh(box, "grep ^nobody: /etc/passwd")).split(":")
    assert said(sh(box, "id -u; echo $HOME", user="nobody")).split() == [line[2], line[5]]


def test_the_sandboxs_user_is_the_default(user_box: Sandbox) -> None:
    assert said(sh(user_box, "id -u; id -g; pwd")).split() == ["1000", "1000", "/workspace"]
    assert said(sh(user_box, "id -u", user="0")) == "0\n"


def test_commands_run_side_by_side(box: Sandbox) -> None:
    script = """
        : >"/tmp/beside-$1"
        until [ "$(ls /tmp | grep -c beside-)" -ge 6 ]; do sleep 0.05; done
        echo "$1"
        exit "$1"
    """
    with ThreadPoolExecutor(6) as threads:
        results = list(
            threads.map(lambda number: sh(box, script, str(number), deadline_s=60), range(6))
        )
    said(sh(box, "rm /tmp/beside-*"))
    assert [result.exit_code for result in results] == list(range(6))
    assert [result.stdout.text for result in results] == [f"{number}\n" for number in range(6)]


def test_duration_is_measured(box: Sandbox) -> None:
    began = time.monotonic()
    measured = run(box, "sleep", "0.3").duration_s
    assert 0.3 <= measured <= time.monotonic() - began
