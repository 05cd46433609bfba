"""One table from receipt, native evidence and exchanges to how an agent turn ended.

Rules are tried from the top; the first that fits decides.

====  ============================================================  ======================
 no.  fact                                                           outcome
====  ============================================================  ======================
  1   no receipt, or the receipt carries a supervision error         infrastructure_failure
  2   nothing was launched                                           infrastructure_failure
  3   somebody asked for the stop                                    infrastructure_failure
  4   the stop was forced and processes are left                     infrastructure_failure
  5   no exit status, and the own deadline did not expire            infrastructure_failure
  6   no model call completed                                        no_model_call
  6b  every answer of the model was empty                            failed
  7   a file that proves the run is missing                          failed
  8   the own deadline expired                                       incomplete
  9   the transcript says completed                                  completed
 10   the transcript says incomplete, or the model's last answer     incomplete
      was cut at its token limit
 11   the transcript says failed                                     failed
 12   no terminal record, and the exit status is not 0               infrastructure_failure
 13   no terminal record, exit status 0                              failed
====  ============================================================  ======================

``completed`` and ``incomplete`` are gradable. The exit status decides nothing where the transcript
speaks: harnesses exit 0 after errors, and not 0 after finished work.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from sandbox.evidence.capture import capture, is_completed, says_something
from sandbox.evidence.exchanges import Exchange, TokenUsage
from sandbox.evidence.observations import AgentInvocation, InvocationStatus, Observations
from sandbox.evidence.records import CleanupReceipt, Record

LOG_TAIL = 2000


class OutcomeKind(StrEnum):
    """How an agent turn ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    INCOMPLETE = "incomplete"
    INFRASTRUCTURE_FAILURE = "infrastructure_failure"
    NO_MODEL_CALL = "no_model_call"


class Outcome(Record):
    """How an agent turn ended, why, and the end of the harness's log where that helps."""

    kind: OutcomeKind
    reason: str
    log_tail: str = ""

    @property
    def gradable(self) -> bool:
        """Whether a verifier may judge the work; otherwise the episode is a failure record."""
        return self.kind in {OutcomeKind.COMPLETED, OutcomeKind.INCOMPLETE}


class ExchangeFacts(Record):
    """What the model server saw: model calls, those answered whole, and how the last one ended.

    ``length_stop``: the model's last answer was cut at its token limit. ``silent``: there were
    answers, and none had a text or a tool call.
    """

    requests: int
    completed: int
    length_stop: bool = False
    silent: bool = False
    usage: TokenUsage | None = None


class NativeFacts(Record):
    """What the transcript says: the root's status (None: no transcript), and missing proof files.

    ``model_calls``: whether the transcript shows that the model ever answered.
    """

    status: InvocationStatus | None
    error_type: str | None = None
    model_calls: bool = False
    missing_proof: tuple[str, ...] = ()


def outcome_of(
    *,
    receipt: CleanupReceipt | None,
    native: NativeFacts,
    exchanges: ExchangeFacts | None,
    log: str = "",
    trouble: str | None = None,
) -> Outcome:
    """Apply the table.

    Args:
        receipt: the supervisor's last word, if there is one.
        native: what the transcript says.
        exchanges: what the model server saw; None: nobody watched, the transcript alone tells.
        log: what the harness wrote; its end goes with an outcome that it may explain.
        trouble: why there is no receipt.
    """
    return (
        _supervised(receipt, log, trouble)
        or _worked(native, exchanges, log)
        or _told(receipt, native, length_stop=exchanges is not None and exchanges.length_stop)
    )


def _supervised(receipt: CleanupReceipt | None, log: str, trouble: str | None) -> Outcome | None:
    reason = None
    if receipt is None:
        reason = f"supervision error: {trouble or 'the supervisor left no receipt'}"
    elif receipt.error is not None:
        reason = f"supervision error: {receipt.error}"
    elif not receipt.launched:
        reason = "stopped before the harness was launched"
    elif receipt.stopped:
        reason = "stopped by request before its own deadline"
    elif not receipt.cleanup_confirmed:
        left = ", ".join(f"{s.command} ({s.pid})" for s in receipt.survivors) or "unknown"
        reason = f"the stop could not be confirmed, left running: {left}"
    elif receipt.return_code is None and not receipt.timed_out:
        reason = "the harness ended without an exit status"
    return None if reason is None else _infrastructure(reason, log)


