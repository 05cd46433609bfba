"""Codex: a private CODEX_HOME with one config file, ``codex exec --json``, Responses over SSE.

Measured with 0.171.0. The only files it writes outside of CODEX_HOME are those of its tools. It
looks up no names. What cannot be switched off: ``/etc/codex/{config,managed_config,requirements}
.toml`` of the image are read (the managed ones win over ours); its tools always see TERM=dumb,
LANG, LC_ALL and LC_CTYPE=C.UTF-8, PAGER=cat and some CODEX_* variables, whatever the task says; a
request that gets no response headers waits for ever. A command's recorded start is up to 0.2 s
late: it is taken after the process was started.
"""

from __future__ import annotations

from pathlib import Path

from sandbox.evidence.observations import Observations
from sandbox.harnesses.base import (
    Capabilities,
    LaunchContext,
    LaunchPlan,
    NativeContext,
    PlannedFile,
)
from sandbox.harnesses.deadlines import deadlines_for
from sandbox.harnesses.environment import divide
from sandbox.harnesses.prompt import prompt_file, with_prompt
from sandbox.harnesses.toml import dumps

_PROVIDER = "sandbox"
_KEY_VARIABLE = "SANDBOX_MODEL_KEY"
_CONTEXT_WINDOW = 200_000

# Things that talk to somebody else, change the tool's environment, or wait without an end. The
# names are checked: ``--strict-config`` refuses a file with a key that this version does not know.
_FEATURES = {
    "apps": False,
    "daemon_auto_start": False,
    "hooks": False,
    "in_app_updates": False,
    "memories": False,
    "plugins": False,
    "remote_plugin": False,
    "shell_snapshot": False,
    "skill_mcp_dependency_install": False,
    "unbounded_connection_retries": False,
}


class Codex:
    """The adapter of Codex."""

    name = "codex"
    capabilities = Capabilities(
        dialect="responses",
        session_header="thread-id",
        response_ids=True,
        parallel_tools=True,
        subagents=True,
        compaction=True,
        needs_bash=False,
        request_deadline=False,
        project_instructions="none",
        tools_see_key=False,
        peak_memory_mib=110,
    )

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        """Return how to launch Codex."""
        home = f"{ctx.session_dir}/codex"
        prompt = f"{ctx.session_dir}/prompt"
        environments = divide(ctx.task_env)
        return LaunchPlan(
            argv=with_prompt(_command(ctx), prompt),
            env={
                **environments.harness,
                "CODEX_HOME": home,
                "HOME": f"{ctx.session_dir}/home",
                "TMPDIR": f"{ctx.session_dir}/scratch",
                _KEY_VARIABLE: ctx.api_key,
            },
            files=(
                prompt_file(prompt, ctx.prompt),
                PlannedFile(
                    path=f"{home}/config.toml",
                    data=dumps(_config(ctx, environments.tools)).encode(),
                ),
                PlannedFile(path=f"{ctx.session_dir}/home/.keep", data=b""),
                PlannedFile(path=f"{ctx.session_dir}/scratch/.keep", data=b""),
            ),
            native=(f"{home}/sessions",),
        )

    def parse(self, native: Path, context: NativeContext) -> Observations:
        """Return what the rollout files say, and stdout where there is none."""
        from sandbox.harnesses.codex_transcript import parse_codex  # noqa: PLC0415 - on need: slow

        return parse_codex(native, context)


def _command(ctx: LaunchContext) -> tuple[str, ...]:
    return (
        f"{ctx.prefix}/bin/codex",
        "exec",
        "--strict-config",
        "--ignore-rules",
        "--json",
        "--color",
        "never",
        "--skip-git-repo-check",
        "--cd",
        ctx.workdir,
        "-",
    )


def _config(ctx: LaunchContext, tool_env: dict[str, str]) -> dict[str, object]:
    limits = deadlines_for(ctx.deadline_s)
    return {
        "model": ctx.model,
        "model_provider": _PROVIDER,
        "model_context_window": _CONTEXT_WINDOW,
        "approval_policy": "never",
        "sandbox_mode": "danger-full-access",  # its own sandbox cannot start inside Docker
        "web_search": "disabled",
        "allow_login_shell": False,  # a login shell resets PATH
        "project_doc_max_bytes": 0,  # AGENTS.md
        "check_for_update_on_startup": False,
        "cli_auth_credentials_store": "file",
        "analytics": {"enabled": False},
        "feedback": {"enabled": False},
        "history": {"persistence": "none"},
        "features": _FEATURES,
        "skills": {"include_instructions": False, "bundled": {"enabled": False}},
        "projects": {ctx.workdir: {"trust_level": "untrusted"}},  # .codex/config.toml of the task
        "shell_environment_policy": {
            "inherit": "none",
            "ignore_default_excludes": True,
            "experimental_use_profile": False,
            "set": tool_env,
        },
        "model_providers": {
            _PROVIDER: {
                "name": _PROVIDER,
                "base_url": ctx.base_url,
                "env_key": _KEY_VARIABLE,
                "wire_api": "responses",
                "requires_openai_auth": False,
                "supports_websockets": False,
                "request_max_retries": 4 if limits.patient else 2,
                "stream_max_retries": 5 if limits.patient else 2,
                "stream_idle_timeout_ms": limits.idle_ms,
            }
        },
    }


CODEX = Codex()
