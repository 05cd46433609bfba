"""Agents of other packages for ``sandbox serve``: found, made, or refused with a reason."""

from __future__ import annotations

import argparse
from importlib.metadata import EntryPoint

import pytest

from sandbox.agents.contract import Agent, CloseResponse, ContractError
from sandbox.agents.openapi import AgentCard
from sandbox.agents.registry import GROUP, registered_agent
from sandbox.commands import serve
from sandbox.errors import UsageError
from sandbox.harnesses.source import source_sha256
from tests.unit.session_fakes import FakeAgent

FAKE = "tests.unit.session_fakes:FakeAgent"


class Half(Agent[str]):
    def close_state(self, state: str) -> CloseResponse:
        raise AssertionError


def points(*values: str) -> list[EntryPoint]:
    return [EntryPoint(name="mine", value=value, group=GROUP) for value in values]


def test_a_registered_agent_is_made_and_described() -> None:
    found = registered_agent("mine", points(FAKE, FAKE))
    assert found is not None
    agent, card = found
    assert isinstance(agent, FakeAgent)
    said = source_sha256(agent)
    assert said is not None
    assert card == AgentCard(name="mine", interface="agent-session", adapter_sha256=said)
    assert registered_agent("other", points(FAKE)) is None


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([FAKE, "tests.unit.session_fakes:Held"], "several times"),
        (["tests.unit.nowhere:Agent"], "ModuleNotFoundError"),
        (["tests.unit.session_fakes:Held"], "TypeError"),
        (["builtins:dict"], "gives a dict"),
    ],
    ids=["twice", "missing", "breaks", "no-agent"],
)
def test_what_is_no_agent_is_refused(values: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        registered_agent("mine", points(*values))
    assert caught.value.cure


def test_half_an_interface_is_a_contract_error() -> None:
    with pytest.raises(ContractError, match="only one of the session hooks"):
        registered_agent("mine", points(f"{__name__}:Half"))


@pytest.mark.parametrize("words", [("--lease", "-1"), ("--port", "70000")])
def test_options_that_are_none_are_refused(words: tuple[str, str]) -> None:
    parser = argparse.ArgumentParser()
    serve.configure(parser)
    with pytest.raises(UsageError, match=words[0]):
        serve.run(parser.parse_args(["codex", *words]))
