"""Hermes' database and journal as observations: one invocation a session, root and subagents.

The outcome is the last answer's ``finish_reason`` in the database, and where there is no answer,
the failed request or the interrupt in the journal; never the exit code. Model calls join by the
session header alone, so an invocation names none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.evidence.observations import (
    AgentInvocation,
    ContextCompaction,
    ConversationItem,
    Gap,
    InvocationStatus,
    MessageItem,
    Observations,
    ReasoningItem,
    ToolCall,
    ToolStatus,
)
from sandbox.harnesses.hermes_database import Database, MessageRow, SessionRow, read_database
from sandbox.harnesses.hermes_journal import Journal, SessionEnd, read_journal
from sandbox.harnesses.hermes_tools import SHELL, Request, requests, tool_call, tool_result
from sandbox.harnesses.native import (
    ARTIFACT_UNAVAILABLE,
    DUPLICATE_TOOL_CALL,
    OUTCOME_UNAVAILABLE,
    TOOL_RESULT_UNOWNED,
    TRANSCRIPT_UNAVAILABLE,
    find_files,
    short,
    unparseable,
)

SOURCE = "hermes"
SPAWN_UNAVAILABLE = "subagent_spawn_tool_unavailable"
COUNTS_UNAVAILABLE = "compaction_token_counts_unavailable"


def parse_hermes(native: Path, *, database: str, journal: str, shells: str) -> Observations:
    """Return what the evidence below a folder says.

    Args:
        native: the folder with the evidence.
        database: the database's file name.
        journal: the file name of our plugin's journal.
        shells: the file name of the shells' receipts.
    """
    noted = read_journal(native, journal)
    read = [read_database(path) for path in find_files(native, database)]
    sessions = [_read_session(facts, noted) for found in read for facts in _facts(found)]
    gaps = [*noted.gaps, *(gap for found in read for gap in found.gaps)]
    if not noted.loaded:
        gaps.append(Gap(code=ARTIFACT_UNAVAILABLE, detail="our plugin left no journal"))
    if not sessions:
        gaps.append(Gap(code=TRANSCRIPT_UNAVAILABLE, detail="no database with a session was kept"))
    calls = [call for session in sessions for call in session.calls]
    if not find_files(native, shells):
        gaps += _without_receipt(calls)
    return Observations(
        source=SOURCE,
        records=(
            *(session.invocation for session in sessions),
            *calls,
            *(record for session in sessions for record in session.compactions),
        ),
        gaps=(*gaps, *(gap for session in sessions for gap in session.gaps)),
    )


def _without_receipt(calls: Iterable[ToolCall]) -> list[Gap]:
    """Return a gap for each command that may have seen the harness's own environment."""
    return [
        Gap(
            code=ARTIFACT_UNAVAILABLE,
            invocation_id=call.invocation_id,
            detail=f"no receipt of the shell environment for tool call {call.tool_call_id}",
        )
        for call in calls
        if call.tool_name == SHELL and call.status is ToolStatus.COMPLETED
    ]


@dataclass(frozen=True)
class _Facts:
    session: SessionRow
    messages: Sequence[MessageRow]


@dataclass
class _Session:
    invocation: AgentInvocation
    calls: list[ToolCall]
    compactions: list[ContextCompaction]
    gaps: list[Gap]


def _facts(found: Database) -> list[_Facts]:
    rows = {row.id: row for row in found.sessions}
    for message in found.messages:  # a session row may be lost
        rows.setdefault(message.session_id, SessionRow(id=message.session_id))
    return [
        _Facts(row, [m for m in found.messages if m.session_id == row.id]) for row in rows.values()
    ]


def _read_session(facts: _Facts, noted: Journal) -> _Session:
    identity = facts.session.id
    end = noted.sessions.get(identity, SessionEnd())
    status, error_type = _outcome(facts.messages, end)
    history = _History(identity)
    for message in facts.messages:
        history.add(message)
    calls, gaps = _calls(history, noted)
    compactions = list(_compactions(facts))
    gaps += _gaps(facts.session, status, compactions)
    return _Session(
        invocation=AgentInvocation(
            invocation_id=identity,
            parent_invocation_id=facts.session.parent_session_id,
            status=status,
            duration_ms=_duration_ms(facts, end),
            error_type=error_type,
            conversation=tuple(history.items),
        ),
        calls=calls,
        compactions=compactions,
        gaps=gaps,
    )


