"""Pi's session files as observations: one invocation a file.

The outcome is the last answer's ``stopReason``, never the exit code, which is 0 after an error too.
An error that Pi meant to retry is an end only when stdout says that nothing more would come.
"""

from __future__ import annotations

import re
from pathlib import Path

from sandbox.evidence.observations import (
    AgentInvocation,
    Gap,
    InvocationStatus,
    Observations,
    ToolCall,
)
from sandbox.harnesses.base import NativeContext
from sandbox.harnesses.native import (
    OUTCOME_UNAVAILABLE,
    TRANSCRIPT_UNAVAILABLE,
    find_files,
    short,
)
from sandbox.harnesses.pi_session import read_session
from sandbox.harnesses.pi_stdout import StdoutFacts, read_stdout
from sandbox.harnesses.pi_story import Story, read_story
from sandbox.harnesses.pi_tools import ran_in_shell, tool_call, tool_result
from sandbox.harnesses.task_shell import shell_gaps

SOURCE = "pi"

_HTTP = re.compile(r"(\d{3}): ")
_NAMED = re.compile(r"\((\w{1,64})\)\Z")
_STOPPED = {"length", "aborted"}

Outcome = tuple[InvocationStatus, str | None]


def parse_pi(native: Path, context: NativeContext, *, receipt: str) -> Observations:
    """Return what the session files below a folder say; stdout fills in what they lack.

    Args:
        native: the folder with the evidence.
        context: facts from outside the evidence.
        receipt: the file name of the shells' receipt.
    """
    stdout = read_stdout(native)
    files = find_files(native, "*_*.jsonl")
    stories = [read_story(read_session(path), context) for path in files]
    if not stories:
        return _without_session(stdout)
    invocations: list[AgentInvocation] = []
    calls: list[ToolCall] = []
    gaps: list[Gap] = []
    for story in stories:
        invocations.append(_invocation(story, stdout))
        gaps += story.gaps
        if invocations[-1].status is InvocationStatus.UNKNOWN:
            gaps.append(_no_outcome(story.invocation_id))
        for record in story.calls.values():
            call, gap = tool_call(record, story.invocation_id)
            calls.append(call)
            gaps += [gap] if gap is not None else []
    records = [record for story in stories for record in story.calls.values()]
    gaps += shell_gaps(native, receipt, ran=sum(map(ran_in_shell, records)))
    compactions = [record for story in stories for record in story.compactions]
    return Observations(
        source=SOURCE, records=(*invocations, *calls, *compactions), gaps=tuple(gaps)
    )


def _invocation(story: Story, stdout: StdoutFacts) -> AgentInvocation:
    status, error_type = _outcome(story, stdout)
    return AgentInvocation(
        invocation_id=story.invocation_id,
        status=status,
        duration_ms=None if status is InvocationStatus.UNKNOWN else story.duration_ms,
        error_type=error_type,
        model_calls=tuple(story.model_calls),
        conversation=story.conversation(tool_result),
    )


def _outcome(story: Story, stdout: StdoutFacts) -> Outcome:
    """Return the session's own end; stdout speaks of it too, and of whether Pi went on."""
    settled = stdout.settled and stdout.session_id == story.invocation_id
    answer = story.answer
    if answer is not None and (settled or not story.goes_on):
        told = _told(answer.stopReason, answer.errorMessage)
        if told[0] is not InvocationStatus.UNKNOWN:
            return told
    if settled:
        return _told(stdout.stop_reason, stdout.error_message)
    return InvocationStatus.UNKNOWN, None


def _told(stop_reason: str | None, error_message: str | None) -> Outcome:
    if stop_reason == "stop":
        return InvocationStatus.COMPLETED, None
    if stop_reason in _STOPPED:
        return InvocationStatus.INCOMPLETE, stop_reason
    if stop_reason == "error":
        return InvocationStatus.FAILED, _error_name(error_message or "")
    return InvocationStatus.UNKNOWN, None


def _error_name(message: str) -> str:
    """Return the status or the name in a message: ``400: {...}``, ``...(UND_ERR_SOCKET)``."""
    status = _HTTP.match(message)
    if status is not None:
        return f"http_{status[1]}"
    named = _NAMED.search(message)
    return short(named[1]) if named is not None else "error"


def _without_session(stdout: StdoutFacts) -> Observations:
    gaps = [
        Gap(
            code=TRANSCRIPT_UNAVAILABLE,
            invocation_id=stdout.session_id,
            detail="no session file was kept",
        )
    ]
    if stdout.session_id is None:
        return Observations(source=SOURCE, gaps=tuple(gaps))
    status, error_type = InvocationStatus.UNKNOWN, None
    if stdout.settled:
        status, error_type = _told(stdout.stop_reason, stdout.error_message)
    if status is InvocationStatus.UNKNOWN:
        gaps.append(_no_outcome(stdout.session_id))
    root = AgentInvocation(invocation_id=stdout.session_id, status=status, error_type=error_type)
    return Observations(source=SOURCE, records=(root,), gaps=tuple(gaps))


def _no_outcome(invocation_id: str) -> Gap:
    return Gap(
        code=OUTCOME_UNAVAILABLE,
        invocation_id=invocation_id,
        detail="the session's last answer is no end",
    )