def _worked(native: NativeFacts, exchanges: ExchangeFacts | None, log: str) -> Outcome | None:
    completed = native.model_calls if exchanges is None else exchanges.completed > 0
    if not completed:
        asked = "" if exchanges is None else f" ({exchanges.requests} requested)"
        return Outcome(
            kind=OutcomeKind.NO_MODEL_CALL,
            reason=f"no model call completed{asked}",
            log_tail=log[-LOG_TAIL:],
        )
    if exchanges is not None and exchanges.silent:
        return Outcome(kind=OutcomeKind.FAILED, reason="the model's answers were all empty")
    if native.missing_proof:
        missing = ", ".join(native.missing_proof)
        return Outcome(kind=OutcomeKind.FAILED, reason=f"no proof of the run: {missing} missing")
    return None


def _told(receipt: CleanupReceipt | None, native: NativeFacts, *, length_stop: bool) -> Outcome:
    assert receipt is not None
    if receipt.timed_out:
        return Outcome(kind=OutcomeKind.INCOMPLETE, reason="the task's own deadline expired")
    said = f"{native.error_type}" if native.error_type else "no detail"
    if native.status is InvocationStatus.COMPLETED:
        reason = f"finished, exit status {receipt.return_code}"
        return Outcome(kind=OutcomeKind.COMPLETED, reason=reason)
    if length_stop:
        said = "the model's last answer was cut at its token limit"
    if native.status is InvocationStatus.INCOMPLETE or length_stop:
        return Outcome(kind=OutcomeKind.INCOMPLETE, reason=f"the harness stopped short: {said}")
    if native.status is InvocationStatus.FAILED:
        return Outcome(kind=OutcomeKind.FAILED, reason=f"the harness reports a failure: {said}")
    if receipt.return_code != 0:
        return _infrastructure(
            f"the harness exited with {receipt.return_code} and left no terminal record", ""
        )
    return Outcome(
        kind=OutcomeKind.FAILED, reason="the harness exited with 0 and left no terminal record"
    )


def _infrastructure(reason: str, log: str) -> Outcome:
    return Outcome(kind=OutcomeKind.INFRASTRUCTURE_FAILURE, reason=reason, log_tail=log[-LOG_TAIL:])


def native_facts(observations: Observations, *, missing_proof: Iterable[str] = ()) -> NativeFacts:
    """Sum up what the transcript says of the root invocation."""
    invocations = [r for r in observations.records if isinstance(r, AgentInvocation)]
    root = next((i for i in invocations if i.parent_invocation_id is None), None)
    return NativeFacts(
        status=None if root is None else root.status,
        error_type=None if root is None else root.error_type,
        model_calls=any(i.model_calls for i in invocations),
        missing_proof=tuple(missing_proof),
    )


def exchange_facts(exchanges: Iterable[Exchange]) -> ExchangeFacts:
    """Sum up what the model server saw; usage only when every completed call sent it."""
    calls = capture(exchanges)
    completed = [call for call in calls if is_completed(call)]
    last = calls[-1] if calls else None
    return ExchangeFacts(
        requests=len(calls),
        completed=len(completed),
        silent=bool(completed) and not any(map(says_something, calls)),
        length_stop=last is not None and last.error_category == "incomplete",
        usage=_total([call.tokens for call in completed]),
    )


def _total(usages: list[TokenUsage | None]) -> TokenUsage | None:
    pairs = [
        (usage.input_tokens, usage.output_tokens)
        for usage in usages
        if usage is not None and usage.input_tokens is not None and usage.output_tokens is not None
    ]
    if not pairs or len(pairs) != len(usages):
        return None
    asked, answered = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
    return TokenUsage(input_tokens=asked, output_tokens=answered, total_tokens=asked + answered)
