"""Claude Code: a private configuration folder, ``claude --print``, Messages over SSE.

Measured with 2.1.332. It looks up no names and writes nothing outside of the session folder. What
cannot be switched off: ``/etc/claude-code`` of the image is read, and wins over everything here; a
path after an ``@`` in the prompt is read and sent along; the shell of its tools has functions of
its own for ``find``, ``grep``, ``rg`` and ``pkill``; commands in the background keep it running
after its last answer, for ten minutes at most. It takes no stream limit below 10 s.

A wait for the first byte or a silence beyond the limits here is retried; without them Claude Code
waits 300 to 600 s.
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
from sandbox.harnesses.prompt import prompt_file, with_prompt
from sandbox.harnesses.task_shell import harness_env, task_shell

RECEIPT = "shells"

_OFF = (
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY",
    "CLAUDE_CODE_DISABLE_CLAUDE_MDS",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "CLAUDE_CODE_DISABLE_TERMINAL_TITLE",
    "DISABLE_AUTOUPDATER",
    "DISABLE_ERROR_REPORTING",
    "DISABLE_TELEMETRY",
    "DISABLE_UPDATES",
)
_FOR_TOOLS = ("CLAUDECODE", "CLAUDE_PID", "GIT_EDITOR", "__CLAUDE_CC_BUN_OPTIONS")
_CONTEXT_WINDOW = "200000"
_ALIASES = ("HAIKU", "SONNET", "OPUS")


class ClaudeCode:
    """The adapter of Claude Code."""

    name = "claude-code"
    capabilities = Capabilities(
        dialect="messages",
        session_header="x-claude-code-session-id",
        response_ids=True,
        parallel_tools=False,
        subagents=True,
        compaction=True,
        needs_bash=False,  # the runtime brings its own
        request_deadline=True,
        project_instructions="none",
        tools_see_key=False,
        peak_memory_mib=240,
    )

    def plan(self, ctx: LaunchContext) -> LaunchPlan:
        """Return how to launch Claude Code."""
        session = ctx.session_dir
        prompt = f"{session}/prompt"
        return LaunchPlan(
            argv=with_prompt(_command(ctx), prompt),
            env={**harness_env(ctx.task_env), **_private(session), **_settings(ctx)},
            files=(
                prompt_file(prompt, ctx.prompt),
                task_shell(
                    _shell(ctx),
                    tool_env=ctx.task_env,
                    receipt=f"{session}/receipt/{RECEIPT}",
                    program=f"{ctx.prefix}/bin/bash",
                    keep=_FOR_TOOLS,
                ),
                *(_empty(f"{session}/{folder}") for folder in _FOLDERS),
            ),
            native=(f"{session}/claude/projects", f"{session}/receipt"),
        )

    def parse(self, native: Path, context: NativeContext) -> Observations:
        """Return what the transcript says, and stdout where there is none."""
        from sandbox.harnesses.claude_code_transcript import parse_claude_code  # noqa: PLC0415 - on need: slow

        return parse_claude_code(native, context, receipt=RECEIPT)


_FOLDERS = ("home", "scratch", "claude", "receipt")


def _command(ctx: LaunchContext) -> tuple[str, ...]:
    return (
        f"{ctx.prefix}/bin/claude-code",
        "--print",
        "--output-format",
        "stream-json",
        "--verbose",
        "--dangerously-skip-permissions",
        "--setting-sources",
        "user",
        "--strict-mcp-config",
        "--disable-slash-commands",
        "--no-chrome",
        "--model",
        ctx.model,
    )


def _private(session: str) -> dict[str, str]:
    return {
        "HOME": f"{session}/home",
        "TMPDIR": f"{session}/scratch",
        "CLAUDE_CODE_TMPDIR": f"{session}/scratch",
        "CLAUDE_CONFIG_DIR": f"{session}/claude",
    }


def _settings(ctx: LaunchContext) -> dict[str, str]:
    limits = deadlines_for(ctx.deadline_s)
    return {
        **dict.fromkeys(_OFF, "1"),
        **{f"ANTHROPIC_DEFAULT_{alias}_MODEL": ctx.model for alias in _ALIASES},
        "ANTHROPIC_BASE_URL": ctx.base_url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": ctx.api_key,
        "CLAUDE_CODE_SHELL": _shell(ctx),
        "IS_SANDBOX": "1",
        "API_TIMEOUT_MS": str(limits.headers_ms),
        "CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS": str(limits.idle_ms),
        "CLAUDE_STREAM_FIRST_BYTE_TIMEOUT_MS": str(limits.headers_ms),
        "CLAUDE_CODE_AUTO_COMPACT_WINDOW": _CONTEXT_WINDOW,  # it knows none of this model
        "CLAUDE_CODE_MAX_RETRIES": "4" if limits.patient else "2",
    }


def _shell(ctx: LaunchContext) -> str:
    """Return where the tools' shell is; Claude Code wants ``bash`` in its name."""
    return f"{ctx.session_dir}/shell/bash"


def _empty(folder: str) -> PlannedFile:
    return PlannedFile(path=f"{folder}/.keep", data=b"")


CLAUDE_CODE = ClaudeCode()
