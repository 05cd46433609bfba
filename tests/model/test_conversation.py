"""Whole conversations over loopback, in every dialect, streamed and not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from sandbox.evidence.tally import digest_of
from sandbox.model.faults import StatusFault
from sandbox.model.script import HoldStep, ParallelToolStep, Script, TextStep, ToolStep
from tests.model.agent import DIALECTS, TOOL_NAMES, Agent, Name
from tests.model.conftest import Serve, Served
from tests.model.steps import tool

DONE = TextStep(text="The task is done: äöü 漢字 👍.", reasoning="I thought about it.")
SCRIPT = Script(steps=(tool(1), tool(2, exit_code=7), DONE))

dialects = pytest.mark.parametrize("dialect", list(DIALECTS))
streams = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


def agent(served: Served, dialect: Name = "chat", **options: Any) -> Agent:
    return Agent(client=served.client, workdir=served.workdir, dialect=dialect, **options)


def tally_is_right(served: Served) -> bool:
    return Counter(served.server.tally()) == Counter(map(digest_of, served.server.exchanges()))


@dialects
@streams
def test_two_tools_then_text(serve: Serve, dialect: Name, stream: bool) -> None:
    with serve(SCRIPT) as served:
        said = agent(served, dialect, stream=stream).run()

    server = served.server
    exchanges = server.exchanges()
    expected = [call.call_id for call in SCRIPT.all_calls()]
    assert said == DONE.text
    assert [exchange.status_code for exchange in exchanges] == [200, 200, 200]
    assert [exchange.tool_call_ids for exchange in exchanges] == [
        (expected[0],),
        (expected[1],),
        (),
    ]
    assert {exchange.dialect for exchange in exchanges} == {dialect}
    assert {exchange.streamed for exchange in exchanges} == {stream}
    assert {exchange.rollout_id for exchange in exchanges} == {"r1"}
    assert not any(exchange.disconnected or exchange.fault for exchange in exchanges)
    assert server.tool_requests() == dict.fromkeys(expected, TOOL_NAMES[dialect])
    assert server.report().model_dump() == {"steps": 3, "steps_done": 3, "refusal": None}
    assert tally_is_right(served)


@dialects
@streams
def test_ids_are_unique_letters_and_digits(serve: Serve, dialect: Name, stream: bool) -> None:
    with serve(SCRIPT) as served:
        agent(served, dialect, stream=stream).run()

    exchanges = served.server.exchanges()
    for ids in (
        [exchange.exchange_id for exchange in exchanges],
        [exchange.response_id or "" for exchange in exchanges],
    ):
        assert len(set(ids)) == 3
        assert all(name.isalnum() and name.isascii() for name in ids)


@dialects
def test_captured_replies_are_the_same_streamed_or_not(serve: Serve, dialect: Name) -> None:
    captured = []
    for stream in (True, False):
        with serve(Script(steps=(DONE,), usage=False)) as served:
            agent(served, dialect, stream=stream).run()
        response: Any = served.server.exchanges()[0].response
        captured.append(
            {key: value for key, value in response.items() if not key.startswith("created")}
        )

    assert captured[0] == captured[1]


@dialects
def test_times_and_usage_are_captured(serve: Serve, dialect: Name) -> None:
    with serve(Script(steps=(DONE,))) as served:
        agent(served, dialect).run()

    (exchange,) = served.server.exchanges()
    assert exchange.completed_at >= exchange.started_at > 1_600_000_000
    assert exchange.usage is not None
    assert exchange.usage.reasoning_tokens is not None
    assert exchange.usage.reasoning_tokens > 0
    total = (exchange.usage.input_tokens or 0) + (exchange.usage.output_tokens or 0)
    assert exchange.usage.total_tokens == (None if dialect == "messages" else total)


@dialects
def test_omitted_usage_stays_absent(serve: Serve, dialect: Name) -> None:
    with serve(Script(steps=(DONE,), usage=False)) as served:
        agent(served, dialect).run()

    assert served.server.exchanges()[0].usage is None


def test_parallel_calls(serve: Serve) -> None:
    script = Script(steps=(ParallelToolStep(calls=(tool(1), tool(2))), DONE))
    with serve(script) as served:
        agent(served).run()

    assert [len(exchange.tool_call_ids) for exchange in served.server.exchanges()] == [2, 0]
    assert served.server.report().steps_done == 2


@dialects
def test_an_agent_that_only_says_it_ran_is_refused(serve: Serve, dialect: Name) -> None:
    with serve(SCRIPT) as served:
        liar = agent(served, dialect, runs_tools=False)
        body = liar.read(liar.ask())
        ((call_id, _),) = liar._said(body)[1]
        liar._note_result(call_id, "I ran it")
        refused = liar.ask()

    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["message"].startswith("script_refused: ")
    assert "no marker m1" in error["message"]
    assert error.get("code") == (None if dialect == "messages" else "script_refused")
    assert "no marker m1" in (served.server.report().refusal or "")
    assert served.server.report().steps_done == 0
    assert served.server.exchanges()[-1].response == refused.json()


def test_an_agent_that_drops_the_result_is_refused(serve: Serve) -> None:
    with serve(SCRIPT) as served:
        forgetful = agent(served)
        forgetful._said(forgetful.read(forgetful.ask()))
        refused = forgetful.ask()

    assert refused.status_code == 400
    assert "no result for tool call" in refused.json()["error"]["message"]


def test_an_agent_without_a_shell_tool_is_refused(serve: Serve) -> None:
    tools = [{"type": "function", "function": {"name": "read", "parameters": {}}}]
    with serve(SCRIPT) as served:
        refused = agent(served).ask(tools=tools)

    assert refused.status_code == 400
    assert "advertised tools: read" in refused.json()["error"]["message"]


@dialects
def test_a_retry_gets_the_same_step(serve: Serve, dialect: Name) -> None:
    with serve(SCRIPT) as served:
        twice = agent(served, dialect)
        twice.ask()
        twice.ask()
        twice.run()

    ids = [exchange.tool_call_ids for exchange in served.server.exchanges()]
    assert ids[0] == ids[1] == ids[2]
    assert len(ids) == 5


def test_a_retry_after_a_fault_gets_the_step_that_was_due(serve: Serve) -> None:
    script = SCRIPT.model_copy(update={"faults": (StatusFault(at=(2,), status=500),)})
    with serve(script) as served:
        worker = agent(served)
        body = worker.read(worker.ask())
        ((call_id, command),) = worker._said(body)[1]
        worker._note_result(call_id, worker._run_tool(command))
        failed = worker.ask()
        worker.run()

    assert failed.status_code == 500
    second = script.calls(1)[0].call_id
    assert [exchange.tool_call_ids for exchange in served.server.exchanges()][1:3] == [
        (),
        (second,),
    ]


def test_a_helper_call_gets_a_text_and_the_script_does_not_move(serve: Serve) -> None:
    with serve(SCRIPT) as served:
        title = agent(served, stream=False)
        text = title.ask(tools=[]).json()["choices"][0]["message"]["content"]
        agent(served).run()

    assert text == SCRIPT.helper_text
    assert served.server.report().steps_done == 3


def test_two_conversations_do_not_disturb_each_other(serve: Serve) -> None:
    with serve(SCRIPT) as served:
        one, two = agent(served, "chat"), agent(served, "responses")
        two.ask()
        one.run()
        said = two.run()

    assert said == DONE.text
    assert len(served.server.exchanges()) == 7


def test_a_held_step_is_never_answered(serve: Serve) -> None:
    endless = ToolStep(
        command="printf x > m1", marker="m1", marker_text="x", output="", exit_code=None
    )
    with serve(Script(steps=(endless, HoldStep()))) as served:
        worker = agent(served)
        body = worker.read(worker.ask())
        ((call_id, command),) = worker._said(body)[1]
        worker._run_tool(command)
        worker._note_result(call_id, "still running")
        served.client.timeout = 0.3
        with pytest.raises(Exception, match="timed out"):
            worker.ask()

    held = served.server.exchanges()[-1]
    assert (held.status_code, held.fault, held.disconnected) == (0, "hold", True)
    assert served.server.report().steps_done == 2
    assert tally_is_right(served)
