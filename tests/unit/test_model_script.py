"""Scripts: ids, expectations, the step that a history leads to, and which asks a fault hits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sandbox.model.faults import (
    CutFault,
    EmptyFault,
    MalformedFault,
    StallFault,
    StatusFault,
    fault_name,
)
from sandbox.model.script import (
    HoldStep,
    ParallelToolStep,
    RawToolStep,
    Script,
    TextStep,
    ToolStep,
)


def tool(number: int, exit_code: int | None = 0) -> ToolStep:
    return ToolStep(
        command=f"echo {number} > m{number}; echo out {number}",
        marker=f"m{number}",
        marker_text=f"{number}\n",
        output=f"out {number}\n",
        exit_code=exit_code,
    )


TWO_TOOLS = Script(steps=(tool(1), tool(2), TextStep(text="done")))


def ids(script: Script) -> list[str]:
    return [call.call_id for call in script.all_calls()]


def test_call_ids_are_letters_and_digits_and_distinct() -> None:
    parallel = ParallelToolStep(calls=(tool(1), tool(1), RawToolStep(tool_name="x", arguments="")))
    script = Script(steps=(parallel, tool(1)))

    assert all(call_id.isalnum() and call_id.isascii() for call_id in ids(script))
    assert len(set(ids(script))) == 4


def test_call_ids_are_the_same_for_an_equal_script_and_differ_with_the_seed() -> None:
    again = Script(steps=(tool(1), tool(2), TextStep(text="done")))
    seeded = again.model_copy(update={"seed": "r2"})

    assert ids(again) == ids(TWO_TOOLS)
    assert not set(ids(seeded)) & set(ids(TWO_TOOLS))


def test_expectations_name_step_command_and_result_and_what_must_not_run() -> None:
    script = Script(steps=(RawToolStep(tool_name="nope", arguments="{"), tool(1, exit_code=7)))

    refused, expected = script.expectations()

    assert (refused.runs, refused.tool_call_id) == (False, ids(script)[0])

    assert (expected.step, expected.exit_code, expected.output) == (1, 7, "out 1\n")
    assert expected.tool_call_id == ids(script)[1]
    assert (expected.marker, expected.marker_text) == ("m1", "1\n")


def test_each_history_leads_to_the_next_step() -> None:
    first, second = ids(TWO_TOOLS)

    assert TWO_TOOLS.due([]).step == 0
    assert TWO_TOOLS.due([first]).step == 1
    assert TWO_TOOLS.due([first, second]).step == 2
    assert TWO_TOOLS.due([first, second, "somebodyElses"]).lost == ()


def test_a_script_that_ends_with_a_tool_is_over_after_it() -> None:
    script = Script(steps=(tool(1),))

    assert script.due(ids(script)).step == 1


def test_a_call_without_its_result_is_lost() -> None:
    first, second = ids(TWO_TOOLS)

    assert TWO_TOOLS.due([], requested=[first]).lost == (first,)
    assert TWO_TOOLS.due([first], requested=[first, second]).lost == (second,)


def test_a_later_result_without_an_earlier_one_is_lost() -> None:
    first, second = ids(TWO_TOOLS)

    assert TWO_TOOLS.due([second]).lost == (first,)


def test_one_of_two_parallel_results_is_lost() -> None:
    script = Script(steps=(ParallelToolStep(calls=(tool(1), tool(2))), TextStep(text="done")))
    first, second = ids(script)

    assert script.due([first], requested=[first, second]).lost == (second,)
    assert script.due([second, first]).step == 1


@given(st.permutations(range(4)), st.integers(0, 4))
def test_the_step_depends_on_the_set_of_results_only(order: list[int], done: int) -> None:
    script = Script(steps=(*(tool(number) for number in range(4)), HoldStep()))
    results = [ids(script)[place] for place in order if place < done]

    assert script.due(results).step == done
    assert script.due(results).lost == ()


@pytest.mark.parametrize("last", [TextStep(text="x"), HoldStep()], ids=["text", "hold"])
def test_text_and_hold_must_come_last(last: TextStep | HoldStep) -> None:
    with pytest.raises(ValidationError, match="must be the last step"):
        Script(steps=(last, tool(1)))


def test_an_empty_script_is_refused() -> None:
    with pytest.raises(ValidationError):
        Script(steps=())


def test_a_script_survives_json() -> None:
    script = Script(
        steps=(ParallelToolStep(calls=(tool(1, None),)), HoldStep()),
        faults=(StatusFault(at=(1, 2), status=429, headers={"retry-after": "1"}),),
        usage=False,
    )

    assert Script.model_validate_json(script.model_dump_json()) == script


def test_numbered_faults_hit_their_asks_and_no_helper_call() -> None:
    fault = EmptyFault(at=(1, 3))

    assert [fault.hits(ask) for ask in (1, 2, 3, None)] == [True, False, True, False]


def test_every_fault_hits_all_asks_from_since_on_and_helper_calls() -> None:
    fault = EmptyFault(at="every", since=2)

    assert [fault.hits(ask) for ask in (1, 2, 9, None)] == [False, True, True, True]


def test_the_first_fault_that_hits_wins() -> None:
    first, rest = StatusFault(at=(1,), status=500), StatusFault(at="every", status=400)
    script = Script(steps=(HoldStep(),), faults=(first, rest))

    assert (script.fault(1), script.fault(2)) == (first, rest)


def test_no_fault_hits_without_faults() -> None:
    assert TWO_TOOLS.fault(1) is None


def test_fault_names() -> None:
    faults = (
        StatusFault(at="every", status=503),
        StallFault(at="every", where="stream"),
        CutFault(at="every", where="headers"),
        MalformedFault(at="every"),
    )

    assert [fault_name(fault) for fault in faults] == [
        "status_503",
        "stall_stream",
        "cut_headers",
        "malformed",
    ]


@pytest.mark.parametrize("status", [200, 399, 600])
def test_a_status_fault_is_an_error_status(status: int) -> None:
    with pytest.raises(ValidationError):
        StatusFault(at="every", status=status)
