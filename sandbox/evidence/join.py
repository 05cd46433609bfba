"""Which invocation made which captured call: exact identifiers only, everything else is a gap.

Evidence for an ownership, in order of trust:

1. a reference in the observations by model call id (with server and response id, where given);
2. a reference by model server and response id (by response id alone where no server is named);
3. the call's session header, when it equals an invocation id and nobody claimed the call.

A reference without a candidate is *unmatched*, with several *ambiguous*. A call that is referenced
twice is a *conflict*; when two invocations claim it, neither owns it, since nothing says who is
right. A call whose session header names an unrelated invocation is a conflict too. A call without
an owner ends as ``model_call_ownership_unavailable``. Time and order are never evidence, so the
result does not depend on the order of records or calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sandbox.evidence.exchanges import CapturedCall
from sandbox.evidence.observations import (
    AgentInvocation,
    ContextCompaction,
    Gap,
    ModelCallRef,
    ObservationRecord,
    Observations,
)

UNMATCHED = "model_call_reference_unmatched"
AMBIGUOUS = "model_call_reference_ambiguous"
CONFLICT = "model_call_reference_conflict"
UNOWNED = "model_call_ownership_unavailable"
NO_CALLS = "model_call_capture_no_records"
_CAPTURE = "capture:"


@dataclass(frozen=True, kw_only=True)
class Join:
    """Observations with their references resolved, and the owner of each call that has one.

    ``owners`` maps model call ids to invocation ids.
    """

    observations: Observations
    owners: Mapping[str, str]

    def calls_of(self, invocation_id: str, calls: Iterable[CapturedCall]) -> list[CapturedCall]:
        """Return the calls of one invocation, in the order given."""
        return [call for call in calls if self.owners.get(call.model_call_id) == invocation_id]


def join(observations: Observations, calls: Sequence[CapturedCall]) -> Join:
    """Join observations and captured calls; joining the result again changes nothing."""
    index = _Index(calls)
    invocations = invocations_of(observations)
    claims, gaps = _claims(invocations, index)
    owners, conflicts = _owners(claims, {i.invocation_id: i for i in invocations}, index)
    gaps += conflicts
    records = [_resolved(record, owners, index, gaps) for record in observations.records]
    gaps += [
        Gap(code=UNOWNED, detail=f"{_CAPTURE}{call.model_call_id}")
        for call in index.calls
        if call.model_call_id not in owners
    ]
    if not index.calls:
        gaps.append(Gap(code=NO_CALLS))
    kept = [gap for gap in observations.gaps if not _is_of_a_join(gap)]
    return Join(
        observations=Observations(
            source=observations.source, records=tuple(records), gaps=(*kept, *_sorted(gaps))
        ),
        owners=owners,
    )


def invocations_of(observations: Observations) -> list[AgentInvocation]:
    """Return the invocation records."""
    return [record for record in observations.records if isinstance(record, AgentInvocation)]


def unowned_calls(gaps: Iterable[Gap]) -> set[str]:
    """Return the model call ids that the gaps call unowned."""
    return {
        gap.detail.removeprefix(_CAPTURE)
        for gap in gaps
        if gap.code == UNOWNED and gap.detail.startswith(_CAPTURE)
    }


class _Index:
    """Captured calls by their identifiers; a call id that occurs twice identifies nothing."""

    def __init__(self, calls: Sequence[CapturedCall]) -> None:
        self.calls = sorted(calls, key=lambda call: (call.started_at, call.model_call_id))
        self.by_id: dict[str, list[CapturedCall]] = defaultdict(list)
        self.by_response: dict[str, list[CapturedCall]] = defaultdict(list)
        for call in self.calls:
            self.by_id[call.model_call_id].append(call)
            if call.response_id is not None:
                self.by_response[call.response_id].append(call)

    def candidates(self, ref: ModelCallRef) -> list[CapturedCall]:
        """Return the calls that a reference can mean."""
        if ref.model_call_id is not None:
            found = self.by_id.get(ref.model_call_id, [])
        else:
            found = self.by_response.get(ref.response_id or "", [])
        return [
            call
            for call in found
            if ref.model_ref in (None, call.model_ref)
            and ref.response_id in (None, call.response_id)
        ]

    def is_unique(self, call: CapturedCall) -> bool:
        """Whether the call's id identifies it."""
        return len(self.by_id[call.model_call_id]) == 1

    def only(self, ref: ModelCallRef) -> CapturedCall | None:
        """Return the one call that a reference means, None when it means none or several."""
        found = self.candidates(ref)
        return found[0] if len(found) == 1 and self.is_unique(found[0]) else None


