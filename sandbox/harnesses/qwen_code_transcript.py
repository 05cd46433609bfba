"""Qwen Code's session files as observations: the session, and a file for each subagent.

The outcome is the ``result`` record of stdout, never the exit code: the session file has no end.
It does not tell why an answer stopped either, so that one which was cut at the output limit passes
for a whole one, in both.
"""

from __future__ import annotations

from pathlib import Path

from sandbox.evidence.records import AgentInvocation, Gap, InvocationStatus, Observations
from sandbox.harnesses.base import NativeContext
from sandbox.harnesses.native import OUTCOME_UNAVAILABLE, TRANSCRIPT_UNAVAILABLE, find_files
from sandbox.harnesses.qwen_code_session import read_session
from sandbox.harnesses.qwen_code_stdout import StdoutFacts, read_stdout
from sandbox.harnesses.qwen_code_story import Story, read_story
from sandbox.harnesses.qwen_code_tools import ran_in_shell, tool_call
from sandbox.harnesses.task_shell import shell_gaps

SOURCE = "qwen-code"


def parse_qwen_code(native: Path, context: NativeContext, *, receipt: str) -> Observations:
    """Return what the session files below a folder say, and stdout of how the run ended.

    Args:
        native: the folder with the evidence.
        context: facts from outside the evidence.
        receipt: the file name of the shells' receipt.
    """
    stdout = read_stdout(native)
    sessions = [read_session(path) for path in find_files(native, "*.jsonl")]
    stories = [read_story(one, one.id, context) for one in sessions if one.id is not None]
    if not stories:
        return _without_session(stdout, [gap for one in sessions for gap in one.gaps])
    records = [call for story in stories for call in story.calls.values()]
    observed = [
        tool_call(call, story.invocation_id) for story in stories for call in story.calls.values()
    ]
    invocations = [_invocation(story, stdout) for story in stories]
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


def _invocation(story: Story, stdout: StdoutFacts) -> AgentInvocation:
    told = stdout if stdout.session_id == story.invocation_id else StdoutFacts()
    return AgentInvocation(
        invocation_id=story.invocation_id,
        status=told.status,
        duration_ms=told.duration_ms,
        error_type=told.error_type,
        model_calls=tuple(story.model_calls),
        conversation=story.conversation(),
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
