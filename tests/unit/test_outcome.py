"""The outcome table, enumerated over every combination of its inputs against a second reading."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from sandbox.agents.outcome import (
    LOG_TAIL,
    ExchangeFacts,
    NativeFacts,
    Outcome,
    OutcomeKind,
    exchange_facts,
    native_facts,
    outcome_of,
)
from sandbox.evidence.exchanges import Exchange, TokenUsage
from sandbox.evidence.observations import (
    AgentInvocation,
    InvocationStatus,
    ModelCallRef,
    Observations,
)
from sandbox.evidence.records import CleanupReceipt, Survivor

K = OutcomeKind


def receipt(**changes: object) -> CleanupReceipt:
    facts: dict[str, object] = {
        "cleanup_confirmed": True,
        "launched": True,
        "return_code": 0,
        "timed_out": False,
        "stopped": False,
        "error": None,
        "survivors": (),
        "hostname": "box",
        "pid": 7,
        "duration_s": 1.0,
    }
    return CleanupReceipt.model_validate(facts | changes)


def receipts() -> Iterator[CleanupReceipt | None]:
    yield None
    for confirmed, launched, code, timed_out, stopped, error in itertools.product(
        (True, False),
        (True, False),
        (None, 0, 1, 137),
        (True, False),
        (True, False),
        (None, "lost"),
    ):
        yield receipt(
            cleanup_confirmed=confirmed,
            launched=launched,
            return_code=code,
            timed_out=timed_out,
            stopped=stopped,
            error=error,
        )


def natives() -> Iterator[NativeFacts]:
    for status, calls, proof in itertools.product(
        (None, *InvocationStatus), (True, False), ((), ("plugin.json",))
    ):
        yield NativeFacts(status=status, model_calls=calls, missing_proof=proof)


def exchanges() -> Iterator[ExchangeFacts | None]:
    yield None
    for requests, completed, cut in ((0, 0, False), (3, 0, False), (2, 2, False), (2, 2, True)):
        yield ExchangeFacts(requests=requests, completed=completed, length_stop=cut)


def expected(
    seen: CleanupReceipt | None, native: NativeFacts, watched: ExchangeFacts | None
) -> OutcomeKind:
    """The table of DESIGN.md's supervision outcomes, read as one truth table."""
    if seen is None or seen.error or not seen.launched or seen.stopped:
        return K.INFRASTRUCTURE_FAILURE
    if not seen.cleanup_confirmed or (seen.return_code is None and not seen.timed_out):
        return K.INFRASTRUCTURE_FAILURE
    answered = watched.completed > 0 if watched else native.model_calls
    if not answered:
        return K.NO_MODEL_CALL
    if native.missing_proof:
        return K.FAILED
    if seen.timed_out:
        return K.INCOMPLETE
    told = {
        InvocationStatus.COMPLETED: K.COMPLETED,
        InvocationStatus.INCOMPLETE: K.INCOMPLETE,
        InvocationStatus.FAILED: K.FAILED,
    }
    kind = told.get(native.status) if native.status else None
    if watched and watched.length_stop and kind is not K.COMPLETED:
        return K.INCOMPLETE
    if kind is not None:
        return kind
    return K.FAILED if seen.return_code == 0 else K.INFRASTRUCTURE_FAILURE


def test_every_combination_has_the_outcome_of_the_table() -> None:
    seen: set[OutcomeKind] = set()
    count = 0
    for combination in itertools.product(receipts(), natives(), exchanges()):
        outcome = outcome_of(
            receipt=combination[0], native=combination[1], exchanges=combination[2]
        )
        assert outcome.kind is expected(*combination), combination
        assert outcome.reason
        seen.add(outcome.kind)
        count += 1
    assert seen == set(OutcomeKind)
    assert count == 129 * 20 * 5


def test_only_finished_and_cut_short_turns_are_gradable() -> None:
    gradable = {kind for kind in OutcomeKind if Outcome(kind=kind, reason="x").gradable}
    assert gradable == {K.COMPLETED, K.INCOMPLETE}


