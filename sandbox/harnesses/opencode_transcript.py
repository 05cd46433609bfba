"""OpenCode's database as observations: one invocation a session, the root and its subagents.

The outcome is the last answer's ``finish`` or ``error``, never the exit code. OpenCode keeps no
response ids and no failed tries, so model calls join by the session header alone, and an invocation
names none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from sandbox.evidence.observations import (
    AgentInvocation,
    Gap,
    InvocationStatus,
    Observations,
    ToolCall,
)
from sandbox.harnesses.native import (
    ARTIFACT_UNAVAILABLE,
    OUTCOME_UNAVAILABLE,
    TRANSCRIPT_UNAVAILABLE,
    find_files,
    json_lines,
)
from sandbox.harnesses.opencode_database import Database, PartRow, SessionRow, read_database
from sandbox.harnesses.opencode_session import SessionFacts, SessionRecords, read_session
from sandbox.harnesses.opencode_stdout import StdoutFacts, read_stdout
from sandbox.harnesses.opencode_tools import NOT_STARTED, SHELL

SOURCE = "opencode"


def parse_opencode(native: Path, *, database: str, receipt: str) -> Observations:
    """Return what the database below a folder says, and whether its tools had the task's env.

    Args:
        native: the folder with the evidence.
        database: the database's file name.
        receipt: the file name of the shell environment's receipt.
    """
    shells = _shells_with_receipt(native, receipt)
    read = [read_database(path) for path in find_files(native, database)]
    sessions = [session for found in read for session in _sessions(found)]
    gaps = [gap for found in read for gap in found.gaps]
    if not sessions:
        return _without_database(read_stdout(native), gaps, shells)
    calls = tuple(call for session in sessions for call in session.calls)
    return Observations(
        source=SOURCE,
        records=(
            *(session.invocation for session in sessions),
            *calls,
            *(record for session in sessions for record in session.compactions),
        ),
        gaps=(
            *gaps,
            *(gap for session in sessions for gap in session.gaps),
            *_receipt_gaps(calls, shells),
        ),
    )


def _sessions(found: Database) -> list[SessionRecords]:
    facts = _facts(found)
    spawned = {child: call for session in facts for child, call in session.spawned().items()}
    return [read_session(session, spawned.get(session.session.id)) for session in facts]


def _facts(found: Database) -> list[SessionFacts]:
    parts: dict[str, list[PartRow]] = defaultdict(list)
    for part in sorted(found.parts, key=lambda part: part.id):
        parts[part.message_id].append(part)
    rows = {row.id: row for row in found.sessions}
    for message in found.messages:  # a session row may be lost
        rows.setdefault(message.session_id, SessionRow(id=message.session_id))
    return [
        SessionFacts(
            session=row,
            messages=[m for m in found.messages if m.session_id == row.id],
            parts=parts,
            tool_starts=found.tool_starts,
        )
        for row in rows.values()
    ]


def _shells_with_receipt(native: Path, receipt: str) -> set[str] | None:
    """Return the call ids in the receipt; None when the plugin was not even loaded."""
    files = find_files(native, receipt)
    entries = [value for path in files for _, value in json_lines(path) if isinstance(value, dict)]
    if not entries:
        return None
    return {str(entry.get("call_id")) for entry in entries if entry.get("event") == "shell"}


def _receipt_gaps(calls: Iterable[ToolCall], shells: set[str] | None) -> list[Gap]:
    """Return a gap for each shell that may have seen the harness's own environment."""
    if shells is None:
        return [
            Gap(
                code=ARTIFACT_UNAVAILABLE,
                detail="the shell environment plugin left no receipt: tools may have seen the "
                "harness's environment",
            )
        ]
    return [
        Gap(
            code=ARTIFACT_UNAVAILABLE,
            invocation_id=call.invocation_id,
            detail=f"no receipt of the shell environment for tool call {call.tool_call_id}",
        )
        for call in calls
        if call.tool_name == SHELL
        and call.error_type not in _NEVER_RAN
        and call.completed_at is not None
        and call.tool_call_id not in shells
    ]


_NEVER_RAN = {"invalid_arguments", "tool_error", NOT_STARTED}


def _without_database(
    stdout: StdoutFacts, gaps: list[Gap], shells: set[str] | None
) -> Observations:
    gaps = [
        *gaps,
        Gap(
            code=TRANSCRIPT_UNAVAILABLE,
            invocation_id=stdout.session_id,
            detail="no database with a session was kept",
        ),
        *_receipt_gaps((), shells),
    ]
    if stdout.session_id is None:
        return Observations(source=SOURCE, gaps=tuple(gaps))
    status = InvocationStatus.FAILED if stdout.error_name else InvocationStatus.UNKNOWN
    if status is InvocationStatus.UNKNOWN:
        gaps.append(
            Gap(
                code=OUTCOME_UNAVAILABLE,
                invocation_id=stdout.session_id,
                detail="stdout tells no end",
            )
        )
    root = AgentInvocation(
        invocation_id=stdout.session_id, status=status, error_type=stdout.error_name
    )
    return Observations(source=SOURCE, records=(root,), gaps=tuple(gaps))
