"""Qwen Code's session files as observations: the session, and a file for each subagent.

The outcome is the ``result`` record of stdout, never the exit code: the session file has no end.
It does not tell why an answer stopped either, so that one which was cut at the output limit passes
for a whole one, in both.
"""

from __future__ import annotations

from pathlib import Path

from sandbox.evidence.observations import AgentInvocation, Gap, InvocationStatus, Observations
from sandbox.harnesses.base import NativeContext
from sandbox.harnesses.native import OUTCOME_UNAVAILABLE, TRANSCRIPT_UNAVAILABLE, find_files
from sandbox.harnesses.qwen_code_session import Session, read_meta, read_session
from sandbox.harnesses.qwen_code_stdout import StdoutFacts, read_stdout
from sandbox.harnesses.qwen_code_story import Story, measure, read_story
from sandbox.harnesses.qwen_code_tools import ran_in_shell, tool_call, tool_result
from sandbox.harnesses.task_shell import shell_gaps

SOURCE = "qwen-code"
PARENT_UNAVAILABLE = "subagent_parent_unavailable"

_ENDS = {
    "completed": InvocationStatus.COMPLETED,
    "failed": InvocationStatus.FAILED,
    "cancelled": InvocationStatus.INCOMPLETE,
}


def parse_qwen_code(native: Path, context: NativeContext, *, receipt: str) -> Observations:
    """Return what the session files below a folder say, and stdout of how the run ended.

    Args:
        native: the folder with the evidence.
        context: facts from outside the evidence.
        receipt: the file name of the shells' receipt.
    """
    stdout = read_stdout(native)
    sessions = [read_session(path) for path in find_files(native, "*.jsonl")]
    found = [(one, read_story(one, context)) for one in sessions if one.entries]
    stories = [story for _, story in found]
    events = [event for story in stories for event in story.events]
    for session, story in found:
        measure(story, session.id or "", events)
    if not stories:
        return _without_session(stdout, [gap for one in sessions for gap in one.gaps])
    records = [call for story in stories for call in story.calls.values()]
    observed = [
        tool_call(call, story.invocation_id) for story in stories for call in story.calls.values()
    ]
    invocations = [_invocation(session, story, stdout) for session, story in found]
    gaps = [gap for story in stories for gap in story.gaps]
    gaps += [
        _no_outcome(one.invocation_id)
        for one in invocations
        if one.status is InvocationStatus.UNKNOWN
    ]
    gaps += [gap for _, gap in observed if gap is not None]
    gaps += shell_gaps(native, receipt, ran=sum(map(ran_in_shell, records)))
    compactions = [record for story in stories for record in story.compactions]
    return Observations(
        source=SOURCE,
        records=(*invocations, *(call for call, _ in observed), *compactions),
        gaps=tuple(gaps),
    )


def _invocation(session: Session, story: Story, stdout: StdoutFacts) -> AgentInvocation:
    told: StdoutFacts = stdout if stdout.session_id == story.invocation_id else StdoutFacts()
    facts = AgentInvocation(
        invocation_id=story.invocation_id,
        status=told.status,
        duration_ms=told.duration_ms,
        error_type=told.error_type,
        model_calls=tuple(story.model_calls),
        conversation=story.conversation(tool_result),
    )
    return facts if story.agent_id is None else _subagent(session, story, facts)


def _subagent(session: Session, story: Story, facts: AgentInvocation) -> AgentInvocation:
    """Return a subagent's invocation with what stands in the file beside its own."""
    meta = read_meta(session.path)
    if isinstance(meta, Gap):
        story.gap(meta.code, meta.detail)
        story.gap(PARENT_UNAVAILABLE, story.invocation_id)
        return facts.model_copy(update={"parent_invocation_id": session.id})
    above = meta.parentAgentId if meta.parentAgentId != story.agent_id else None
    return facts.model_copy(
        update={
            "parent_invocation_id": above or session.id,
            "spawned_by_tool_call_id": meta.toolUseId,
            "status": _ENDS.get(meta.status or "", InvocationStatus.UNKNOWN),
        }
    )


def _without_session(stdout: StdoutFacts, gaps: list[Gap]) -> Observations:
    lost = Gap(
        code=TRANSCRIPT_UNAVAILABLE,
        invocation_id=stdout.session_id,
        detail="no session file was kept",
    )
    if stdout.session_id is None:
        return Observations(source=SOURCE, gaps=(lost, *gaps))
    root = AgentInvocation(
        invocation_id=stdout.session_id,
        status=stdout.status,
        duration_ms=stdout.duration_ms,
        error_type=stdout.error_type,
    )
    if root.status is InvocationStatus.UNKNOWN:
        gaps.append(_no_outcome(root.invocation_id))
    return Observations(source=SOURCE, records=(root,), gaps=(lost, *gaps))


def _no_outcome(invocation_id: str) -> Gap:
    return Gap(
        code=OUTCOME_UNAVAILABLE, invocation_id=invocation_id, detail="nothing says how it ended"
    )
