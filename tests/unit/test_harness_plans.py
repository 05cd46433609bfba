"""The launch plans of Codex and OpenCode."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from sandbox.harnesses.base import Harness, LaunchContext
from sandbox.harnesses.codex import CODEX
from sandbox.harnesses.opencode import OPENCODE
from sandbox.harnesses.prompt import with_prompt
from tests.unit.launches import KEY, content, launch_context

TASK_ENV = {
    "HOME": "/home/task",
    "PATH": "/task/bin:/usr/bin:/bin",
    "XDG_CONFIG_HOME": "/home/task/.cfg",
    "LD_PRELOAD": "/task/lib.so",
    "OPENAI_API_KEY": "the task's own",
    "OPENCODE_PURE": "1",
    "PWD": "/elsewhere",
    "http_proxy": "http://proxy:3128",
    "MULTI": 'a\n"b"\t\\c',
    "LANG": "de_DE.UTF-8",
}
HARNESSES = [CODEX, OPENCODE]


def context(**changes: object) -> LaunchContext:
    return launch_context(TASK_ENV, **changes)


def codex_config(**changes: object) -> dict[str, Any]:
    return tomllib.loads(content(CODEX.plan(context(**changes)), "/config.toml").decode())


def opencode_config(**changes: object) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(
        OPENCODE.plan(context(**changes)).env["OPENCODE_CONFIG_CONTENT"]
    )
    return config


@pytest.mark.parametrize("harness", HARNESSES, ids=lambda harness: harness.name)
class TestEvery:
    def test_the_same_context_gives_the_same_plan(self, harness: Harness) -> None:
        assert harness.plan(context()) == harness.plan(context())

    def test_everything_is_inside_the_session(self, harness: Harness) -> None:
        plan = harness.plan(context())
        session = PurePosixPath("/opt/agent/ses sion")
        paths = [file.path for file in plan.files] + [*plan.native, *plan.proof]
        paths += [plan.env[name] for name in plan.env if name in ("HOME", "TMPDIR", "CODEX_HOME")]
        paths += [value for name, value in plan.env.items() if name.startswith("XDG_")]
        assert all(PurePosixPath(path).is_relative_to(session) for path in paths)

    def test_a_proof_is_among_what_is_kept(self, harness: Harness) -> None:
        plan = harness.plan(context())
        for proof in plan.proof:
            assert any(PurePosixPath(proof).is_relative_to(kept) for kept in plan.native)

    def test_folders_that_the_environment_names_are_made(self, harness: Harness) -> None:
        plan = harness.plan(context())
        named = {"HOME", "TMPDIR", "CODEX_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"}
        for name in named & set(plan.env):
            assert plan.env[name] in plan.directories

    def test_the_image_does_not_change_the_harness(self, harness: Harness) -> None:
        env = harness.plan(context()).env
        assert env["LANG"] == "de_DE.UTF-8"
        own = "/opt/agent/prefix/path:" if harness is OPENCODE else ""  # its rg
        assert env["PATH"] == own + TASK_ENV["PATH"]
        assert "the task's own" not in env.values()
        for name in ("LD_PRELOAD", "OPENAI_API_KEY", "OPENCODE_PURE", "PWD", "http_proxy"):
            assert name not in env

    def test_the_key_is_in_one_variable_and_no_file(self, harness: Harness) -> None:
        plan = harness.plan(context())
        assert [name for name, value in plan.env.items() if KEY in value] == ["SANDBOX_MODEL_KEY"]
        assert not any(KEY.encode() in file.data for file in plan.files)
        assert not any(KEY in word for word in plan.argv)

    def test_no_file_is_open_to_others(self, harness: Harness) -> None:
        assert {file.mode for file in harness.plan(context()).files} == {0o600}

    def test_the_prompt_is_no_argument(self, harness: Harness) -> None:
        long = "--flag 42 " + "x" * 200_000
        plan = harness.plan(context(prompt=long))
        assert content(plan, "/prompt").decode() == long
        assert max(len(word) for word in plan.argv) < 200

    def test_the_command_is_the_installed_entry_point(self, harness: Harness) -> None:
        plan = harness.plan(context())
        assert f"/opt/agent/prefix/bin/{harness.name}" in plan.argv

    def test_every_file_is_for_the_declared_dialect(self, harness: Harness) -> None:
        assert harness.capabilities.dialect in ("responses", "chat")
        assert not harness.capabilities.tools_see_key


class TestCodex:
    def test_tools_get_the_environment_of_the_task_and_nothing_else(self) -> None:
        policy = codex_config()["shell_environment_policy"]
        assert policy["set"] == TASK_ENV
        assert policy["inherit"] == "none"

    def test_the_provider_is_the_model_link(self) -> None:
        config = codex_config()
        provider = config["model_providers"][config["model_provider"]]
        assert provider["base_url"] == "http://127.0.0.1:8080/rollout/r1/v1"
        assert provider["wire_api"] == "responses"
        assert provider["env_key"] == "SANDBOX_MODEL_KEY"

    @pytest.mark.parametrize(
        ("deadline_s", "limits"),
        [(600.0, (4, 5, 120_000)), (90.0, (4, 5, 30_000)), (12.0, (2, 2, 4_000))],
    )
    def test_its_limits_come_from_the_deadline(
        self, deadline_s: float, limits: tuple[int, int, int]
    ) -> None:
        provider = codex_config(deadline_s=deadline_s)["model_providers"]["sandbox"]
        names = ("request_max_retries", "stream_max_retries", "stream_idle_timeout_ms")
        assert tuple(provider[name] for name in names) == limits
        assert codex_config()["features"]["unbounded_connection_retries"] is False

    def test_the_task_repository_is_not_trusted(self) -> None:
        config = codex_config(workdir='/task/a "b".c')
        assert config["projects"] == {'/task/a "b".c': {"trust_level": "untrusted"}}
        assert config["project_doc_max_bytes"] == 0

    def test_nothing_reports_or_updates(self) -> None:
        config = codex_config()
        assert config["analytics"] == {"enabled": False}
        assert config["feedback"] == {"enabled": False}
        assert config["check_for_update_on_startup"] is False
        assert not any(config["features"].values())

    def test_a_setting_that_a_version_does_not_know_is_refused_by_it(self) -> None:
        assert "--strict-config" in CODEX.plan(context()).argv


class TestOpenCode:
    def test_the_provider_is_the_model_link(self) -> None:
        config = opencode_config()
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

    def test_only_the_key_is_substituted(self) -> None:
        plan = OPENCODE.plan(context(base_url="http://127.0.0.1/{env:HOME}/{file:/etc/passwd}/v1"))
        text = plan.env["OPENCODE_CONFIG_CONTENT"]
        assert re.findall(r"\{(?:env|file):[^}]+\}", text) == ["{env:SANDBOX_MODEL_KEY}"]
        options = json.loads(text)["provider"]["sandbox"]["options"]
        assert options["baseURL"] == "http://127.0.0.1/{env:HOME}/{file:/etc/passwd}/v1"

    def test_the_plugin_is_loaded_from_the_session(self) -> None:
        plan = OPENCODE.plan(context())
        config = json.loads(plan.env["OPENCODE_CONFIG_CONTENT"])
        assert config["plugin"] == ["file:///opt/agent/ses%20sion/plugin/plugin.js"]
        assert b"shell.env" in content(plan, "/plugin/plugin.js")

    def test_the_plugin_knows_the_environment_and_the_receipt(self) -> None:
        plan = OPENCODE.plan(context())
        facts = json.loads(content(plan, "/plugin/shell-env.json"))
        assert facts["env"] == TASK_ENV
        assert (facts["receipt"],) == plan.proof

    def test_the_plugin_package_looks_installed(self) -> None:
        plan = OPENCODE.plan(context())
        lock = json.loads(content(plan, "/config/opencode/package-lock.json"))
        assert "@opencode-ai/plugin" in lock["packages"][""]["dependencies"]
        assert f"{plan.env['XDG_CONFIG_HOME']}/opencode/node_modules" in plan.directories

    def test_neither_the_task_nor_the_image_configures_it(self) -> None:
        plan = OPENCODE.plan(context())
        for switch in ("PROJECT_CONFIG", "CLAUDE_CODE", "EXTERNAL_SKILLS", "AUTOUPDATE"):
            assert plan.env[f"OPENCODE_DISABLE_{switch}"] == "1"
        assert plan.env["OPENCODE_TEST_MANAGED_CONFIG_DIR"] in plan.directories

    def test_the_database_is_kept_with_its_log(self) -> None:
        plan = OPENCODE.plan(context())
        assert str(PurePosixPath(plan.env["OPENCODE_DB"]).parent) in plan.native

    def test_it_makes_no_title_call_and_takes_the_workdir_from_us(self) -> None:
        argv = OPENCODE.plan(context()).argv
        assert "--title" in argv
        assert argv[argv.index("--dir") + 1] == "/task/work"


def test_the_prompt_really_arrives_on_stdin(tmp_path: Path) -> None:
    prompt = tmp_path / "a prompt"
    prompt.write_bytes(b"first\nsecond\xff")
    ended = subprocess.run(
        with_prompt(("cat", "-"), str(prompt)), capture_output=True, check=True, timeout=10
    )
    assert ended.stdout == b"first\nsecond\xff"
