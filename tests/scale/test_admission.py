"""Admission by recorded processor time, on a whole recorded run."""

from __future__ import annotations

import pytest

from sandbox.evidence.costs import read_costs
from tests.scale.admission import RECORDED, TOOK_S, Simulated, rules, simulate


@pytest.fixture(scope="module")
def found() -> dict[str, Simulated]:
    costs = read_costs(RECORDED)
    return {rule.name: simulate(costs, rule, processors=2) for rule in rules(2)}


def test_the_rule_of_before_takes_what_the_run_took(found: dict[str, Simulated]) -> None:
    assert found["before"].makespan_s == pytest.approx(TOOK_S, rel=0.05)


def test_processors_are_idle_less_and_the_run_ends_earlier(found: dict[str, Simulated]) -> None:
    before, now = found["before"], found["now"]
    assert now.makespan_s < 0.85 * before.makespan_s
    assert now.begun_busy > 1.5 * before.begun_busy


@pytest.mark.parametrize("part", ["more jobs alone", "shares alone"])
def test_neither_half_of_the_rule_does_it(part: str, found: dict[str, Simulated]) -> None:
    assert found[part].makespan_s > 0.95 * found["before"].makespan_s
