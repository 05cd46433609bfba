"""The launch plan of Qwen Code."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

import pytest

from sandbox.harnesses.base import LaunchContext, LaunchPlan
from sandbox.harnesses.qwen_code import QWEN_CODE

KEY = "sk-local-test-1234"
SESSION = "/opt/agent/ses sion"
TASK_ENV = {
    "HOME": "/home/task",
    "PATH": "/task/bin:/usr/bin:/bin",
    "XDG_CONFIG_HOME": "/home/task/.cfg",
    "NODE_OPTIONS": "--require /task/x.js",
    "QWEN_HOME": "/elsewhere",
    "QWEN_SANDBOX": "docker",
    "OPENAI_BASE_URL": "http://elsewhere/v1",
    "DEBUG": "*",
    "LANG": "de_DE.UTF-8",
}


def context(**changes: object) -> LaunchContext:
    return LaunchContext.model_validate(
        {
            "prefix": "/opt/agent/prefix",
            "session_dir": SESSION,
            "workdir": "/task/work",
            "base_url": "http://127.0.0.1:8080/rollout/r1/v1",
            "api_key": KEY,
            "model": "scripted",
            "prompt": "Do it.",
            "deadline_s": 90.0,
            "task_env": TASK_ENV,
            "platform": "linux-x64-gnu",
            "rollout_id": "r1",
            **changes,
        }
    )


def content(plan: LaunchPlan, suffix: str) -> bytes:
    (found,) = [file.data for file in plan.files if file.path.endswith(suffix)]
    return found


def settings(**changes: object) -> dict[str, Any]:
    plan = QWEN_CODE.plan(context(**changes))
    found: dict[str, Any] = json.loads(content(plan, "/settings.json"))
    return found


def provider(**changes: object) -> dict[str, Any]:
    (found,) = settings(**changes)["modelProviders"]["openai"]
    return dict(found)


PLAN = QWEN_CODE.plan(context())


def test_the_same_context_gives_the_same_plan() -> None:
    assert QWEN_CODE.plan(context()) == PLAN


def test_everything_is_inside_the_session() -> None:
    paths = [file.path for file in PLAN.files] + list(PLAN.native)
    paths += [value for name, value in PLAN.env.items() if name in ("HOME", "TMPDIR")]
    paths += [PLAN.env[name] for name in ("QWEN_HOME", "QWEN_RUNTIME_DIR")]
    paths += [
        value for name, value in PLAN.env.items() if name.endswith("_PATH") and name != "PATH"
    ]
    assert all(PurePosixPath(path).is_relative_to(SESSION) for path in paths)
    assert PLAN.env["HOME"] in PLAN.directories


def test_the_image_does_not_change_the_harness() -> None:
    assert set(PLAN.env) & set(TASK_ENV) == {"HOME", "PATH", "LANG", "QWEN_HOME", "QWEN_SANDBOX"}
    assert PLAN.env["LANG"] == "de_DE.UTF-8"
    assert not {"/elsewhere", "docker", "/home/task"} & set(PLAN.env.values())


def test_the_first_bash_on_its_path_is_the_tasks_shell() -> None:
    first, rest = PLAN.env["PATH"].split(":", 1)
    assert rest == TASK_ENV["PATH"]
    (shell,) = [file for file in PLAN.files if file.path == f"{first}/bash"]
    assert shell.mode == 0o700
    assert b"PATH=/task/bin:/usr/bin:/bin\n" in shell.data
    assert b"HOME=/home/task" in shell.data


def test_the_key_is_in_one_variable_and_no_file() -> None:
    assert [name for name, value in PLAN.env.items() if KEY in value] == ["SANDBOX_MODEL_KEY"]
    assert not any(KEY.encode() in file.data for file in PLAN.files)
    assert not any(KEY in word for word in PLAN.argv)


def test_no_file_is_open_to_others() -> None:
    assert all(file.mode & 0o077 == 0 for file in PLAN.files)


def test_the_task_folder_configures_nothing() -> None:
    assert "--safe-mode" in PLAN.argv
    assert settings()["security"]["folderTrust"]["enabled"]
    assert json.loads(content(PLAN, "/trusted.json")) == {"/task/work": "DO_NOT_TRUST"}


def test_nothing_is_sent_elsewhere() -> None:
    found = settings()
    assert not found["general"]["enableAutoUpdate"]
    assert not found["privacy"]["usageStatisticsEnabled"]
    assert not found["telemetry"]["enabled"]


def test_the_provider_is_the_model_link_and_names_the_session() -> None:
    found = provider()
    assert found["baseUrl"] == "http://127.0.0.1:8080/rollout/r1/v1"
    session = PLAN.argv[PLAN.argv.index("--session-id") + 1]
    header = QWEN_CODE.capabilities.session_header
    assert found["generationConfig"]["customHeaders"] == {header: session}


@pytest.mark.parametrize(("deadline_s", "timeout_ms"), [(20.0, 10_000), (3600.0, 300_000)])
def test_a_request_ends_before_the_episode(deadline_s: float, timeout_ms: int) -> None:
    assert provider(deadline_s=deadline_s)["generationConfig"]["timeout"] == timeout_ms
