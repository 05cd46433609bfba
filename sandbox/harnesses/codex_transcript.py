"""Codex's rollout files as observations: one invocation a file, the root and its subagents.

The outcome is ``task_complete`` or ``turn_aborted``, never the exit code. The status of a command
is the structured ``CommandExecution`` record, whose id is the call id; where Codex writes none (a
poll of a running command, a call that it refused) the frame of the output says how the call ended,
or a gap says that nothing does.
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
from sandbox.harnesses.codex_outcome import Outcome, incomplete_or_failed
from sandbox.harnesses.codex_rollout import read_rollout
from sandbox.harnesses.codex_stdout import StdoutFacts, read_stdout
from sandbox.harnesses.codex_thread import Thread, read_thread
from sandbox.harnesses.codex_tools import tool_call, tool_result
from sandbox.harnesses.native import OUTCOME_UNAVAILABLE, TRANSCRIPT_UNAVAILABLE, find_files

SOURCE = "codex"


def parse_codex(native: Path, context: NativeContext) -> Observations:
    """Return what the rollout files below a folder say; stdout fills in what they lack."""
    stdout = read_stdout(native)
    threads = [read_thread(read_rollout(path), context) for path in _rollouts(native)]
    if not threads:
        return _without_rollout(stdout)
    spawned = {child: call for thread in threads for child, call in thread.spawned.items()}
    invocations: list[AgentInvocation] = []
    calls: list[ToolCall] = []
    gaps: list[Gap] = []
    for thread in threads:
        outcome = _outcome(thread, stdout)
        invocations.append(_invocation(thread, outcome, spawned.get(thread.invocation_id)))
        gaps += thread.gaps
        if outcome.status is InvocationStatus.UNKNOWN:
            gaps.append(_no_outcome(thread.invocation_id))
        for record in thread.calls.values():
            call, gap = tool_call(record, thread.invocation_id)
            calls.append(call)
            gaps += [gap] if gap is not None else []
    compactions = [record for thread in threads for record in thread.compactions]
    return Observations(
        source=SOURCE, records=(*invocations, *calls, *compactions), gaps=tuple(gaps)
    )


def _rollouts(native: Path) -> list[Path]:
    return find_files(native, "rollout-*.jsonl")


def _invocation(thread: Thread, outcome: Outcome, spawned_by: str | None) -> AgentInvocation:
    return AgentInvocation(
        invocation_id=thread.invocation_id,
        parent_invocation_id=thread.parent_id,
        spawned_by_tool_call_id=spawned_by,
        status=outcome.status,
        duration_ms=outcome.duration_ms,
        error_type=outcome.error_type,
        model_calls=tuple(thread.model_calls),
        conversation=thread.conversation(tool_result),
    )


def _outcome(thread: Thread, stdout: StdoutFacts) -> Outcome:
    """Return the thread's own outcome; stdout speaks of the root thread only."""
    if thread.outcome is not None:
        return thread.outcome
    if stdout.status is not None and stdout.thread_id == thread.invocation_id:
        return _told(stdout, stdout.status)
    return Outcome(status=InvocationStatus.UNKNOWN)


def _told(stdout: StdoutFacts, status: InvocationStatus) -> Outcome:
    if status is InvocationStatus.FAILED:
        return incomplete_or_failed(stdout.message, "other")
    return Outcome(status=status)


def _without_rollout(stdout: StdoutFacts) -> Observations:
    gaps = [
        Gap(
            code=TRANSCRIPT_UNAVAILABLE,
            invocation_id=stdout.thread_id,
            detail="no rollout file was kept",
        )
    ]
    if stdout.thread_id is None:
        return Observations(source=SOURCE, gaps=tuple(gaps))
    outcome = Outcome(status=InvocationStatus.UNKNOWN)
    if stdout.status is not None:
        outcome = _told(stdout, stdout.status)
    else:
        gaps.append(_no_outcome(stdout.thread_id))
    root = AgentInvocation(
        invocation_id=stdout.thread_id, status=outcome.status, error_type=outcome.error_type
    )
    return Observations(source=SOURCE, records=(root,), gaps=tuple(gaps))


def _no_outcome(invocation_id: str) -> Gap:
    return Gap(
        code=OUTCOME_UNAVAILABLE,
        invocation_id=invocation_id,
        detail="the transcript has no terminal record",
    )
