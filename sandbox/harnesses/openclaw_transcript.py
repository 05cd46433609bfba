"""OpenClaw's evidence as observations: one invocation a session file, the root first.

The outcome is the last answer's ``stopReason``, together with what OpenClaw itself says of the turn
on stdout: it calls a turn whose answer was empty or cut abandoned, and exits 0. The exit code
decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sandbox.evidence.observations import AgentInvocation, Gap, InvocationStatus, Observations
from sandbox.harnesses.base import NativeContext
from sandbox.harnesses.native import OUTCOME_UNAVAILABLE, TRANSCRIPT_UNAVAILABLE, find_files
from sandbox.harnesses.openclaw_session import read_session
from sandbox.harnesses.openclaw_store import Index, LastWords, Outcome, read_index, read_last_words
from sandbox.harnesses.openclaw_story import UNNAMED, Story
from sandbox.harnesses.openclaw_tools import details_of, ran_in_a_shell, tool_call
from sandbox.harnesses.task_shell import shell_gaps

SOURCE = "openclaw"
PARENT_UNAVAILABLE = "subagent_parent_unavailable"

_SPAWN = "sessions_spawn"


def parse_openclaw(
    native: Path, context: NativeContext, *, receipt: str, subagents: str
) -> Observations:
    """Return what the session files below a folder say.

    Args:
        native: the folder with the evidence.
        context: facts from outside the evidence.
        receipt: the file name of the shells' receipt.
        subagents: the provider that subagents use.
    """
    index = read_index(native)
    words, gaps = read_last_words(native)
    gaps += index.gaps
    stories = _root_first(_stories(native), index, subagents)
    if not stories:
        return _without_transcript(words, gaps)
    spawned = _spawned(stories)
    invocations = [_invocation(story, index, spawned, words, context) for story in stories]
    calls = [call for story in stories for call in story.calls()]
    told = [tool_call(call) for call in calls]
    shells = sum(ran_in_a_shell(call) for call in calls)
    return Observations(
        source=SOURCE,
        records=(
            *invocations,
            *(record for record, _ in told),
            *(record for story in stories for record in story.compactions()),
        ),
        gaps=(
            *gaps,
            *(gap for story in stories for gap in story.gaps()),
            *(
                _no_parent(story)
                for story in stories
                if story.uses(subagents) and index.parent_of(story.invocation_id) is None
            ),
            *(_no_outcome(i) for i in invocations if i.status is InvocationStatus.UNKNOWN),
            *(gap for _, lacking in told for gap in lacking),
            *shell_gaps(native, receipt, ran=shells),
        ),
    )


def _stories(native: Path) -> list[Story]:
    paths = find_files(native, "*.jsonl")
    found: dict[str, Story] = {}
    for path in paths:
        if not path.name.endswith(".trajectory.jsonl"):
            story = Story.of(read_session(path))
            found.setdefault(story.invocation_id, story)
    return list(found.values())


def _root_first(stories: Sequence[Story], index: Index, subagents: str) -> list[Story]:
    return sorted(
        stories,
        key=lambda story: (
            story.uses(subagents) or index.parent_of(story.invocation_id) is not None,
            story.session.entries[0].at or 0.0 if story.session.entries else 0.0,
        ),
    )


def _spawned(stories: Sequence[Story]) -> dict[str, str]:
    """Return the keys of the subagents' sessions with the calls that started them."""
    found = {}
    for story in stories:
        for call in story.calls():
            key = details_of(call.result).get("childSessionKey")
            if call.asked.name == _SPAWN and isinstance(key, str):
                found[key] = call.asked.id
    return found


def _invocation(
    story: Story, index: Index, spawned: dict[str, str], words: LastWords, context: NativeContext
) -> AgentInvocation:
    identity = story.invocation_id
    status, error_type = _outcome(story, words)
    calls = [spawned[key] for key in sorted(index.keys_of(identity)) if key in spawned]
    return AgentInvocation(
        invocation_id=identity,
        parent_invocation_id=index.parent_of(identity),
        spawned_by_tool_call_id=calls[0] if calls else None,
        status=status,
        duration_ms=story.duration_ms(),
        error_type=error_type,
        model_calls=story.model_calls(context.model_ref),
        conversation=tuple(story.conversation()),
    )


def _outcome(story: Story, words: LastWords) -> Outcome:
    """Return the transcript's outcome, unless the harness itself says that something is wrong."""
    status, error_type = story.outcome()
    trouble = words.trouble if words.session_id == story.invocation_id else None
    if trouble is None or (error_type is not None and error_type != UNNAMED):
        return status, error_type
    return trouble


def _no_outcome(invocation: AgentInvocation) -> Gap:
    return Gap(
        code=OUTCOME_UNAVAILABLE,
        invocation_id=invocation.invocation_id,
        detail="no last answer of the model with an end",
    )


def _no_parent(story: Story) -> Gap:
    return Gap(
        code=PARENT_UNAVAILABLE,
        invocation_id=story.invocation_id,
        detail="the index of sessions does not tell who started it",
    )


def _without_transcript(words: LastWords, gaps: list[Gap]) -> Observations:
    lost = Gap(
        code=TRANSCRIPT_UNAVAILABLE,
        invocation_id=words.session_id,
        detail="no session file was kept",
    )
    if words.session_id is None:
        return Observations(source=SOURCE, gaps=(*gaps, lost))
    status, error_type = words.trouble or (InvocationStatus.UNKNOWN, None)
    root = AgentInvocation(invocation_id=words.session_id, status=status, error_type=error_type)
    unknown = [_no_outcome(root)] if status is InvocationStatus.UNKNOWN else []
    return Observations(source=SOURCE, records=(root,), gaps=(*gaps, lost, *unknown))
