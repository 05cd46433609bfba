"""Transcripts of Claude Code as observations: one invocation a file, the root and its subagents.

The outcome is the last ``result`` event of stdout, never the exit code; where there is none, the
last answer says how its thread ended, if it did. A subagent's transcript is
``<session>/subagents/agent-<id>.jsonl``, beside it a file that names the call which started it.
"""

from __future__ import annotations

from pathlib import Path

from sandbox.evidence.observations import (
    AgentInvocation,
    Gap,
    InvocationStatus,
    Observations,
    ToolCall,
)
from sandbox.harnesses.base import NativeContext
from sandbox.harnesses.claude_code_rows import read_transcript
from sandbox.harnesses.claude_code_stdout import Outcome, StdoutFacts, api_error, read_stdout
from sandbox.harnesses.claude_code_story import Story, read_story
from sandbox.harnesses.claude_code_tools import SHELL, ran, tool_call, tool_result
from sandbox.harnesses.native import (
    OUTCOME_UNAVAILABLE,
    TRANSCRIPT_UNAVAILABLE,
    find_files,
    json_value,
)
from sandbox.harnesses.task_shell import shell_gaps

SOURCE = "claude-code"

_AGENT = "agent-"
_SESSION = f"{'-'.join('?' * size for size in (8, 4, 4, 4, 12))}.jsonl"
_ANSWERED = {"end_turn", "stop_sequence"}
_UNKNOWN: Outcome = (InvocationStatus.UNKNOWN, None)


def parse_claude_code(native: Path, context: NativeContext, *, receipt: str) -> Observations:
    """Return what the transcripts below a folder say, and how stdout says that the run ended.

    Args:
        native: the folder with the evidence.
        context: facts from outside the evidence.
        receipt: the file name of the shells' receipt.
    """
    stdout = read_stdout(native)
    files = [*find_files(native, _SESSION), *find_files(native, f"{_AGENT}*.jsonl")]
    stories = [read_story(read_transcript(path), _name(path), context) for path in files]
    if not stories:
        return _without_transcript(stdout)
    spawned = {_name(path): _spawned_by(path) for path in files if _is_agent(path)}
    owners = {call: story.invocation_id for story in stories for call in story.calls}
    invocations: list[AgentInvocation] = []
    calls: list[ToolCall] = []
    gaps: list[Gap] = []
    for story in stories:
        call_id = spawned.get(story.invocation_id)
        parent = owners.get(call_id or "")
        if story.invocation_id in spawned and parent is None:
            gaps.append(_no_parent(story.invocation_id))
        outcome = _outcome(story, stdout)
        invocations.append(_invocation(story, outcome, parent, call_id if parent else None))
        gaps += story.gaps
        if outcome[0] is InvocationStatus.UNKNOWN:
            gaps.append(_no_outcome(story.invocation_id))
        for record in story.calls.values():
            call, gap = tool_call(record, story.invocation_id)
            calls.append(call)
            gaps += [gap] if gap is not None else []
    shells = [r for story in stories for r in story.calls.values() if r.asked.name == SHELL]
    gaps += shell_gaps(native, receipt, ran=sum(map(ran, shells)))
    compactions = [record for story in stories for record in story.compactions]
    return Observations(
        source=SOURCE, records=(*invocations, *calls, *compactions), gaps=tuple(gaps)
    )


def _is_agent(path: Path) -> bool:
    return path.name.startswith(_AGENT)


def _name(path: Path) -> str:
    return path.stem.removeprefix(_AGENT)


def _spawned_by(path: Path) -> str | None:
    """Return the call that started a subagent, from the file beside its transcript."""
    beside = path.with_suffix(".meta.json")
    try:
        value = json_value(beside.read_text("utf-8")) if not beside.is_symlink() else None
    except (OSError, ValueError, RecursionError):
        return None
    call = value.get("toolUseId") if isinstance(value, dict) else None
    return call if isinstance(call, str) else None


def _invocation(
    story: Story, outcome: Outcome, parent: str | None, spawned_by: str | None
) -> AgentInvocation:
    status, error_type = outcome
    return AgentInvocation(
        invocation_id=story.invocation_id,
        parent_invocation_id=parent,
        spawned_by_tool_call_id=spawned_by,
        status=status,
        duration_ms=None if status is InvocationStatus.UNKNOWN else story.duration_ms,
        error_type=error_type,
        model_calls=tuple(story.model_calls),
        conversation=story.conversation(tool_result),
    )


def _outcome(story: Story, stdout: StdoutFacts) -> Outcome:
    if stdout.session_id == story.invocation_id and stdout.outcome is not None:
        return stdout.outcome
    answer = story.answer
    if answer is None or answer.message is None or story.goes_on:
        return _UNKNOWN
    if answer.synthetic:
        return api_error(answer.error, answer.error_status)
    return (
        (InvocationStatus.COMPLETED, None) if answer.message.stop_reason in _ANSWERED else _UNKNOWN
    )


def _without_transcript(stdout: StdoutFacts) -> Observations:
    gaps = [
        Gap(
            code=TRANSCRIPT_UNAVAILABLE,
            invocation_id=stdout.session_id,
            detail="no transcript was kept",
        )
    ]
    if stdout.session_id is None:
        return Observations(source=SOURCE, gaps=tuple(gaps))
    status, error_type = stdout.outcome or _UNKNOWN
    if status is InvocationStatus.UNKNOWN:
        gaps.append(_no_outcome(stdout.session_id))
    root = AgentInvocation(invocation_id=stdout.session_id, status=status, error_type=error_type)
    return Observations(source=SOURCE, records=(root,), gaps=tuple(gaps))


def _no_outcome(invocation_id: str) -> Gap:
    return Gap(
        code=OUTCOME_UNAVAILABLE,
        invocation_id=invocation_id,
        detail="neither stdout nor the last answer tells an end",
    )


def _no_parent(invocation_id: str) -> Gap:
    return Gap(
        code="subagent_parent_unavailable",
        invocation_id=invocation_id,
        detail="nothing names the call that started it",
    )
