"""One session of OpenClaw: its entries as an invocation, tool calls and compactions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sandbox.evidence.observations import (
    ContextCompaction,
    ConversationItem,
    Gap,
    InvocationStatus,
    MessageItem,
    ModelCallRef,
    ModelRef,
    ReasoningItem,
)
from sandbox.harnesses.native import DUPLICATE_TOOL_CALL, TOOL_RESULT_UNOWNED, short, unparseable
from sandbox.harnesses.openclaw_session import Content, Entry, Message, Session
from sandbox.harnesses.openclaw_tools import (
    PROCESS,
    Call,
    ended_process,
    process_of,
    tool_request,
    tool_result,
)

UNNAMED = "error"
"""The error type of an error without one."""

COUNTS_UNAVAILABLE = "compaction_token_counts_unavailable"

_BY_THE_HARNESS = "cli"  # the api of an answer that no model gave
_WITHOUT_FACTS = {
    "branch_summary",
    "custom",
    "custom_message",
    "label",
    "leaf",
    "model_change",
    "session_info",
    "thinking_level_change",
}
_STOPPED = {"aborted": "aborted", "length": "finish_length"}

Outcome = tuple[InvocationStatus, str | None]


@dataclass(frozen=True)
class Story:
    """What one session file tells."""

    session: Session
    branch: tuple[Entry, ...]

    @classmethod
    def of(cls, session: Session) -> Story:
        """Tell the story of a session."""
        return cls(session, tuple(session.branch()))

    @property
    def invocation_id(self) -> str:
        """The session's id."""
        return self.session.session_id

    def uses(self, provider: str) -> bool:
        """Whether the session was begun with that provider."""
        chosen = [e.provider for e in self.session.entries if e.type == "model_change"]
        return bool(chosen) and chosen[0] == provider

    def outcome(self) -> Outcome:
        """Return how the last answer of the model ended; unknown while more was to come."""
        said = [entry.message for entry in self.branch if entry.message is not None]
        answers = [m for m in said if m.role == "assistant" and m.api != _BY_THE_HARNESS]
        if not answers or said[-1].role != "assistant":
            return InvocationStatus.UNKNOWN, None
        reason = answers[-1].stopReason
        if reason == "stop":
            return InvocationStatus.COMPLETED, None
        if reason == "error":
            return InvocationStatus.FAILED, short(answers[-1].errorType or UNNAMED)
        if reason is None or reason == "toolUse":
            return InvocationStatus.UNKNOWN, None
        return InvocationStatus.INCOMPLETE, _STOPPED.get(reason, f"finish_{short(reason)}")

    def duration_ms(self) -> float | None:
        """Return the time between the first and the last message."""
        times = [e.at for e in self.branch if e.message is not None and e.at is not None]
        return round(max(0.0, times[-1] - times[0]) * 1000, 3) if len(times) > 1 else None

    def model_calls(self, server: ModelRef | None) -> tuple[ModelCallRef, ...]:
        """Return the model's answers by their ids, each once: branches repeat them."""
        answers = (m.responseId for m in self.session.messages() if m.role == "assistant")
        return tuple(
            ModelCallRef(model_ref=server, response_id=name)
            for name in dict.fromkeys(name for name in answers if name)
        )

    def conversation(self) -> Iterator[ConversationItem]:
        """Yield what the model knows of the history."""
        for entry in self.branch:
            message = entry.message
            if message is None:
                continue
            if message.role == "toolResult":
                yield tool_result(message)
            elif message.role in ("user", "assistant"):
                yield from _said(message)

    def calls(self) -> list[Call]:
        """Return the tool calls of all branches, each once, with the first result it had."""
        results: dict[str, Message] = {}
        later: dict[str, Message] = {}
        asked: dict[str, Content] = {}
        for message in self.session.messages():
            if message.role == "toolResult" and message.toolCallId is not None:
                results.setdefault(message.toolCallId, message)
                process = ended_process(message)
                if process is not None and _is_about_a_process(message, asked):
                    later.setdefault(process, message)
            elif message.role == "assistant":
                for part in _tool_calls(message):
                    asked.setdefault(part.id, part)
        found = []
        for call_id, part in asked.items():
            result = results.get(call_id)
            process = process_of(result)
            found.append(
                Call(
                    invocation_id=self.invocation_id,
                    asked=part,
                    result=result,
                    later=later.get(process) if process is not None else None,
                )
            )
        return found

    def compactions(self) -> Iterator[ContextCompaction]:
        """Yield each shortening of the history that the model works with."""
        for entry in self.branch:
            if entry.type == "compaction":
                yield ContextCompaction(
                    invocation_id=self.invocation_id,
                    observed_at=entry.at,
                    tokens_before=entry.tokensBefore,
                    outcome="completed" if entry.summary is not None else None,
                    summary=entry.summary,
                    first_kept_item_id=entry.firstKeptEntryId,
                )

    def gaps(self) -> Iterator[Gap]:
        """Yield what this file cannot tell."""
        yield from self.session.gaps
        asked: set[str] = set()
        for entry in self.branch:
            message = entry.message
            if message is None:
                if entry.type not in _WITHOUT_FACTS | {"compaction"}:
                    yield unparseable(f"entry {entry.id}: unknown type {entry.type}")
            elif message.role == "assistant":
                for part in _tool_calls(message):
                    if part.id in asked:
                        yield self._gap(DUPLICATE_TOOL_CALL, f"{part.id}: asked for again")
                    asked.add(part.id)
            elif message.role == "toolResult" and message.toolCallId not in asked:
                yield self._gap(TOOL_RESULT_UNOWNED, f"{message.toolCallId}: nobody asked for it")
        if any(entry.type == "compaction" for entry in self.branch):
            yield self._gap(
                COUNTS_UNAVAILABLE, "the size of the history after a compaction is not kept"
            )

    def _gap(self, code: str, detail: str) -> Gap:
        return Gap(code=code, invocation_id=self.invocation_id, detail=short(detail))


def _said(message: Message) -> Iterator[ConversationItem]:
    for part in message.parts:
        if part.type == "text" and part.text:
            yield MessageItem.model_validate({"role": message.role, "text": part.text})
        elif part.type == "thinking":
            yield ReasoningItem(text=part.thinking)
        elif part.type == "toolCall":
            yield tool_request(part)


def _tool_calls(message: Message) -> Iterator[Content]:
    yield from (part for part in message.parts if part.type == "toolCall")


def _is_about_a_process(result: Message, asked: dict[str, Content]) -> bool:
    part = asked.get(result.toolCallId or "")
    return part is not None and part.name == PROCESS
