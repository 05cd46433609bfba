"""What is asked about a container when the engine fails."""

from __future__ import annotations

from typing import Any

import docker.errors
import pytest
import requests

from sandbox.engine.pump import HELD_S, ON_ITS_WAY_S
from sandbox.engine.runner import Runner, silence_of
from sandbox.engine.tracker import ExecState, SandboxTrack
from sandbox.errors import ContainerGone, EngineFailure


def refusal(status: int) -> docker.errors.APIError:
    answer = requests.Response()
    answer.status_code = status
    kind = docker.errors.NotFound if status == 404 else docker.errors.APIError
    return kind("no", answer, "it does not exist in the database")


class Inspector:
    """Answers inspections with what it was given, one after another."""

    def __init__(self, *answers: dict[str, Any] | int) -> None:
        self.answers = list(answers)

    def inspect_container(self, container: str) -> dict[str, Any]:
        answer = self.answers.pop(0)
        if isinstance(answer, int):
            raise refusal(answer)
        return {"State": answer}


RUNS = {"Running": True, "Pid": 7}


def test_an_engine_that_fails_at_a_container_it_removes_is_asked_again() -> None:
    with pytest.raises(ContainerGone):
        Runner(Inspector(500, 404), "c", user="").expect_container()
    assert Runner(Inspector(500, RUNS), "c", user="").expect_container() == 7


def test_an_engine_that_fails_twice_has_failed() -> None:
    asked = Inspector(500, 500, RUNS)
    with pytest.raises(EngineFailure, match="500") as caught:
        Runner(asked, "c", user="").expect_container()
    assert not isinstance(caught.value, ContainerGone)
    assert asked.answers == [RUNS]


def test_a_container_that_is_not_there_is_gone_at_the_first_word() -> None:
    asked = Inspector(404, RUNS)
    with pytest.raises(ContainerGone):
        Runner(asked, "c", user="").expect_container()
    assert asked.answers == [RUNS]


ENDED = {"Running": False, "ExitCode": 137, "FinishedAt": "now"}


def test_a_container_whose_init_ends_is_gone_however_late_the_engine_hears_of_it() -> None:
    asked = Inspector(*[RUNS] * 5, ENDED)
    with pytest.raises(ContainerGone):
        Runner(asked, "c", user="", ending=lambda pid: pid == 7).expect_container_stays()
    assert asked.answers == []


def test_a_container_whose_init_lives_stays() -> None:
    asked = Inspector(*[RUNS] * 3)
    Runner(asked, "c", user="", ending=lambda pid: pid != 7).expect_container_stays()
    assert asked.answers == []


class Followed(SandboxTrack):
    """A track that knows what runs of its command."""

    def __init__(self, *, lives: bool) -> None:
        self.lives = lives

    def may_live(self) -> bool:
        return self.lives


def test_output_that_nothing_holds_open_may_take_its_time() -> None:
    runs = ExecState(running=True, exit_code=None, pid=7)
    ended = ExecState(running=False, exit_code=0, pid=7)
    assert silence_of(lambda: runs, Followed(lives=False)) is None
    assert silence_of(lambda: ended, Followed(lives=True)) == HELD_S
    assert silence_of(lambda: ended, SandboxTrack()) == HELD_S  # nobody can tell
    assert silence_of(lambda: ended, Followed(lives=False)) == ON_ITS_WAY_S > 2  # Docker's own
