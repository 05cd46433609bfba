"""The join: exact identifiers only, every call owned once or in a gap, whatever the order."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.evidence.capture import MODEL_SERVER
from sandbox.evidence.exchanges import CapturedCall
from sandbox.evidence.join import (
    AMBIGUOUS,
    CONFLICT,
    NO_CALLS,
    UNMATCHED,
    UNOWNED,
    Join,
    invocations_of,
    join,
    unowned_calls,
)
from sandbox.evidence.observations import (
    AgentInvocation,
    ContextCompaction,
    Gap,
    InvocationStatus,
    ModelCallRef,
    ModelRef,
    Observations,
)

OTHER_SERVER = ModelRef(type="responses_api_models", name="another")


def call(
    name: str,
    *,
    response: str | None = None,
    session: str | None = None,
    at: float = 0.0,
    server: ModelRef = MODEL_SERVER,
) -> CapturedCall:
    return CapturedCall(
        model_call_id=name,
        model_ref=server,
        dialect="chat",
        started_at=at,
        completed_at=at + 1,
        request={"messages": []},
        response={},
        response_id=response,
        status_code=200,
        response_status=None,
        finish_reason="stop",
        error_category=None,
        tokens=None,
        client_session_id=session,
    )


def by_response(response: str, server: ModelRef | None = MODEL_SERVER) -> ModelCallRef:
    return ModelCallRef(model_ref=server, response_id=response)


def invocation(name: str, *refs: ModelCallRef, parent: str | None = None) -> AgentInvocation:
    return AgentInvocation(
        invocation_id=name,
        parent_invocation_id=parent,
        status=InvocationStatus.COMPLETED,
        model_calls=refs,
    )


def bundle(
    *records: AgentInvocation | ContextCompaction, gaps: tuple[Gap, ...] = ()
) -> Observations:
    return Observations(source="test", records=records, gaps=gaps)


def codes(joined: Join) -> list[tuple[str, str | None, str]]:
    return [(gap.code, gap.invocation_id, gap.detail) for gap in joined.observations.gaps]


def test_a_reference_by_call_id_owns_the_call() -> None:
    joined = join(bundle(invocation("root", ModelCallRef(model_call_id="c1"))), [call("c1")])
    assert joined.owners == {"c1": "root"}
    assert codes(joined) == []


def test_a_reference_by_response_id_is_completed_with_the_call_id() -> None:
    joined = join(bundle(invocation("root", by_response("r1"))), [call("c1", response="r1")])
    assert invocations_of(joined.observations)[0].model_calls == (
        ModelCallRef(model_call_id="c1", model_ref=MODEL_SERVER, response_id="r1"),
    )


def test_a_response_id_of_another_server_is_no_match() -> None:
    joined = join(
        bundle(invocation("root", by_response("r1", OTHER_SERVER))), [call("c1", response="r1")]
    )
    assert joined.owners == {}
    assert codes(joined) == [
        (UNOWNED, None, "capture:c1"),
        (UNMATCHED, "root", "r1"),
    ]


def test_a_call_id_with_a_contradicting_response_id_is_no_match() -> None:
    ref = ModelCallRef(model_call_id="c1", model_ref=MODEL_SERVER, response_id="r2")
    joined = join(bundle(invocation("root", ref)), [call("c1", response="r1")])
    assert joined.owners == {}


def test_equal_response_ids_are_ambiguous() -> None:
    calls = [call("c1", response="r1"), call("c2", response="r1")]
    joined = join(bundle(invocation("root", by_response("r1"))), calls)
    assert joined.owners == {}
    assert (AMBIGUOUS, "root", "r1") in codes(joined)
    assert unowned_calls(joined.observations.gaps) == {"c1", "c2"}


def test_the_session_header_attributes_failed_attempts() -> None:
    calls = [call("c1", session="root"), call("c2", response="r1", session="root", at=1)]
    joined = join(bundle(invocation("root", by_response("r1"))), calls)
    assert joined.owners == {"c1": "root", "c2": "root"}
    refs = invocations_of(joined.observations)[0].model_calls
    assert [ref.model_call_id for ref in refs] == ["c1", "c2"]


def test_a_session_header_of_nobody_is_no_evidence() -> None:
    joined = join(bundle(invocation("root")), [call("c1", session="someone")])
    assert codes(joined) == [(UNOWNED, None, "capture:c1")]


def test_two_claims_leave_the_call_to_nobody() -> None:
    ref = ModelCallRef(model_call_id="c1")
    joined = join(bundle(invocation("a", ref), invocation("b", ref)), [call("c1")])
    assert joined.owners == {}
    assert codes(joined) == [
        (UNOWNED, None, "capture:c1"),
        (CONFLICT, "a", "c1"),
        (CONFLICT, "b", "c1"),
    ]


def test_a_repeated_claim_is_a_conflict_and_the_owner_stays() -> None:
    refs = (ModelCallRef(model_call_id="c1"), by_response("r1"))
    joined = join(bundle(invocation("root", *refs)), [call("c1", response="r1")])
    assert joined.owners == {"c1": "root"}
    assert codes(joined) == [(CONFLICT, "root", "c1")]


def test_a_stranger_session_header_is_a_conflict() -> None:
    joined = join(
        bundle(invocation("a", by_response("r1")), invocation("b")),
        [call("c1", response="r1", session="b")],
    )
    assert joined.owners == {"c1": "a"}
    assert codes(joined) == [(CONFLICT, "a", "c1")]


def test_a_subagent_may_use_the_session_header_of_its_parent() -> None:
    joined = join(
        bundle(invocation("root"), invocation("child", by_response("r1"), parent="root")),
        [call("c1", response="r1", session="root")],
    )
    assert joined.owners == {"c1": "child"}
    assert codes(joined) == []


def test_a_parent_cycle_ends() -> None:
    joined = join(
        bundle(
            invocation("a", by_response("r1"), parent="b"),
            invocation("b", parent="a"),
            invocation("c"),
        ),
        [call("c1", response="r1", session="c")],
    )
    assert (CONFLICT, "a", "c1") in codes(joined)


def test_no_calls_at_all_is_a_gap() -> None:
    assert codes(join(bundle(invocation("root")), [])) == [(NO_CALLS, None, "")]


def test_gaps_of_the_adapter_stay_and_those_of_an_older_join_go() -> None:
    adapter = Gap(code=UNOWNED, invocation_id="root", detail="no ids in the database")
    older = Gap(code=UNMATCHED, invocation_id="root", detail="old")
    joined = join(bundle(invocation("root"), gaps=(adapter, older)), [call("c1", session="root")])
    assert joined.observations.gaps == (adapter,)


@pytest.mark.parametrize("field", ["before_model_call", "after_model_call", "model_calls"])
def test_a_compaction_of_another_invocation_is_a_conflict(field: str) -> None:
    ref = by_response("r1")
    compaction = ContextCompaction(
        invocation_id="b", **{field: (ref,) if field == "model_calls" else ref}
    )
    joined = join(
        bundle(invocation("a", ref), invocation("b"), compaction), [call("c1", response="r1")]
    )
    assert codes(joined) == [(CONFLICT, "b", f"{field}:c1")]


NAMES = st.sampled_from(["a", "b", "c"])
IDS = st.sampled_from([None, "x", "y", "z"])
REFS = st.one_of(
    st.builds(lambda n: ModelCallRef(model_call_id=f"c{n}"), st.integers(0, 6)),
    st.builds(by_response, st.sampled_from("xyz"), st.sampled_from([MODEL_SERVER, None])),
    st.just(ModelCallRef()),
)
CALLS = st.lists(
    st.builds(
        lambda response, session, at: (response, session, at),
        IDS,
        st.sampled_from([None, "a", "b", "nobody"]),
        st.integers(0, 2),
    ),
    max_size=6,
).map(
    lambda rows: [
        call(f"c{n}", response=response, session=session, at=float(at))
        for n, (response, session, at) in enumerate(rows)
    ]
)
INVOCATIONS = st.dictionaries(
    NAMES, st.tuples(st.lists(REFS, max_size=4), st.sampled_from([None, "a", "b"])), max_size=3
).map(
    lambda found: [
        invocation(name, *refs, parent=parent if parent != name else None)
        for name, (refs, parent) in found.items()
    ]
)


@given(invocations=INVOCATIONS, calls=CALLS)
def test_each_call_is_owned_exactly_once_or_in_a_gap(
    invocations: list[AgentInvocation], calls: list[CapturedCall]
) -> None:
    joined = join(bundle(*invocations), calls)
    in_gap = unowned_calls(joined.observations.gaps)
    assert set(joined.owners) | in_gap == {c.model_call_id for c in calls}
    assert not set(joined.owners) & in_gap
    resolved = Counter(
        (found.invocation_id, ref.model_call_id)
        for found in invocations_of(joined.observations)
        for ref in found.model_calls
        if joined.owners.get(ref.model_call_id or "") == found.invocation_id
    )
    for call_id, owner in joined.owners.items():
        assert resolved[(owner, call_id)] >= 1


@given(invocations=INVOCATIONS, calls=CALLS, seed=st.integers(0, 99))
def test_order_does_not_matter(
    invocations: list[AgentInvocation], calls: list[CapturedCall], seed: int
) -> None:
    joined = join(bundle(*invocations), calls)
    shuffle = random.Random(seed)
    others, again = list(invocations), list(calls)
    shuffle.shuffle(others)
    shuffle.shuffle(again)
    shuffled = join(bundle(*others), again)
    assert shuffled.owners == joined.owners
    assert shuffled.observations.gaps == joined.observations.gaps
    key = {i.invocation_id: i for i in invocations_of(joined.observations)}
    assert {i.invocation_id: i for i in invocations_of(shuffled.observations)} == key


@given(invocations=INVOCATIONS, calls=CALLS)
def test_joining_again_changes_nothing(
    invocations: list[AgentInvocation], calls: list[CapturedCall]
) -> None:
    once = join(bundle(*invocations), calls)
    twice = join(once.observations, calls)
    assert twice == once
