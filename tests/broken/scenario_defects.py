"""Planted defects that only the scenarios of the full profile can show."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sandbox.evidence.cell import VerifierResult
from sandbox.evidence.exchanges import CapturedCall, Exchange, TokenUsage
from sandbox.evidence.folder import CellFiles
from sandbox.evidence.observations import (
    AgentInvocation,
    ContextCompaction,
    InvocationStatus,
    MessageItem,
    ReasoningItem,
    ToolCall,
    ToolResultItem,
    ToolStatus,
)
from sandbox.evidence.records import Record, Survivor
from sandbox.evidence.rows import REJECTED, TokenStats
from tests.broken.defects import (
    Defect,
    conversation,
    result,
    status,
    tool_status,
    with_cell,
    with_exchanges,
    with_observed,
    with_receipt,
    with_row,
    with_trajectory,
    with_witness,
    zero_row,
)
from tests.broken.goodcells import COMPANION, SESSION, good

_NONE = TokenUsage(input_tokens=0, output_tokens=0, total_tokens=0)


def _capture(files: CellFiles, change: Callable[[CapturedCall], CapturedCall]) -> CellFiles:
    assert files.row is not None
    known = files.row.ng_model_call_capture
    return with_row(
        files,
        ng_model_call_capture=known.model_copy(update={"calls": tuple(map(change, known.calls))}),
    )


def _zeros(call: CapturedCall) -> CapturedCall:
    return call.model_copy(update={"tokens": _NONE})


def _zero_stats(files: CellFiles) -> CellFiles:
    assert files.row is not None
    calls = files.row.ng_trajectory.model_calls
    zero = TokenStats(prompt_tokens=0, completion_tokens=0)
    changed = tuple(call.model_copy(update={"token_stats": zero}) for call in calls)
    return with_trajectory(files, model_calls=changed)


def _billed(files: CellFiles, tokens: int) -> CellFiles:
    return with_row(files, response={"output": [], "usage": {"input_tokens": tokens}})


def _empty_zero() -> CellFiles:
    """Grade a run in which the model said nothing."""
    return zero_row(good("empty_answer"))


def _replaced(kind: type[Record], **changes: object) -> Callable[[Record], Record]:
    return lambda record: record.model_copy(update=changes) if isinstance(record, kind) else record


def _spoken(record: Record) -> Record:
    """Turn reasoning into what the assistant says."""
    if isinstance(record, ReasoningItem):
        return MessageItem(role="assistant", text=record.text)
    return record


def _ran_anyway(files: CellFiles) -> CellFiles:
    assert files.witness is not None
    tools = tuple(
        tool if tool.expected.runs else tool.model_copy(update={"marker_found": True})
        for tool in files.witness.tools
    )
    return with_witness(files, tools=tools)


def untruncated(exchange: Exchange) -> Exchange:
    return Exchange.model_validate_json(exchange.model_dump_json().replace("[truncated]", ""))


def _half_a_letter(exchange: Exchange) -> Exchange:
    broken = "\N{REPLACEMENT CHARACTER}[truncated]"
    return Exchange.model_validate_json(exchange.model_dump_json().replace("[truncated]", broken))


def yielded(files: CellFiles, *, polled: bool) -> CellFiles:
    """Let the only command yield early; its output comes with a poll, or never."""
    assert files.witness is not None
    (tool,) = files.witness.tools
    call_id, whole = tool.expected.tool_call_id, tool.expected.output

    def later(exchange: Exchange) -> Exchange:
        assert isinstance(exchange.request, dict)
        items = [dict(item) for item in exchange.request["input"]]  # type: ignore[union-attr,arg-type]
        for item in [item for item in items if item.get("call_id") == call_id]:
            if item["type"] == "function_call_output":
                item["output"] = "Process running with session ID 42"
                items += [{**item, "call_id": f"{call_id}p1", "output": whole}] if polled else []
        return exchange.model_copy(update={"request": {**exchange.request, "input": items}})

    def told(record: Record) -> Record:
        if not isinstance(record, AgentInvocation):
            return record
        items = list(record.conversation)
        for item in [item for item in items if isinstance(item, ToolResultItem)]:
            items[items.index(item)] = item.model_copy(update={"output": "still running"})
            if polled:
                items.append(item.model_copy(update={"tool_call_id": f"{call_id}p1"}))
        return record.model_copy(update={"conversation": tuple(items)})

    return with_observed(with_exchanges(files, later), told)


def _as_the_agents(exchange: Exchange) -> Exchange:
    return exchange.model_copy(update={"caller": "agent"})


def _roots(record: Record) -> Record | None:
    """Tell a subagent's tools as the root's, and no subagent."""
    if isinstance(record, AgentInvocation) and record.parent_invocation_id is not None:
        return None
    return _replaced(ToolCall, invocation_id=SESSION)(record)


def _rejected(files: CellFiles) -> CellFiles:
    """Grade a failed cell as a rejected task, with a verifier's zero."""
    zero = with_row(
        zero_row(files), failure_kind=REJECTED, failure_reason="refused", mask_sample=True
    )
    return with_witness(zero, verifier=VerifierResult(reward=0.0, detail="no probe-1.txt"))


