"""Shards: each cell in exactly one, the same one each time, and none much longer than another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.conformance.estimate import Estimates
from sandbox.conformance.plan import CellSpec
from sandbox.conformance.scenarios import SCENARIOS
from sandbox.conformance.shard import Shard, parse_shard, sharded
from sandbox.errors import NothingSelected, UsageError
from sandbox.evidence.costs import CellCost

NAMES = sorted(SCENARIOS)
PLANS = st.lists(
    st.builds(
        CellSpec,
        harness=st.sampled_from("abcdefg"),
        image=st.sampled_from("uvw"),
        scenario=st.sampled_from(NAMES),
    ),
    min_size=12,
    max_size=18,
    unique_by=lambda cell: cell.cell_id,
)


def parts(plan: list[CellSpec], count: int, seconds: dict[str, float]) -> list[list[str]]:
    known = Estimates({name: CellCost(seconds=s) for name, s in seconds.items()}, {})
    return [
        [c.cell_id for c in sharded(plan, Shard(number=k, count=count), seconds=known.seconds)]
        for k in range(1, count + 1)
    ]


@given(plan=PLANS, count=st.integers(1, 6), data=st.data())
def test_each_cell_is_in_one_shard_in_the_plan_s_order(
    plan: list[CellSpec], count: int, data: st.DataObject
) -> None:
    names = [cell.cell_id for cell in plan]
    known = data.draw(st.dictionaries(st.sampled_from(names), st.floats(0.1, 90), max_size=12))
    found = parts(plan, count, known)
    assert sorted(name for part in found for name in part) == sorted(names)
    for part in found:
        assert part == [name for name in names if name in set(part)]
    assert found == parts(plan, count, dict(reversed(known.items())))


@given(plan=PLANS, count=st.integers(2, 5), data=st.data())
def test_no_shard_is_longer_than_another_by_more_than_its_longest_cell(
    plan: list[CellSpec], count: int, data: st.DataObject
) -> None:
    seconds = {cell.cell_id: data.draw(st.floats(0.1, 90)) for cell in plan}
    loads = [sum(seconds[name] for name in part) for part in parts(plan, count, seconds)]
    assert max(loads) - min(loads) <= max(seconds.values()) + 1e-6


def test_more_shards_than_cells() -> None:
    plan = [CellSpec(harness="a", image="u", scenario=NAMES[0])]
    assert sharded(plan, Shard(number=1, count=2), seconds=lambda _: 1.0) == tuple(plan)
    with pytest.raises(NothingSelected, match="shard 2/2 is empty"):
        sharded(plan, Shard(number=2, count=2), seconds=lambda _: 1.0)


@pytest.mark.parametrize(
    "text", ["0/3", "4/3", "1", "a/b", "1/0", "-1/3", "1/3/5", " 1/3", "\u0661/\u0663"]
)
def test_what_is_no_shard(text: str) -> None:
    with pytest.raises(UsageError, match="no shard"):
        parse_shard(text)


def test_a_shard_reads_as_it_was_given() -> None:
    assert str(parse_shard("2/3")) == "2/3"