@pytest.mark.parametrize("code", [0, 1, 137])
def test_the_exit_status_alone_is_never_the_verdict(code: int) -> None:
    for status in (InvocationStatus.COMPLETED, InvocationStatus.FAILED):
        outcome = outcome_of(
            receipt=receipt(return_code=code),
            native=NativeFacts(status=status),
            exchanges=ExchangeFacts(requests=1, completed=1),
        )
        assert outcome.kind.value == status.value


def test_a_turn_without_an_answer_carries_the_end_of_the_log() -> None:
    outcome = outcome_of(
        receipt=receipt(return_code=None, timed_out=True),
        native=NativeFacts(status=None),
        exchanges=ExchangeFacts(requests=4, completed=0),
        log="x" * 5000 + "connect ECONNREFUSED",
    )
    assert outcome.kind is K.NO_MODEL_CALL
    assert "4 requested" in outcome.reason
    assert outcome.log_tail.endswith("connect ECONNREFUSED")
    assert len(outcome.log_tail) == LOG_TAIL


def test_what_is_left_running_is_named() -> None:
    left = (Survivor(pid=9, command="sleep 300"),)
    outcome = outcome_of(
        receipt=receipt(cleanup_confirmed=False, timed_out=True, survivors=left),
        native=NativeFacts(status=None),
        exchanges=ExchangeFacts(requests=1, completed=1),
    )
    assert outcome.kind is K.INFRASTRUCTURE_FAILURE
    assert "sleep 300 (9)" in outcome.reason


def test_why_there_is_no_receipt_is_said() -> None:
    outcome = outcome_of(
        receipt=None,
        native=NativeFacts(status=None),
        exchanges=None,
        trouble="no receipt in /tmp/x: exit 2",
    )
    assert outcome.reason == "supervision error: no receipt in /tmp/x: exit 2"


def exchange(**changes: object) -> Exchange:
    facts: dict[str, object] = {
        "exchange_id": "e1",
        "rollout_id": "r",
        "dialect": "responses",
        "method": "POST",
        "path": "/v1/responses",
        "headers": {},
        "streamed": True,
        "started_at": 1.0,
        "completed_at": 2.0,
        "request": {},
        "status_code": 200,
        "response": {"status": "completed"},
        "usage": TokenUsage(input_tokens=3, output_tokens=2),
        "finish_reason": "stop",
    }
    return Exchange.model_validate(facts | changes)


@pytest.mark.parametrize(
    ("changes", "completed"),
    [
        ({}, 1),
        ({"status_code": 400}, 0),
        ({"finish_reason": None, "disconnected": True, "fault": "stall"}, 0),
        ({"finish_reason": None, "fault": "cut"}, 0),
        ({"finish_reason": "length"}, 1),
        ({"dialect": "none"}, 0),
    ],
    ids=["whole", "rejected", "stalled", "cut", "length", "no-model-call"],
)
def test_only_answers_that_arrived_whole_count(changes: dict[str, object], completed: int) -> None:
    assert exchange_facts([exchange(**changes)]).completed == completed


def test_usage_is_summed_only_when_every_answer_sent_it() -> None:
    both = exchange_facts([exchange(), exchange(exchange_id="e2", started_at=3.0)])
    assert both.usage == TokenUsage(input_tokens=6, output_tokens=4, total_tokens=10)
    one = exchange_facts([exchange(), exchange(exchange_id="e2", started_at=3.0, usage=None)])
    assert one.usage is None
    assert exchange_facts([]).usage is None


def test_the_last_answer_tells_of_a_length_stop() -> None:
    cut = exchange(exchange_id="e2", started_at=3.0, finish_reason="length")
    assert exchange_facts([exchange(), cut]).length_stop
    assert not exchange_facts([cut, exchange(started_at=4.0)]).length_stop


def test_the_root_invocation_speaks_for_the_transcript() -> None:
    child = AgentInvocation(
        invocation_id="c", parent_invocation_id="r", status=InvocationStatus.FAILED
    )
    root = AgentInvocation(
        invocation_id="r",
        status=InvocationStatus.COMPLETED,
        model_calls=(ModelCallRef(model_call_id="m"),),
    )
    facts = native_facts(Observations(source="x", records=(child, root)), missing_proof=["p"])
    assert facts.status is InvocationStatus.COMPLETED
    assert facts.model_calls
    assert facts.missing_proof == ("p",)
    assert native_facts(Observations(source="x")).status is None