def _rejections() -> Iterable[Defect]:
    check, zero = "rejected_task", frozenset({"outcome_class", "verifier_outcome"})
    yield Defect(
        check=check,
        name="where the scenario does not allow it",
        files=lambda: _rejected(good("model_error")),
        also=zero,
    )
    yield Defect(
        check=check,
        name="after the model had answered",
        files=lambda: _rejected(good("late_rejection")),
        also=zero,
    )
    yield Defect(
        check=check,
        name="of a run that was stopped",
        files=lambda: with_receipt(
            good("rejected_task"), stopped=True, return_code=None, ending_s=0.1
        ),
        also=frozenset({"outcome_class"}),
    )
    yield Defect(
        check=check,
        name="not masked",
        files=lambda: with_row(good("rejected_task"), mask_sample=False),
    )
    yield Defect(
        check="no_silent_zero",
        name="a rejected task that its row does not name",
        files=lambda: with_row(good("rejected_task"), failure_kind=None, failure_reason=None),
        also=frozenset({"rejected_task"}),
    )
    yield Defect(
        check="error_sequence",
        name="a rate limit asked again and again",
        files=lambda: good("endless_429", statuses=[429] * 41),
    )


def _defects() -> Iterable[Defect]:
    yield from _outcomes()
    yield from _rejections()
    yield from _counts()
    yield from _tools()
    yield from _owners()
    yield from _ends()


def _outcomes() -> Iterable[Defect]:
    yield Defect(
        check="no_silent_zero",
        name="an empty answer graded zero",
        files=_empty_zero,
        also=frozenset({"outcome_class", "verifier_outcome"}),
    )
    yield Defect(
        check="length_not_completed",
        name="called completed",
        files=lambda: with_observed(good("length_stop"), status(InvocationStatus.COMPLETED)),
        also=frozenset({"outcome_class"}),
    )
    yield Defect(
        check="outcome_class",
        name="a cancelled run that nobody stopped",
        files=lambda: with_receipt(good("cancel_during_tool"), stopped=False, return_code=0),
    )
    yield Defect(
        check="outcome_class",
        name="a broken verifier's zero",
        files=lambda: zero_row(good("verifier_error")),
        also=frozenset({"verifier_outcome"}),
    )
    yield Defect(
        check="tool_status",
        name="killed for memory and called completed",
        files=lambda: with_observed(good("tool_oom"), tool_status(ToolStatus.COMPLETED)),
    )
    yield Defect(check="outcome_class", name="gave up instead of another try", files=_gave_up)
    yield Defect(
        check="observations_present",
        name="a record lost to a full disk without a gap",
        files=lambda: with_observed(
            good("disk_full"), lambda r: None if isinstance(r, ToolCall) else r
        ),
        also=frozenset({"tool_status"}),
    )
    yield Defect(
        check="resources_recorded",
        name="nothing was killed for memory",
        files=lambda: with_witness(good("tool_oom"), resources=_resources()),
    )


def _gave_up() -> CellFiles:
    """An honest failure where one more try would have done."""
    again, refused = good("retry_500").cell, good("model_error")
    assert refused.exchanges is not None
    expectation = again.expectation
    files = with_cell(refused, scenario="retry_500", cell_id=again.cell_id, expectation=expectation)
    return with_exchanges(
        files, lambda e: e.model_copy(update={"status_code": 500, "fault": "status_500"})
    )


def _resources() -> object:
    witness = good().witness
    assert witness is not None
    return witness.resources


def _counts() -> Iterable[Defect]:
    check = "token_counts"
    yield Defect(
        check=check,
        name="zeros for counts that were left out",
        files=lambda: _capture(good("usage_omitted"), _zeros),
        also=frozenset({"exchanges_saved"}),
    )
    yield Defect(
        check=check,
        name="zeros in the trajectory",
        files=lambda: _zero_stats(good("usage_omitted")),
    )
    yield Defect(
        check=check, name="a sum of absent counts", files=lambda: _billed(good("usage_omitted"), 18)
    )
    yield Defect(check=check, name="a wrong sum", files=lambda: _billed(good(), 1))
    check = "reasoning_kept"
    yield Defect(
        check=check,
        name="reasoning lost",
        files=lambda: with_observed(
            good("reasoning"),
            conversation(lambda item: None if isinstance(item, ReasoningItem) else item),
        ),
    )
    yield Defect(
        check=check,
        name="reasoning said aloud",
        files=lambda: with_observed(good("reasoning"), conversation(_spoken)),
    )


