"""The launch plan of Claude Code."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from sandbox.harnesses.base import LaunchContext
from sandbox.harnesses.claude_code import CLAUDE_CODE
from tests.unit.launches import KEY, SESSION, content, launch_context

TASK_ENV = {
    "HOME": "/home/task",
    "PATH": "/task/bin:/usr/bin:/bin",
    "XDG_CONFIG_HOME": "/home/task/.cfg",
    "ANTHROPIC_BASE_URL": "http://elsewhere",
    "ANTHROPIC_API_KEY": "the task's own",
    "DISABLE_TELEMETRY": "0",
    "MAX_THINKING_TOKENS": "1",
    "LANG": "de_DE.UTF-8",
}


def context(**changes: object) -> LaunchContext:
    return launch_context(TASK_ENV, **{"platform": "linux-x64-musl", **changes})


def test_the_same_context_gives_the_same_plan() -> None:
    assert CLAUDE_CODE.plan(context()) == CLAUDE_CODE.plan(context())


def test_everything_is_inside_the_session() -> None:
    plan = CLAUDE_CODE.plan(context())
    named = [plan.env[name] for name in ("HOME", "TMPDIR", "CLAUDE_CODE_TMPDIR")]
    named += [plan.env["CLAUDE_CONFIG_DIR"]]
    paths = [file.path for file in plan.files] + [*plan.native, *named]
    assert all(PurePosixPath(path).is_relative_to(SESSION) for path in paths)
    assert set(named) <= set(plan.directories)


def test_the_image_does_not_change_the_harness() -> None:
    env = CLAUDE_CODE.plan(context()).env
    assert (env["PATH"], env["LANG"]) == (TASK_ENV["PATH"], TASK_ENV["LANG"])
    assert env["DISABLE_TELEMETRY"] == "1"
    assert "the task's own" not in env.values()
    assert not {"MAX_THINKING_TOKENS", "XDG_CONFIG_HOME"} & set(env)


def test_tools_get_the_environment_of_the_task_in_the_bash_of_the_runtime() -> None:
    plan = CLAUDE_CODE.plan(context())
    shell = plan.env["CLAUDE_CODE_SHELL"]
    (script,) = [file for file in plan.files if file.path == shell]
    assert script.mode == 0o700
    text = script.data.decode()
    assert "for shell in /opt/agent/prefix/bin/bash " in text
    for name, value in TASK_ENV.items():
        assert name in text
        assert value.split("'")[0] in text
    assert KEY not in text


def test_the_shell_has_a_name_that_claude_code_takes() -> None:
    """Another one is passed over without an error."""
    assert "bash" in PurePosixPath(CLAUDE_CODE.plan(context()).env["CLAUDE_CODE_SHELL"]).name


def test_the_key_is_in_one_variable_and_no_file() -> None:
    plan = CLAUDE_CODE.plan(context())
    assert [name for name, value in plan.env.items() if KEY in value] == ["ANTHROPIC_API_KEY"]
    assert not any(KEY.encode() in file.data for file in plan.files)
    assert not any(KEY in word for word in plan.argv)


def test_no_file_is_open_to_others() -> None:
    assert {file.mode & 0o077 for file in CLAUDE_CODE.plan(context()).files} == {0}


def test_the_prompt_is_no_argument() -> None:
    plan = CLAUDE_CODE.plan(context(prompt="--flag 42 " + "x" * 200_000))
    assert len(content(plan, "/prompt")) == 200_010
    assert max(len(word) for word in plan.argv) < 200


def test_the_provider_is_the_model_link() -> None:
    plan = CLAUDE_CODE.plan(context())
    assert plan.env["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8080/rollout/r1"  # it adds /v1
    models = [value for name, value in plan.env.items() if name.endswith("_MODEL")]
    assert models == ["scripted"] * 3
    assert plan.argv[plan.argv.index("--model") + 1] == "scripted"
    assert "/opt/agent/prefix/bin/claude-code" in plan.argv


@pytest.mark.parametrize(
    ("deadline_s", "limits"),
    [
        (3600.0, ("300000", "300000", "120000", "4")),
        (90.0, ("45000", "45000", "30000", "4")),
        (12.0, ("6000", "6000", "4000", "2")),
    ],
)
def test_its_limits_come_from_the_deadline(
    deadline_s: float, limits: tuple[str, str, str, str]
) -> None:
    env = CLAUDE_CODE.plan(context(deadline_s=deadline_s)).env
    names = (
        "API_TIMEOUT_MS",
        "CLAUDE_STREAM_FIRST_BYTE_TIMEOUT_MS",
        "CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS",
        "CLAUDE_CODE_MAX_RETRIES",
    )
    assert tuple(env[name] for name in names) == limits


def test_the_task_does_not_configure_it() -> None:
    plan = CLAUDE_CODE.plan(context())
    assert plan.argv[plan.argv.index("--setting-sources") + 1] == "user"
    assert {"--strict-mcp-config", "--disable-slash-commands"} <= set(plan.argv)
    assert plan.env["CLAUDE_CODE_DISABLE_CLAUDE_MDS"] == "1"
    assert CLAUDE_CODE.capabilities.project_instructions == "none"


def test_nothing_reports_or_updates() -> None:
    env = CLAUDE_CODE.plan(context()).env
    for switch in (
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "DISABLE_AUTOUPDATER",
        "DISABLE_ERROR_REPORTING",
        "DISABLE_TELEMETRY",
        "DISABLE_UPDATES",
    ):
        assert env[switch] == "1"