def _gaps(
    session: SessionRow, status: InvocationStatus, compactions: Sequence[ContextCompaction]
) -> Iterator[Gap]:
    if status is InvocationStatus.UNKNOWN:
        detail = "neither an answer nor a failed request ends the session"
        yield Gap(code=OUTCOME_UNAVAILABLE, invocation_id=session.id, detail=detail)
    if session.parent_session_id is not None:
        detail = "Hermes does not keep which call started a subagent"
        yield Gap(code=SPAWN_UNAVAILABLE, invocation_id=session.id, detail=detail)
    if compactions:
        detail = "the sizes of the history before and after a compaction are not kept"
        yield Gap(code=COUNTS_UNAVAILABLE, invocation_id=session.id, detail=detail)


def _outcome(
    messages: Sequence[MessageRow], end: SessionEnd
) -> tuple[InvocationStatus, str | None]:
    if end.interrupted:
        return InvocationStatus.INCOMPLETE, "interrupted"
    if end.error_type is not None:
        return InvocationStatus.FAILED, short(end.error_type)
    last = messages[-1] if messages else None
    if last is None or last.role != "assistant" or last.tool_calls or not last.finish_reason:
        return InvocationStatus.UNKNOWN, None
    if last.finish_reason == "stop":
        return InvocationStatus.COMPLETED, None
    return InvocationStatus.INCOMPLETE, f"finish_{short(last.finish_reason)}"


def _duration_ms(facts: _Facts, end: SessionEnd) -> float | None:
    """Return the time from the question to the end of the turn; None while it has not ended."""
    asked = next((m.timestamp for m in facts.messages if m.role == "user"), None)
    if asked is None or end.completed is None or end.last_at is None:
        return None
    return round(max(0.0, end.last_at - asked) * 1000, 3)


@dataclass
class _History:
    """A session's conversation in the model's order, with its calls and their results."""

    session_id: str
    items: list[ConversationItem] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    results: dict[str, MessageRow] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)

    def add(self, message: MessageRow) -> None:
        """Add one message."""
        if message.role == "tool":
            self._add_result(message)
        elif message.role in ("system", "user", "assistant"):
            if message.reasoning_content:
                self.items.append(ReasoningItem(text=message.reasoning_content))
            if message.content:
                self.items.append(
                    MessageItem.model_validate({"role": message.role, "text": message.content})
                )
            self._add_requests(message)
        else:
            self.gaps.append(unparseable(f"message {message.id}: unknown role {message.role}"))

    def _add_requests(self, message: MessageRow) -> None:
        try:
            asked = requests(message)
        except (TypeError, ValueError, RecursionError) as error:
            self.gaps.append(unparseable(f"message {message.id}: {error}"))
            return
        self.items += [request.item() for request in asked]
        self.requests += asked

    def _add_result(self, message: MessageRow) -> None:
        identity = message.tool_call_id or ""
        known = any(request.call_id == identity for request in self.requests)
        if not known or identity in self.results:
            code = DUPLICATE_TOOL_CALL if known else TOOL_RESULT_UNOWNED
            detail = short(f"{identity}: told by message {message.id}")
            self.gaps.append(Gap(code=code, invocation_id=self.session_id, detail=detail))
            return
        self.results[identity] = message
        self.items.append(tool_result(message))


def _calls(history: _History, noted: Journal) -> tuple[list[ToolCall], list[Gap]]:
    calls: dict[str, ToolCall] = {}
    gaps = list(history.gaps)
    for request in history.requests:
        identity = request.call_id
        if identity in calls:
            detail = short(f"{identity}: asked for again")
            gaps.append(
                Gap(code=DUPLICATE_TOOL_CALL, invocation_id=history.session_id, detail=detail)
            )
            continue
        times = noted.tools.get((history.session_id, identity))
        calls[identity], lacking = tool_call(request, history.results.get(identity), times)
        gaps += lacking
    return list(calls.values()), gaps


def _compactions(facts: _Facts) -> Iterator[ContextCompaction]:
    """Yield a compaction for each run of messages that one took out of the model's view."""
    before = False
    for message in facts.messages:
        if before and not message.compacted:
            yield ContextCompaction(
                invocation_id=facts.session.id,
                observed_at=message.timestamp,
                trigger="auto",
                outcome="completed",
            )
        before = bool(message.compacted)
