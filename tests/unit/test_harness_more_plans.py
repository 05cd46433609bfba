"""The launch plans of Kilo Code and OpenClaw."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from sandbox.harnesses.base import Harness, LaunchContext
from sandbox.harnesses.kilocode import KILOCODE
from sandbox.harnesses.openclaw import OPENCLAW
from sandbox.harnesses.openclaw_shell import shell_script
from tests.unit.launches import KEY, SESSION, content, launch_context

TASK_ENV = {
    "HOME": "/home/task",
    "PATH": "/task/bin:/usr/bin:/bin",
    "XDG_CONFIG_HOME": "/home/task/.cfg",
    "LD_PRELOAD": "/task/lib.so",
    "OPENAI_API_KEY": "the task's own",
    "KILO_PURE": "1",
    "OPENCLAW_STATE_DIR": "/elsewhere",
    "PWD": "/elsewhere",
    "http_proxy": "http://proxy:3128",
    "MULTI": 'a\n"b"\t\\c',
    "LANG": "de_DE.UTF-8",
}

HARNESS_ENV = {
    "PATH": "/task/bin:/usr/bin:/bin",
    "LANG": "C",
    "HOME": "/private",
    "TMPDIR": "/private/tmp",
    "XDG_CONFIG_HOME": "/private/cfg",
    "SHELL": "/private/sh",
    "SECRET": "sk-secret",
}
SHELL_ENV = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C",
    "SHELL": "/bin/bash",  # keeps variables that are no names of its own
    "HOME": "/home/a b",
    "XDG_CONFIG_HOME": "/home/a b/.cfg",
    "NODE_OPTIONS": "--title='x'",
    "MULTI": "a\n'b'",
    "odd.name": "odd value",
}


def context(**changes: object) -> LaunchContext:
    return launch_context(TASK_ENV, **changes)


def kilo_config(**changes: object) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(
        KILOCODE.plan(context(**changes)).env["KILO_CONFIG_CONTENT"]
    )
    return config


def openclaw_config(**changes: object) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(
        content(OPENCLAW.plan(context(**changes)), "/openclaw.json")
    )
    return config


@pytest.mark.parametrize("harness", [KILOCODE, OPENCLAW], ids=lambda harness: harness.name)
class TestBoth:
    def test_the_same_context_gives_the_same_plan(self, harness: Harness) -> None:
        assert harness.plan(context()) == harness.plan(context())

    def test_everything_is_inside_the_session(self, harness: Harness) -> None:
        plan = harness.plan(context())
        paths = [file.path for file in plan.files] + [*plan.native, *plan.proof]
        paths += [plan.env[name] for name in plan.env if name in ("HOME", "SHELL", "TMPDIR")]
        paths += [value for name, value in plan.env.items() if name.startswith("XDG_")]
        assert all(PurePosixPath(path).is_relative_to(SESSION) for path in paths)

    def test_a_proof_is_among_what_is_kept(self, harness: Harness) -> None:
        plan = harness.plan(context())
        assert plan.proof
        for proof in plan.proof:
            assert any(PurePosixPath(proof).is_relative_to(kept) for kept in plan.native)

    def test_folders_that_the_environment_names_are_made(self, harness: Harness) -> None:
        plan = harness.plan(context())
        for name in ("HOME", "TMPDIR", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
            assert plan.env[name] in plan.directories

    def test_the_image_does_not_change_the_harness(self, harness: Harness) -> None:
        env = harness.plan(context()).env
        assert env["LANG"] == "de_DE.UTF-8"
        assert env["PATH"].endswith(TASK_ENV["PATH"])
        assert not {"the task's own", "/elsewhere"} & set(env.values())
        for name in ("LD_PRELOAD", "OPENAI_API_KEY", "KILO_PURE", "PWD", "http_proxy"):
            assert name not in env

    def test_the_key_is_in_one_variable_and_no_file(self, harness: Harness) -> None:
        plan = harness.plan(context())
        assert [name for name, value in plan.env.items() if KEY in value] == ["SANDBOX_MODEL_KEY"]
        assert not any(KEY.encode() in file.data for file in plan.files)
        assert not any(KEY in word for word in plan.argv)

    def test_no_file_is_open_to_others(self, harness: Harness) -> None:
        assert all(file.mode & 0o077 == 0 for file in harness.plan(context()).files)

    def test_the_prompt_is_no_argument(self, harness: Harness) -> None:
        long = "--flag 42 " + "x" * 200_000
        plan = harness.plan(context(prompt=long))
        assert content(plan, "/prompt").decode() == long
        assert max(len(word) for word in plan.argv) < 200

    def test_the_command_is_the_installed_entry_point(self, harness: Harness) -> None:
        plan = harness.plan(context())
        assert f"/opt/agent/prefix/bin/{harness.name}" in plan.argv

    def test_it_speaks_chat_completions_and_hides_its_key(self, harness: Harness) -> None:
        assert harness.capabilities.dialect == "chat"
        assert not harness.capabilities.tools_see_key


class TestKilo:
    def test_the_provider_is_the_model_link(self) -> None:
        config = kilo_config()
        (name,) = config["enabled_providers"]
        options = config["provider"][name]["options"]
        assert options["baseURL"] == "http://127.0.0.1:8080/rollout/r1/v1"
        assert options["apiKey"] == "{env:SANDBOX_MODEL_KEY}"
        assert config["model"] == config["small_model"] == f"{name}/scripted"
        assert (options["timeout"], options["headerTimeout"], options["chunkTimeout"]) == (
            90_000,
            45_000,
            30_000,
        )

    @pytest.mark.parametrize(("deadline_s", "tries"), [(600.0, "5"), (20.0, "2")])
    def test_it_does_not_ask_for_ever(self, deadline_s: float, tries: str) -> None:
        plan = KILOCODE.plan(context(deadline_s=deadline_s))
        assert plan.env["KILO_SESSION_RETRY_LIMIT"] == tries

    def test_only_the_key_is_substituted(self) -> None:
        plan = KILOCODE.plan(context(base_url="http://127.0.0.1/{env:HOME}/{file:/etc/passwd}/v1"))
        text = plan.env["KILO_CONFIG_CONTENT"]
        assert re.findall(r"\{(?:env|file):[^}]+\}", text) == ["{env:SANDBOX_MODEL_KEY}"]
        options = json.loads(text)["provider"]["sandbox"]["options"]
        assert options["baseURL"] == "http://127.0.0.1/{env:HOME}/{file:/etc/passwd}/v1"

    def test_the_plugins_are_loaded_from_the_session(self) -> None:
        plan = KILOCODE.plan(context())
        assert json.loads(plan.env["KILO_CONFIG_CONTENT"])["plugin"] == [
            "file:///opt/agent/ses%20sion/plugin/shell-env.js",
            "file:///opt/agent/ses%20sion/plugin/kilocode.js",
        ]
        assert b"shell.env" in content(plan, "/plugin/shell-env.js")
        assert b"chat.headers" in content(plan, "/plugin/kilocode.js")

    def test_the_plugin_puts_back_what_was_planned(self) -> None:
        plan = KILOCODE.plan(context())
        planned = json.loads(content(plan, "/plugin/planned.json"))
        assert planned == {"permission": kilo_config()["permission"]}
        assert kilo_config()["permission"]["*"] == "allow"

    def test_the_plugin_knows_the_environment_and_the_receipt(self) -> None:
        plan = KILOCODE.plan(context())
        facts = json.loads(content(plan, "/plugin/shell-env.json"))
        assert facts["env"] == TASK_ENV
        assert (facts["receipt"],) == plan.proof

    def test_nothing_is_installed_and_nobody_is_called(self) -> None:
        plan = KILOCODE.plan(context())
        lock = json.loads(content(plan, "/config/kilo/package-lock.json"))
        assert "@kilocode/plugin" in lock["packages"][""]["dependencies"]
        assert f"{plan.env['XDG_CONFIG_HOME']}/kilo/node_modules" in plan.directories
        for name in ("KILO_API_URL", "KILO_MODELS_URL", "NPM_CONFIG_REGISTRY"):
            assert plan.env[name].startswith("http://127.0.0.1:9")

    def test_neither_the_task_nor_the_image_configures_it(self) -> None:
        plan = KILOCODE.plan(context())
        for switch in ("PROJECT_CONFIG", "CLAUDE_CODE", "EXTERNAL_SKILLS", "AUTOUPDATE"):
            assert plan.env[f"KILO_DISABLE_{switch}"] == "1"
        assert plan.env["KILO_TEST_MANAGED_CONFIG_DIR"] in plan.directories

    def test_it_searches_with_the_program_of_its_runtime(self) -> None:
        path = KILOCODE.plan(context()).env["PATH"]
        assert path == f"/opt/agent/prefix/path:{TASK_ENV['PATH']}"

    def test_the_database_is_where_both_versions_have_it(self) -> None:
        plan = KILOCODE.plan(context())
        data = plan.env["XDG_DATA_HOME"]
        assert plan.env["KILO_DB"] == f"{data}/kilo/kilo.db"
        assert f"{data}/kilo" in plan.native


class TestOpenClaw:
    def test_the_root_has_a_provider_that_names_its_session(self) -> None:
        plan = OPENCLAW.plan(context())
        session_id = plan.argv[plan.argv.index("--session-id") + 1]
        providers = openclaw_config()["models"]["providers"]
        assert providers["sandbox"]["headers"] == {"x-session-id": session_id}
        assert plan.argv[plan.argv.index("--model") + 1] == "sandbox/scripted"
        assert plan.proof[0].endswith(f"/{session_id}.jsonl")

    def test_a_subagent_is_not_taken_for_the_root(self) -> None:
        config = openclaw_config()
        name, _, model = config["agents"]["defaults"]["subagents"]["model"].partition("/")
        assert model == "scripted"
        assert "headers" not in config["models"]["providers"][name]

    def test_no_two_rollouts_share_a_session(self) -> None:
        sessions = {
            plan.argv[plan.argv.index("--session-id") + 1]
            for plan in (OPENCLAW.plan(context(rollout_id=f"r{n}")) for n in (1, 2, 1))
        }
        assert len(sessions) == 2

    def test_the_providers_are_the_model_link(self) -> None:
        for provider in openclaw_config()["models"]["providers"].values():
            assert provider["baseUrl"] == "http://127.0.0.1:8080/rollout/r1/v1"
            assert provider["apiKey"] == "${SANDBOX_MODEL_KEY}"
            assert provider["timeoutSeconds"] == 45

    def test_the_workspace_is_the_tasks_and_nothing_of_it_is_read(self) -> None:
        defaults = openclaw_config()["agents"]["defaults"]
        assert defaults["workspace"] == "/task/work"
        assert defaults["skipBootstrap"] is True
        assert defaults["contextInjection"] == "never"
        assert defaults["skills"] == []

    def test_the_keys_of_the_configuration_are_those_that_were_validated(self) -> None:
        # One key that this version does not know makes it refuse the file.
        config = openclaw_config()
        assert {key: sorted(value) for key, value in config.items()} == {
            "agents": ["defaults"],
            "logging": ["file"],
            "models": ["mode", "providers"],
            "tools": ["deny", "exec"],
            "update": ["checkOnStart"],
        }
        assert sorted(config["agents"]["defaults"]) == [
            "contextInjection",
            "model",
            "skills",
            "skipBootstrap",
            "subagents",
            "timeoutSeconds",
            "workspace",
        ]

    def test_it_is_started_where_no_env_file_of_the_task_is(self, tmp_path: Path) -> None:
        plan = OPENCLAW.plan(context())
        home = tmp_path / "a home"
        home.mkdir()
        start = [home.as_posix() if word == plan.env["HOME"] else word for word in plan.argv]
        assert start != list(plan.argv)
        cut = start.index(str(home)) + 1
        ended = subprocess.run([*start[:cut], "pwd"], capture_output=True, check=True, timeout=10)
        assert ended.stdout.decode().strip() == str(home)


class TestOpenClawShell:
    def run(self, tmp_path: Path, command: str, **extra: str) -> dict[str, str]:
        script = tmp_path / "sh"
        planned = shell_script(
            str(script),
            harness_env=HARNESS_ENV,
            tool_env=SHELL_ENV,
            secret=("SECRET",),
            receipt=str(tmp_path / "receipt"),
        )
        assert b"sk-secret" not in planned.data
        script.write_bytes(planned.data)
        script.chmod(planned.mode)
        env = {
            **HARNESS_ENV,
            "NODE_NO_WARNINGS": "1",
            "OPENCLAW_NODE_OPTIONS_READY": "1",
            "OPENCLAW_PATH_BOOTSTRAPPED": "1",
            "OPENCLAW_SHELL": "exec",
            **extra,
        }
        ended = subprocess.run(
            [str(script), "-c", command], env=env, capture_output=True, check=True, timeout=10
        )
        pairs = (text.partition("=") for text in ended.stdout.decode().split("\0") if text)
        own = {"PWD", "OLDPWD", "SHLVL", "_"}
        return {name: value for name, _, value in pairs if name not in own}

    def test_the_tools_have_the_environment_of_the_task(self, tmp_path: Path) -> None:
        assert self.run(tmp_path, "env -0") == {**SHELL_ENV, "OPENCLAW_SHELL": "exec"}

    def test_what_the_model_asks_for_is_kept(self, tmp_path: Path) -> None:
        seen = self.run(tmp_path, "env -0", LANG="fr", FOO="bar", TMPDIR="/mine", MULTI="other")
        asked = {"LANG": "fr", "FOO": "bar", "TMPDIR": "/mine", "MULTI": "other"}
        assert seen == {**SHELL_ENV, "OPENCLAW_SHELL": "exec", **asked}

    def test_a_path_that_the_harness_changed_is_put_right(self, tmp_path: Path) -> None:
        seen = self.run(tmp_path, "env -0", PATH="/runtime/bin:/usr/bin:/bin", HOME="/other")
        assert (seen["PATH"], seen["HOME"]) == (SHELL_ENV["PATH"], SHELL_ENV["HOME"])

    def test_each_shell_leaves_a_line(self, tmp_path: Path) -> None:
        for _ in range(2):
            self.run(tmp_path, "true")
        assert len((tmp_path / "receipt").read_text().splitlines()) == 2

    @pytest.mark.parametrize(
        ("named", "real"),
        [("/bin/bash", "/bin/bash"), ("/usr/bin/fish", "/bin/sh"), ("bash", "/bin/sh")],
    )
    def test_the_tasks_own_shell_is_used(self, named: str, real: str) -> None:
        planned = shell_script(
            "/s/sh", harness_env={}, tool_env={"SHELL": named}, secret=(), receipt="/s/r"
        )
        assert f"shell={real}\n" in planned.data.decode()
