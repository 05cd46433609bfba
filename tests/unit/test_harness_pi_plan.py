"""The launch plan of Pi."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

import pytest

from sandbox.harnesses.base import LaunchContext, LaunchPlan
from sandbox.harnesses.pi import PI
from tests.unit.launches import KEY, SESSION, content, launch_context

TASK_ENV = {
    "HOME": "/home/task",
    "PATH": "/task/bin:/usr/bin:/bin",
    "XDG_CONFIG_HOME": "/home/task/.cfg",
    "NODE_OPTIONS": "--require /task/x.js",
    "PI_OFFLINE": "0",
    "DEBUG": "*",
    "LANG": "de_DE.UTF-8",
}


def context(**changes: object) -> LaunchContext:
    return launch_context(TASK_ENV, **changes)


def settings(**changes: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(content(PI.plan(context(**changes)), "/agent/settings.json"))
    return found


def provider(plan: LaunchPlan) -> dict[str, Any]:
    (found,) = json.loads(content(plan, "/agent/models.json"))["providers"].values()
    return dict(found)


def test_the_same_context_gives_the_same_plan() -> None:
    assert PI.plan(context()) == PI.plan(context())


def test_everything_is_inside_the_session() -> None:
    plan = PI.plan(context())
    named = [plan.env[name] for name in ("HOME", "TMPDIR", "PI_CODING_AGENT_DIR")]
    paths = [file.path for file in plan.files] + [*plan.native, *named]
    assert all(PurePosixPath(path).is_relative_to(SESSION) for path in paths)
    assert {*named, *plan.native} <= set(plan.directories)


def test_the_image_does_not_change_the_harness() -> None:
    env = PI.plan(context()).env
    assert (env["PATH"], env["LANG"]) == (TASK_ENV["PATH"], TASK_ENV["LANG"])
    assert env["PI_OFFLINE"] == "1"
    assert not {"NODE_OPTIONS", "DEBUG", "XDG_CONFIG_HOME"} & set(env)


def test_tools_get_the_environment_of_the_task() -> None:
    plan = PI.plan(context())
    shell = f"{SESSION}/shell"
    assert settings()["shellPath"] == shell
    (script,) = [file for file in plan.files if file.path == shell]
    assert script.mode == 0o700
    for name, value in TASK_ENV.items():
        assert f"{name}={value}" in script.data.decode()


def test_the_key_is_in_one_variable_and_no_file() -> None:
    plan = PI.plan(context())
    assert [name for name, value in plan.env.items() if KEY in value] == ["SANDBOX_MODEL_KEY"]
    assert not any(KEY.encode() in file.data for file in plan.files)
    assert not any(KEY in word for word in plan.argv)
    assert provider(plan)["apiKey"] == "$SANDBOX_MODEL_KEY"


def test_no_file_is_open_to_others() -> None:
    assert {file.mode & 0o077 for file in PI.plan(context()).files} == {0}


def test_the_prompt_is_no_argument() -> None:
    plan = PI.plan(context(prompt="--flag 42 " + "x" * 200_000))
    assert len(content(plan, "/prompt")) == 200_010
    assert max(len(word) for word in plan.argv) < 200


def test_the_provider_is_the_model_link() -> None:
    plan = PI.plan(context())
    assert provider(plan)["baseUrl"] == "http://127.0.0.1:8080/rollout/r1/v1"
    assert provider(plan)["api"] == "openai-completions"
    assert [model["id"] for model in provider(plan)["models"]] == ["scripted"]
    assert plan.argv[plan.argv.index("--model") + 1] == "scripted"
    assert "/opt/agent/prefix/bin/pi" in plan.argv


def test_every_request_names_the_session() -> None:
    plan = PI.plan(context())
    session = plan.argv[plan.argv.index("--session-id") + 1]
    header = PI.capabilities.session_header
    assert provider(plan)["headers"] == {header: session}
    other = PI.plan(context(rollout_id="r2"))
    assert other.argv[other.argv.index("--session-id") + 1] != session


@pytest.mark.parametrize(
    ("deadline_s", "limits"),
    [(3600.0, (300_000, 3, 2000)), (90.0, (45_000, 3, 2000)), (12.0, (6_000, 2, 500))],
)
def test_its_limits_come_from_the_deadline(deadline_s: float, limits: tuple[int, int, int]) -> None:
    told = settings(deadline_s=deadline_s)
    retry = told["retry"]
    assert (told["httpIdleTimeoutMs"], retry["maxRetries"], retry["baseDelayMs"]) == limits


def test_neither_the_task_nor_the_image_configures_it() -> None:
    plan = PI.plan(context())
    assert {
        "--no-approve",
        "--no-context-files",
        "--no-extensions",
        "--no-skills",
        "--no-prompt-templates",
        "--no-themes",
    } <= set(plan.argv)
    # .pi/settings.json of the task may name another folder, before anybody trusts it
    assert plan.argv[plan.argv.index("--session-dir") + 1] in plan.native
    assert settings()["defaultProjectTrust"] == "never"
    assert PI.capabilities.project_instructions == "none"


def test_nothing_reports_or_updates() -> None:
    env = PI.plan(context()).env
    assert (env["PI_OFFLINE"], env["PI_SKIP_VERSION_CHECK"], env["PI_TELEMETRY"]) == ("1", "1", "0")
    told = settings()
    assert (told["enableInstallTelemetry"], told["enableAnalytics"]) == (False, False)
    assert told["cacheWarming"] == "off"
