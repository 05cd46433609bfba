"""Which cell runs on which worker, whatever happens to the workers."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from sandbox.conformance.cluster.dispatch import ATTEMPTS, Attempt, Dispatch
from sandbox.conformance.plan import CellSpec


def cells(number: int) -> list[CellSpec]:
    return [CellSpec(harness="h", image=str(n), scenario="s") for n in range(number)]


def test_slots_are_filled_and_no_more() -> None:
    dispatch = Dispatch(cells(5))
    dispatch.join("a", 1)
    dispatch.join("b", 2)
    begun = dispatch.begin()
    assert sorted(one.worker for one in begun) == ["a", "b", "b"]
    assert dispatch.begin() == ()
    assert dispatch.answer(begun[0])
    assert [one.worker for one in dispatch.begin()] == [begun[0].worker]


def test_a_slow_worker_gets_few_cells() -> None:
    dispatch = Dispatch(cells(6))
    dispatch.join("slow", 1)
    dispatch.join("quick", 1)
    at_slow = 0
    while dispatch.open:
        at_slow += sum(one.worker == "slow" for one in dispatch.begin())
        quick = [one for one in dispatch.running if one.worker == "quick"]
        dispatch.answer((quick or list(dispatch.running))[0])
    assert at_slow == 1


def test_a_lost_workers_cell_is_tried_elsewhere_and_says_why() -> None:
    dispatch = Dispatch(cells(1))
    dispatch.join("a", 1)
    (first,) = dispatch.begin()
    dispatch.join("b", 1)
    assert dispatch.leave("a", "a is gone") == (first,)
    (second,) = dispatch.begin()
    assert (second.worker, second.number) == ("b", 2)
    assert [one.reason for one in second.earlier] == ["a is gone"]


def test_a_late_answer_counts_when_it_is_the_first_and_only_then() -> None:
    dispatch = Dispatch(cells(1))
    dispatch.join("a", 1)
    (late,) = dispatch.begin()
    dispatch.leave("a", "silent")
    assert dispatch.answer(late)
    dispatch.join("b", 1)
    assert dispatch.begin() == (), "it has its answer: nothing to try again"
    assert not dispatch.open

    dispatch = Dispatch(cells(1))
    dispatch.join("a", 1)
    (late,) = dispatch.begin()
    dispatch.leave("a", "silent")
    dispatch.join("b", 1)
    (second,) = dispatch.begin()
    assert dispatch.answer(second)
    assert not dispatch.answer(late)


def test_a_worker_that_comes_back_is_still_busy() -> None:
    dispatch = Dispatch(cells(2))
    dispatch.join("a", 1)
    (late,) = dispatch.begin()
    dispatch.leave("a", "silent")
    dispatch.join("a", 1)
    assert dispatch.begin() == ()
    dispatch.answer(late)
    assert len(dispatch.begin()) == 1


def test_a_cell_that_is_lost_with_every_worker_is_given_up() -> None:
    dispatch = Dispatch(cells(1))
    for number in range(ATTEMPTS):
        dispatch.join(f"w{number}", 1)
        (attempt,) = dispatch.begin()
        dispatch.leave(attempt.worker, f"w{number} died")
    dispatch.join("last", 1)
    assert dispatch.begin() == ()
    assert not dispatch.open
    assert [len(one.earlier) for one in dispatch.given_up] == [ATTEMPTS]
    assert dispatch.answer(attempt), "an answer is better than none, however late"
    assert dispatch.given_up == ()


def test_a_worker_that_fails_time_after_time_is_left_out() -> None:
    dispatch = Dispatch(cells(9))
    dispatch.join("full disk", 1)
    assert not dispatch.fail(dispatch.begin()[0], "no space")
    assert dispatch.fail(dispatch.begin()[0], "no space")
    assert dispatch.begin() == ()


@given(st.integers(0, 6), st.integers(1, 4), st.randoms(use_true_random=False))
def test_every_cell_is_answered_once_or_given_up(number: int, slots: int, random: Random) -> None:
    dispatch, answered, out = Dispatch(cells(number)), list[str](), list[Attempt]()
    dispatch.join("w0", slots)
    for turn in range(1, 400):
        if not dispatch.open:
            break
        out += dispatch.begin()
        busy = Counter(one.worker for one in dispatch.running)
        assert max(busy.values(), default=0) <= slots
        match random.randrange(4):
            case 0 if out:
                attempt = out.pop(random.randrange(len(out)))
                if dispatch.answer(attempt):
                    answered.append(attempt.cell.cell_id)
            case 1 if out:
                dispatch.fail(out.pop(random.randrange(len(out))), "broke")
            case 2 if dispatch.workers:
                dispatch.leave(random.choice(sorted(dispatch.workers)), "gone")
            case _:
                dispatch.join(f"w{turn}", slots)
    assert not dispatch.open
    given_up = [one.cell.cell_id for one in dispatch.given_up]
    assert sorted(answered + given_up) == sorted(cell.cell_id for cell in cells(number))