def _claims(
    invocations: Iterable[AgentInvocation], index: _Index
) -> tuple[dict[str, list[str]], list[Gap]]:
    """Return who references which call, and a gap for each reference that means no one call."""
    claims: dict[str, list[str]] = defaultdict(list)
    gaps = []
    for invocation in invocations:
        for ref in invocation.model_calls:
            call = index.only(ref)
            if call is not None:
                claims[call.model_call_id].append(invocation.invocation_id)
            else:
                gaps.append(_no_single_call(ref, index, invocation.invocation_id))
    return claims, gaps


def _no_single_call(ref: ModelCallRef, index: _Index, invocation_id: str, field: str = "") -> Gap:
    return Gap(
        code=AMBIGUOUS if index.candidates(ref) else UNMATCHED,
        invocation_id=invocation_id,
        detail=f"{field}{ref.model_call_id or ref.response_id or 'empty reference'}",
    )


def _owners(
    claims: Mapping[str, list[str]], invocations: Mapping[str, AgentInvocation], index: _Index
) -> tuple[dict[str, str], list[Gap]]:
    owners: dict[str, str] = {}
    gaps = []
    for call in index.calls:
        call_id = call.model_call_id
        claimants = claims.get(call_id, [])
        header = call.client_session_id
        if len(set(claimants)) == 1:
            owners[call_id] = claimants[0]
            stolen = header in invocations and header not in _line(claimants[0], invocations)
        elif not claimants and header in invocations and index.is_unique(call):
            owners[call_id] = str(header)
            stolen = False
        else:
            stolen = False
        if len(claimants) > 1 or stolen:
            gaps += [
                Gap(code=CONFLICT, invocation_id=claimant, detail=call_id)
                for claimant in sorted(set(claimants))
            ]
    return owners, gaps


def _line(invocation_id: str, invocations: Mapping[str, AgentInvocation]) -> set[str | None]:
    """Return an invocation and its ancestors: a subagent may use its parent's session header."""
    line: set[str | None] = set()
    current: str | None = invocation_id
    while current is not None and current not in line:
        line.add(current)
        found = invocations.get(current)
        current = found.parent_invocation_id if found else None
    return line


def _resolved(
    record: ObservationRecord, owners: Mapping[str, str], index: _Index, gaps: list[Gap]
) -> ObservationRecord:
    if isinstance(record, AgentInvocation):
        mine = [c for c in index.calls if owners.get(c.model_call_id) == record.invocation_id]
        refs = (*map(reference, mine), *_left_over(record.model_calls, mine, index))
        return record.model_copy(update={"model_calls": refs})
    if isinstance(record, ContextCompaction):
        return _resolved_compaction(record, owners, index, gaps)
    return record


def _left_over(
    refs: Iterable[ModelCallRef], mine: Iterable[CapturedCall], index: _Index
) -> list[ModelCallRef]:
    """Return the references that mean no owned call, and the repeated ones, which conflict."""
    open_ids = {call.model_call_id for call in mine}
    left = []
    for ref in refs:
        call = index.only(ref)
        if call is not None and call.model_call_id in open_ids:
            open_ids.remove(call.model_call_id)
        else:
            left.append(ref)
    return left


def reference(call: CapturedCall) -> ModelCallRef:
    """Return the complete reference to a captured call."""
    return ModelCallRef(
        model_call_id=call.model_call_id, model_ref=call.model_ref, response_id=call.response_id
    )


def _resolved_compaction(
    record: ContextCompaction, owners: Mapping[str, str], index: _Index, gaps: list[Gap]
) -> ContextCompaction:
    """Resolve a compaction's references; a helper call must belong to its invocation."""

    def resolve(ref: ModelCallRef, field: str) -> ModelCallRef:
        call = index.only(ref)
        if call is None:
            gaps.append(_no_single_call(ref, index, record.invocation_id, f"{field}:"))
            return ref
        if owners.get(call.model_call_id) not in (None, record.invocation_id):
            detail = f"{field}:{call.model_call_id}"
            gaps.append(Gap(code=CONFLICT, invocation_id=record.invocation_id, detail=detail))
            return ref
        return reference(call)

    before, after = record.before_model_call, record.after_model_call
    return record.model_copy(
        update={
            "model_calls": tuple(resolve(ref, "model_calls") for ref in record.model_calls),
            "before_model_call": before and resolve(before, "before_model_call"),
            "after_model_call": after and resolve(after, "after_model_call"),
        }
    )


def _is_of_a_join(gap: Gap) -> bool:
    if gap.code == UNOWNED:
        return gap.detail.startswith(_CAPTURE)
    return gap.code in (UNMATCHED, AMBIGUOUS, CONFLICT, NO_CALLS)


def _sorted(gaps: Iterable[Gap]) -> list[Gap]:
    unique = {(gap.code, gap.invocation_id or "", gap.detail): gap for gap in gaps}
    return [unique[key] for key in sorted(unique)]
