"""The plan: every selected cell once, in order; unknown names are told apart from empty globs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.conformance.plan import Axes, Selection, make_plan
from sandbox.errors import NothingSelected, UsageError

AXES = Axes(
    harnesses=("codex", "opencode"),
    images=("debian-12", "alpine-3.23"),
    scenarios=("tool_success", "model_error", "retry_500"),
)


def ids(**globs: tuple[str, ...]) -> list[str]:
    return [cell.cell_id for cell in make_plan(AXES, Selection(**globs))]


def test_everything_is_selected_without_filters() -> None:
    assert len(ids()) == 12
    assert ids()[0] == "codex/debian-12/tool_success"


def test_globs_narrow_each_axis() -> None:
    assert ids(harnesses=("open*",), images=("alpine-*",), scenarios=("retry_500",)) == [
        "opencode/alpine-3.23/retry_500"
    ]


def test_cells_and_skip_match_whole_ids() -> None:
    assert ids(cells=("codex/*/model_error",), skip=("*/debian-12/*",)) == [
        "codex/alpine-3.23/model_error"
    ]


def test_an_unknown_name_is_a_usage_error_that_names_a_near_one() -> None:
    with pytest.raises(UsageError, match="no harness 'codx'") as caught:
        ids(harnesses=("codx",))
    assert "did you mean 'codex'" in str(caught.value.cure)


def test_globs_that_leave_nothing_say_so() -> None:
    with pytest.raises(NothingSelected):
        ids(harnesses=("zzz*",))


@given(
    harnesses=st.lists(st.sampled_from([*AXES.harnesses, "*", "c*"]), max_size=3),
    skip=st.lists(st.sampled_from(["*/debian-12/*", "codex/*", "nothing*"]), max_size=2),
)
def test_a_plan_is_an_ordered_subset_without_repeats(harnesses: list[str], skip: list[str]) -> None:
    selection = Selection(harnesses=tuple(harnesses), skip=tuple(skip))
    everything = [cell.cell_id for cell in make_plan(AXES, Selection())]
    try:
        chosen = [cell.cell_id for cell in make_plan(AXES, selection)]
    except NothingSelected:
        return
    assert chosen == [cell_id for cell_id in everything if cell_id in set(chosen)]
