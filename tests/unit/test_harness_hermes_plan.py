"""The launch plan of Hermes, and what its shell files do in a real bash."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from sandbox.errors import UsageError
from sandbox.harnesses import hermes_plugin
from sandbox.harnesses.base import LaunchPlan
from sandbox.harnesses.hermes import HERMES, JOURNAL, SHELLS
from tests.unit.launches import KEY, SESSION, launch_context
from tests.unit.launches import content as planned

TASK_ENV = {
    "HOME": "/home/task",
    "PATH": "/task/bin:/usr/bin:/bin",
    "PYTHONPATH": "/task/lib",
    "http_proxy": "http://proxy:3128",
    "TERMINAL_ENV": "docker",
    "HERMES_YOLO_MODE": "0",
    "OPENAI_API_KEY": "the task's own",
    "BASH_ENV": "/task/bashrc",
    "MULTI": "a\n\"b\"\t\\c $(x) 'y'",
    "LANG": "de_DE.UTF-8",
    "not-a-name": "x",
}


def plan(session: str = SESSION, **changes: object) -> LaunchPlan:
    return HERMES.plan(launch_context(TASK_ENV, session_dir=session, **changes))


def content(made: LaunchPlan, suffix: str) -> str:
    return planned(made, suffix).decode()


def config() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(content(plan(), "/config.yaml"))
    return found


def write(made: LaunchPlan) -> None:
    for file in made.files:
        path = Path(file.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
        path.chmod(file.mode)


def test_the_same_context_gives_the_same_plan() -> None:
    assert plan() == plan()


def test_everything_is_inside_the_session() -> None:
    made = plan()
    paths = [file.path for file in made.files] + [*made.native, *made.proof]
    private = ("HOME", "TMPDIR", "HERMES_HOME", "HERMES_MANAGED_DIR", "BASH_ENV", "SHELL")
    paths += [made.env[name] for name in private]
    paths += [value for name, value in made.env.items() if name.startswith("XDG_")]
    assert all(PurePosixPath(path).is_relative_to("/opt/agent/ses sion") for path in paths)
    for proof in made.proof:
        assert any(PurePosixPath(proof).is_relative_to(kept) for kept in made.native)


def test_folders_that_the_environment_names_are_made() -> None:
    made = plan()
    for name in ("HOME", "TMPDIR", "HERMES_HOME", "HERMES_MANAGED_DIR", "XDG_CACHE_HOME"):
        assert made.env[name] in made.directories


def test_the_image_does_not_change_the_harness() -> None:
    env = plan().env
    assert env["LANG"] == "de_DE.UTF-8"
    assert env["PATH"] == TASK_ENV["PATH"]
    assert not {"PYTHONPATH", "http_proxy", "TERMINAL_ENV", "HERMES_YOLO_MODE"} & set(env)
    assert "the task's own" not in env.values()


def test_the_key_is_in_one_variable_and_no_file() -> None:
    made = plan()
    assert [name for name, value in made.env.items() if KEY in value] == ["SANDBOX_MODEL_KEY"]
    assert not any(KEY in file.data.decode() for file in made.files)
    assert not any(KEY in word for word in made.argv)
    assert config()["model"]["api_key"] == "${SANDBOX_MODEL_KEY}"


def test_no_file_is_open_to_others() -> None:
    assert {file.mode & 0o077 for file in plan().files} == {0}


@pytest.mark.parametrize("deadline_s", [1.0, 90.0, 240.0, 360.0, 540.0, 5000.0])
def test_no_limit_is_the_number_that_means_not_set(deadline_s: float) -> None:
    limits = [
        float(value)
        for name, value in plan(deadline_s=deadline_s).env.items()
        if "TIMEOUT" in name and name.startswith("HERMES_")
    ]
    assert len(limits) == 4
    assert all(0 < limit <= deadline_s + 0.001 for limit in limits)
    assert not {120.0, 180.0} & set(limits)


def test_nothing_talks_to_anybody_else() -> None:
    said = config()
    assert said["security"]["allow_lazy_installs"] is False
    assert said["auxiliary"]["title_generation"]["enabled"] is False
    assert said["model_catalog"]["enabled"] is False
    assert content(plan(), "/.install_method") == "docker\n"
    assert "--ignore-rules" in plan().argv


@pytest.mark.parametrize(
    "prompt", ["--flag 42", "a\n\n", "$(x) `y` \"z\" 'w' \\", "äöü 漢字\t", "x" * 120_000]
)
def test_the_prompt_arrives_byte_for_byte(prompt: str, tmp_path: Path) -> None:
    made = plan(str(tmp_path), prompt=prompt)
    write(made)
    show = [sys.executable, "-ISc", "import sys; sys.stdout.buffer.write(sys.argv[-1].encode())"]
    argv = [*made.argv[:5], *show]
    ended = subprocess.run(argv, capture_output=True, check=True)
    assert ended.stdout.decode() == f"--query={prompt}"


def test_a_prompt_that_is_no_argument_is_refused() -> None:
    with pytest.raises(UsageError, match="131072 bytes"):
        plan(prompt="x" * 131_072)


@pytest.mark.parametrize("options", [["-c"], ["-l", "-c"]], ids=["plain", "login"])
@pytest.mark.parametrize("shell", ["bash", "ours"])
def test_commands_see_the_tasks_environment(options: list[str], shell: str, tmp_path: Path) -> None:
    made = plan(str(tmp_path))
    write(made)
    program = "bash" if shell == "bash" else made.env["SHELL"]
    seen = run([program, *options, "env -0"], made)
    own = {"PWD", "OLDPWD", "SHLVL", "_", "not-a-name"}  # bash may pass on the last one
    wanted = {name: value for name, value in TASK_ENV.items() if name != "not-a-name"}
    assert {name: value for name, value in seen.items() if name not in own} == wanted
    assert (tmp_path / "receipt" / SHELLS).read_text() == "shell\n"


def test_a_command_in_the_background_has_no_profile(tmp_path: Path) -> None:
    made = plan(str(tmp_path))
    write(made)
    seen = run([made.env["SHELL"], "-lic", "set +m; env -0"], made)
    assert seen["PATH"] == TASK_ENV["PATH"]
    assert "SANDBOX_MODEL_KEY" not in seen


def run(argv: list[str], made: LaunchPlan) -> dict[str, str]:
    env = {**made.env, "PATH": "/usr/local/bin:/usr/bin:/bin"}
    ended = subprocess.run(argv, env=env, capture_output=True, check=True)
    return dict(item.split("=", 1) for item in ended.stdout.decode().split("\0") if item)


class Context:
    """The part of Hermes' plugin interface that the plugin uses."""

    def __init__(self) -> None:
        self.hooks: dict[str, Callable[..., Any]] = {}
        self.middleware: dict[str, Callable[..., Any]] = {}

    def register_hook(self, name: str, callback: Callable[..., Any]) -> None:
        self.hooks[name] = callback

    def register_middleware(self, kind: str, callback: Callable[..., Any]) -> None:
        self.middleware[kind] = callback


def test_the_plugin_keeps_a_journal_and_names_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_JOURNAL", str(tmp_path / JOURNAL))
    context = Context()
    hermes_plugin.register(context)
    context.hooks["pre_tool_call"](session_id="s", tool_call_id="c", args={"not": "kept"})
    context.hooks["api_request_error"](session_id="s", error={"type": "T", "message": "m"})
    context.hooks["subagent_start"](parent_session_id=object(), child_session_id="d")
    lines = [json.loads(line) for line in (tmp_path / JOURNAL).read_text().splitlines()]
    assert [line["event"] for line in lines] == [
        "loaded",
        "pre_tool_call",
        "api_request_error",
        "subagent_start",
    ]
    assert "args" not in lines[1]
    assert (lines[2]["error_type"], lines[2]["error_message"]) == ("T", "m")
    change = context.middleware["llm_request"]
    request = {"model": "m", "extra_headers": {"a": "b"}}
    assert change(request=request, session_id="s")["request"] == {
        "model": "m",
        "extra_headers": {"a": "b", "x-session-id": "s"},
    }
    assert change(request=request) is None
    assert change(request="text", session_id="s") is None
