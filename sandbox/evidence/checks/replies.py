"""Checks of what the model's replies say beside their text: counts, reasoning, the output limit."""

from __future__ import annotations

from sandbox.evidence import payloads
from sandbox.evidence.capture import is_completed
from sandbox.evidence.checks.check import check
from sandbox.evidence.exchanges import TokenUsage
from sandbox.evidence.observations import InvocationStatus, MessageItem, ReasoningItem
from sandbox.evidence.rows import SuccessRow, TokenStats
from sandbox.evidence.verdict import Outcome, Tier, failed, judged_by, not_applicable, passed
from sandbox.evidence.view import CellEvidence


@check(
    tier=Tier.P1,
    kind="semantic",
    group="TE-2",
    why="a count that nobody gave, or one that got lost, makes the cost of a run a guess",
)
def token_counts(cell: CellEvidence) -> Outcome:
    """Each call's counts in the row are those of its reply; what was left out stays absent."""
    sent = {call.model_call_id: call.tokens for call in cell.calls}
    faults = [
        f"model call {call.model_call_id}: the reply told {_said(sent.get(call.model_call_id))}, "
        f"the capture has {_said(call.tokens)}"
        for call in cell.row.ng_model_call_capture.calls
        if call.tokens != sent.get(call.model_call_id)
    ]
    faults += [
        f"model call {call.model_call_id}: the trajectory has other token counts than the reply"
        for call in cell.row.ng_trajectory.model_calls
        if call.token_stats != _stats(sent.get(call.model_call_id))
    ]
    if isinstance(cell.row, SuccessRow):
        faults += _sum_faults(cell, cell.row)
    if not sent and not faults:
        return not_applicable("there was no model call")
    return judged_by(faults)


def _sum_faults(cell: CellEvidence, row: SuccessRow) -> list[str]:
    response = row.response if isinstance(row.response, dict) else {}
    told = response.get("usage")
    if not isinstance(told, dict):
        return []
    answered = [call.tokens for call in cell.calls if is_completed(call)]
    known = [tokens for tokens in answered if tokens is not None and tokens.input_tokens]
    if len(known) != len(answered):
        return [f"the response has token counts, and {len(answered) - len(known)} replies had none"]
    total = sum(tokens.input_tokens or 0 for tokens in known)
    if told.get("input_tokens") != total:
        return [f"expected {total} input tokens in the response, saw {told.get('input_tokens')}"]
    return []


def _stats(tokens: TokenUsage | None) -> TokenStats | None:
    if tokens is None:
        return None
    return TokenStats(
        prompt_tokens=tokens.input_tokens,
        completion_tokens=tokens.output_tokens,
        total_tokens=tokens.total_tokens,
        reasoning_tokens=tokens.reasoning_tokens,
        cached_tokens=tokens.cached_tokens,
    )


def _said(tokens: TokenUsage | None) -> str:
    return "no counts" if tokens is None else f"{tokens.input_tokens}/{tokens.output_tokens} tokens"


@check(
    tier=Tier.P0,
    kind="semantic",
    group="TE-1",
    why="an answer cut at its token limit and called complete is graded as if it were whole",
)
def length_not_completed(cell: CellEvidence) -> Outcome:
    """A run whose last answer was cut at the output limit is not called completed."""
    if not cell.calls or cell.calls[-1].error_category != "incomplete":
        return not_applicable("the last answer was not cut at its token limit")
    if cell.root.status is InvocationStatus.COMPLETED:
        name = cell.calls[-1].model_call_id
        return failed(f"the last answer ({name}) was cut at its limit, the run is called completed")
    return passed()


@check(
    tier=Tier.P2,
    kind="semantic",
    group="TE-7",
    why="reasoning that is lost, or mixed into the answer, changes what is trained and graded",
)
def reasoning_kept(cell: CellEvidence) -> Outcome:
    """The reasoning of each reply is in the transcript as reasoning, and in no answer's text."""
    told = [
        text
        for call in cell.calls
        if is_completed(call)
        and (text := payloads.reasoning(payloads.answer(call.dialect, call.response)))
    ]
    if not told:
        return not_applicable("no reply had reasoning")
    items = [item for i in cell.invocations for item in i.conversation]
    kept = "\n".join(item.text for item in items if isinstance(item, ReasoningItem))
    faults = [
        f"reasoning {text[:40]!r} is not in the transcript" for text in told if text not in kept
    ]
    faults += [
        f"reasoning {text[:40]!r} is in the text of an answer"
        for text in told
        if any(
            isinstance(item, MessageItem) and item.role == "assistant" and text in item.text
            for item in items
        )
    ]
    return judged_by(faults)


CHECKS = (token_counts, length_not_completed, reasoning_kept)