def _tools() -> Iterable[Defect]:
    check = "calls_refused"
    yield Defect(
        check=check,
        name="broken arguments repaired and run",
        files=lambda: _ran_anyway(good("invalid_tool_json")),
    )
    yield Defect(
        check=check,
        name="an unknown tool called completed",
        files=lambda: with_observed(good("unknown_tool"), tool_status(ToolStatus.COMPLETED)),
    )
    yield Defect(
        check="tool_output",
        name="a command that yielded is never asked for again",
        files=lambda: yielded(good("long_tool"), polled=False),
    )
    check = "truncation_told"
    yield Defect(
        check=check,
        name="cut in silence",
        files=lambda: with_exchanges(good("big_output"), untruncated),
    )
    yield Defect(
        check=check,
        name="the polls bring a part in silence",
        files=lambda: yielded(good("big_output"), polled=True),
    )
    yield Defect(
        check=check,
        name="half a letter",
        files=lambda: with_exchanges(good("big_output"), _half_a_letter),
    )
    yield Defect(
        check=check,
        name="cut in the transcript in silence",
        files=lambda: with_observed(good("big_output"), conversation(result(output="first line"))),
    )


def _owners() -> Iterable[Defect]:
    check = "verifier_calls"
    yield Defect(
        check=check,
        name="the judge's call taken for the agent's",
        files=lambda: with_exchanges(good("judge_verifier"), _as_the_agents),
        also=frozenset({"error_sequence", "attempts_owned", "token_counts", "drift"}),
    )
    yield Defect(
        check=check,
        name="an answer that the judge never had",
        files=lambda: with_witness(
            good("judge_verifier"), verifier=VerifierResult(reward=1.0, model_calls=())
        ),
    )
    check = "subagents_joined"
    yield Defect(
        check=check,
        name="a subagent's work told as the root's",
        files=lambda: with_observed(good("subagent"), _roots),
        also=frozenset({"attempts_owned", "observations_present", "tool_output", "drift"}),
    )
    yield Defect(
        check=check,
        name="no call behind the subagent",
        files=lambda: with_observed(
            good("subagent"), _replaced(AgentInvocation, spawned_by_tool_call_id=None)
        ),
    )
    check = "compaction_recorded"
    yield Defect(
        check=check,
        name="shortened in silence",
        files=lambda: with_observed(
            good("context_compaction"),
            lambda record: None if isinstance(record, ContextCompaction) else record,
        ),
    )
    yield Defect(
        check=check,
        name="without an outcome",
        files=lambda: with_observed(
            good("context_compaction"), _replaced(ContextCompaction, outcome=None)
        ),
    )


def _ends() -> Iterable[Defect]:
    yield Defect(
        check="survivors_told",
        name="a background child that the receipt hides",
        files=lambda: with_receipt(good("background_tool"), survivors=()),
    )
    yield Defect(
        check="nothing_left_running",
        name="another process beside the background children",
        files=lambda: with_witness(
            good("background_tool"), survivors=(Survivor(pid=99, command="codex exec"),)
        ),
    )
    yield Defect(
        check="receipt_confirmed",
        name="survivors of a forced stop",
        files=lambda: with_receipt(
            good("cancel_during_tool"), survivors=(Survivor(pid=99, command="sleep 999"),)
        ),
    )
    check = "sessions_apart"
    for name, changes in {
        "calls at the wrong model": {"foreign_calls": 1},
        "one after the other": {"overlapped": False},
        "the other failed": {"outcome": "failed", "reward": None, "error": "no model call"},
        "the other never asked": {"calls": 0},
        "the other's folder stays": {"session_dir_gone": False},
    }.items():
        yield Defect(
            check=check,
            name=name,
            files=lambda changes=changes: with_witness(  # type: ignore[misc]
                good("two_sessions"), companion=COMPANION.model_copy(update=changes)
            ),
        )
    yield Defect(
        check=check, name="uninvited", files=lambda: with_witness(good(), companion=COMPANION)
    )
    check = "close_is_final"
    for answer in ("accepted", None):
        yield Defect(
            check=check,
            name=f"answered with {answer}",
            files=lambda answer=answer: with_witness(  # type: ignore[misc]
                good("resume_after_close"), reactivation=answer
            ),
        )


SCENARIO_DEFECTS: tuple[Defect, ...] = tuple(_defects())
