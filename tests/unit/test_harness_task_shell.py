"""The shell that gives a harness's tools the task's environment, run for real."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.harnesses.task_shell import harness_env, shell_gaps, shells_started, task_shell

TASK_ENV = {
    "HOME": "/home/task",
    "PATH": "/task/bin:/usr/bin:/bin",
    "MULTI": "a\n'b' \"$c\" `d` \\e",
    "BASH_ENV": "/nowhere",
}
PRINT_ENV = "tr '\\0' '\\n' </proc/self/environ"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "ses 'sion"
    path.mkdir()
    return path


def run(
    folder: Path,
    *words: str,
    tool_env: Mapping[str, str] = TASK_ENV,
    harness: Mapping[str, str] | None = None,
    program: str | None = "/bin/sh",
    keep: tuple[str, ...] = (),
) -> str:
    planned = task_shell(
        str(folder / "bash"),
        tool_env=tool_env,
        receipt=str(folder / "receipt" / "shells"),
        program=program,
        keep=keep,
    )
    script = Path(planned.path)
    script.write_bytes(planned.data)
    script.chmod(planned.mode)
    ended = subprocess.run(
        [str(script), *words],
        env={"PATH": "/usr/bin:/bin", "SECRET": "of the harness", **(harness or {})},
        capture_output=True,
        check=True,
        timeout=10,
    )
    assert ended.stderr == b""
    return ended.stdout.decode()


def test_the_command_sees_the_environment_of_the_task_and_nothing_else(folder: Path) -> None:
    seen = run(folder, "-c", "cat /proc/self/environ", harness={"HOME": "/private"})
    variables = dict(entry.split("=", 1) for entry in seen.split("\0") if entry)
    assert {name: variables[name] for name in TASK_ENV} == TASK_ENV
    assert set(variables) - set(TASK_ENV) <= {"PWD", "OLDPWD", "SHLVL", "_"}


@settings(deadline=None, max_examples=10)
@given(
    value=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
)
def test_any_value_arrives_as_it_is(value: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("shell")
    seen = run(folder, "-c", "cat /proc/self/environ", tool_env={"PATH": "/bin", "VALUE": value})
    assert f"VALUE={value}" in seen.split("\0")


def test_its_words_are_those_of_the_harness(folder: Path) -> None:
    words = ("-c", 'printf "%s|" "$@"', "name", "a b", "", "$c")
    assert run(folder, *words) == "a b||$c|"


def test_a_login_shell_becomes_a_plain_one(folder: Path) -> None:
    assert run(folder, "-c", "-l", "echo $0 $-", program="/bin/bash").split()[1].count("l") == 0
    assert run(folder, "-c", "-l", "echo same") == "same\n"


def test_what_the_harness_adds_for_its_tools_is_kept_where_the_task_has_none(folder: Path) -> None:
    seen = run(
        folder,
        "-c",
        PRINT_ENV,
        harness={"GIT_EDITOR": "a b", "MULTI": "the harness's"},
        keep=("GIT_EDITOR", "MULTI", "UNSET"),
    )
    assert "GIT_EDITOR=a b\n" in seen
    assert "the harness's" not in seen
    assert "UNSET" not in seen


@pytest.mark.parametrize("program", ["/bin/bash", None, "/nowhere/bash"])
def test_the_shell_is_the_named_one_or_the_best_of_the_image(
    folder: Path, program: str | None
) -> None:
    assert run(folder, "-c", "echo $0", program=program) == "/bin/bash\n"


def test_each_start_leaves_a_line(folder: Path) -> None:
    receipt = folder / "receipt"
    assert run(folder, "-c", "echo it works all the same") == "it works all the same\n"
    assert shells_started(folder, "shells") == 0
    receipt.mkdir()
    for _ in range(3):
        run(folder, "-c", ":")
    assert shells_started(folder, "shells") == 3
    assert (receipt / "shells").read_text().split()[0].isdigit()


def test_a_shell_without_a_line_is_a_gap(tmp_path: Path) -> None:
    (tmp_path / "shells").write_text("12\n13\n")
    assert shell_gaps(tmp_path, "shells", ran=2) == ()
    (gap,) = shell_gaps(tmp_path, "shells", ran=3)
    assert gap.code == "agent_artifact_unavailable"
    assert "3 shells ran and 2 have a receipt" in gap.detail
    assert len(shell_gaps(tmp_path, "another", ran=1)) == 1
    assert shell_gaps(tmp_path, "another", ran=0) == ()


def test_the_script_is_for_its_user_alone() -> None:
    planned = task_shell("/session/shell", tool_env={}, receipt="/session/receipt")
    assert planned.mode == 0o700


def test_a_harness_keeps_only_path_and_locale() -> None:
    kept = {"PATH": "/task/bin", "LANG": "de_DE.UTF-8", "LC_ALL": "C", "TZ": "UTC"}
    dropped = {"HOME": "/home/task", "DISABLE_TELEMETRY": "0", "API_TIMEOUT_MS": "1", "CI": "1"}
    assert harness_env({**kept, **dropped}) == kept
    assert harness_env({})["PATH"]
