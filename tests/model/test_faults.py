"""Faults on the wire: what a client sees, and what is captured of it."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import httpx
import pytest

from sandbox.evidence.tally import digest_of
from sandbox.model.faults import (
    CutFault,
    EmptyFault,
    Fault,
    LengthFault,
    MalformedFault,
    StallFault,
    StatusFault,
    StreamErrorFault,
)
from sandbox.model.script import Script, TextStep
from tests.model.agent import DIALECTS, Agent, Name
from tests.model.conftest import Serve, Served
from tests.model.steps import tool

dialects = pytest.mark.parametrize("dialect", list(DIALECTS))
streams = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
TEXT = TextStep(text="A final text that is long enough to be cut somewhere in its middle.")


def script(*faults: Fault) -> Script:
    return Script(steps=(TEXT,), faults=faults)


def ask(served: Served, dialect: Name, *, stream: bool = True, **changes: Any) -> httpx.Response:
    agent = Agent(client=served.client, workdir=served.workdir, dialect=dialect, stream=stream)
    return agent.ask(**changes)


def tally_is_right(served: Served) -> bool:
    return Counter(served.server.tally()) == Counter(map(digest_of, served.server.exchanges()))


@dialects
@pytest.mark.parametrize("status", [400, 401, 429, 500, 503, 504])
def test_a_status_fault(serve: Serve, dialect: Name, status: int) -> None:
    fault = StatusFault(at=(1,), status=status, message="no", headers={"retry-after": "3"})
    with serve(script(fault)) as served:
        failed = ask(served, dialect)
        good = ask(served, dialect)

    assert (failed.status_code, good.status_code) == (status, 200)
    assert failed.headers["retry-after"] == "3"
    assert failed.json()["error"]["message"] == "no"
    first, second = served.server.exchanges()
    assert (first.fault, second.fault) == (f"status_{status}", None)
    assert first.response == failed.json()
    assert (first.response_id, first.usage, first.finish_reason) == (None, None, None)
    assert served.server.report().steps_done == 1
    assert tally_is_right(served)


def test_an_endless_fault_never_lets_the_script_begin(serve: Serve) -> None:
    with serve(script(StatusFault(at="every", status=500))) as served:
        statuses = [ask(served, "chat").status_code for _ in range(3)]

    assert statuses == [500, 500, 500]
    assert served.server.report().steps_done == 0


@dialects
@streams
def test_a_stall_before_the_headers(serve: Serve, dialect: Name, stream: bool) -> None:
    with serve(script(StallFault(at=(1,)))) as served:
        served.client.timeout = 0.3
        with pytest.raises(httpx.ReadTimeout):
            ask(served, dialect, stream=stream)

    (exchange,) = served.server.exchanges()
    assert (exchange.status_code, exchange.disconnected) == (0, True)
    assert (exchange.fault, exchange.response_id) == ("stall_headers", None)
    assert served.server.report().steps_done == 0
    assert tally_is_right(served)


@dialects
@streams
def test_a_stall_in_the_stream(serve: Serve, dialect: Name, stream: bool) -> None:
    with serve(script(StallFault(at=(1,), where="stream"))) as served:
        served.client.timeout = 0.3
        with pytest.raises(httpx.ReadTimeout):
            ask(served, dialect, stream=stream)

    (exchange,) = served.server.exchanges()
    assert (exchange.status_code, exchange.disconnected) == (200, True)
    assert exchange.fault == "stall_stream"
    assert exchange.finish_reason is None
    assert bool(exchange.response)
    assert tally_is_right(served)


@dialects
def test_a_stall_that_ends_only_takes_time(serve: Serve, dialect: Name) -> None:
    with serve(script(StallFault(at=(1,), where="stream", seconds=0.2))) as served:
        began = time.monotonic()
        response = ask(served, dialect)
        took = time.monotonic() - began

    assert response.status_code == 200
    assert took >= 0.2
    (exchange,) = served.server.exchanges()
    assert not exchange.disconnected
    assert exchange.finish_reason is not None
    assert served.server.report().steps_done == 1


@dialects
@streams
def test_a_cut_stream(serve: Serve, dialect: Name, stream: bool) -> None:
    with serve(script(CutFault(at=(1,)))) as served:
        with pytest.raises(httpx.RemoteProtocolError):
            ask(served, dialect, stream=stream)
        good = ask(served, dialect, stream=stream)

    assert good.status_code == 200
    cut = served.server.exchanges()[0]
    assert (cut.status_code, cut.fault, cut.disconnected) == (200, "cut_stream", False)
    assert cut.finish_reason is None
    assert tally_is_right(served)


@dialects
def test_a_clean_cut_looks_like_an_end(serve: Serve, dialect: Name) -> None:
    with serve(script(CutFault(at=(1,), clean=True))) as served:
        response = ask(served, dialect)

    assert response.status_code == 200
    assert "[DONE]" not in response.text
    assert "response.completed" not in response.text
    assert "message_stop" not in response.text
    assert served.server.exchanges()[0].finish_reason is None
    assert served.server.report().steps_done == 0


@streams
def test_a_cut_before_the_headers(serve: Serve, stream: bool) -> None:
    with (
        serve(script(CutFault(at=(1,), where="headers"))) as served,
        pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)),
    ):
        ask(served, "chat", stream=stream)

    (exchange,) = served.server.exchanges()
    assert (exchange.status_code, exchange.fault) == (0, "cut_headers")
    assert not exchange.disconnected
    assert tally_is_right(served)


@dialects
def test_a_malformed_stream(serve: Serve, dialect: Name) -> None:
    with serve(script(MalformedFault(at=(1,)))) as served:
        response = ask(served, dialect)

    assert response.text.endswith('data: {"malformed": \n\n')
    *_, name = response.text.removesuffix("\n\n").split("\n\n")
    assert name.startswith("event: content_block_delta\n") == (dialect == "messages")
    assert served.server.exchanges()[0].finish_reason is None


@dialects
def test_a_malformed_body(serve: Serve, dialect: Name) -> None:
    with serve(script(MalformedFault(at=(1,)))) as served:
        response = ask(served, dialect, stream=False)

    with pytest.raises(json.JSONDecodeError):
        response.json()
    assert served.server.exchanges()[0].response == '{"malformed": '


@dialects
def test_a_failed_stream(serve: Serve, dialect: Name) -> None:
    with serve(script(StreamErrorFault(at=(1,), message="broke down"))) as served:
        response = ask(served, dialect)

    captured: Any = served.server.exchanges()[0].response
    assert response.status_code == 200
    assert captured["error"]["message"] == "broke down"


@dialects
def test_a_length_stop(serve: Serve, dialect: Name) -> None:
    with serve(script(LengthFault(at=(1,)))) as served:
        ask(served, dialect)

    (exchange,) = served.server.exchanges()
    reasons = {"chat": "length", "responses": "max_output_tokens", "messages": "max_tokens"}
    assert exchange.finish_reason == reasons[dialect]
    assert served.server.report().steps_done == 0


@dialects
def test_a_length_stop_in_a_call_leaves_the_step_due(serve: Serve, dialect: Name) -> None:
    short = Script(steps=(tool(1), TEXT), faults=(LengthFault(at=(1,)),))
    with serve(short) as served:
        agent = Agent(client=served.client, workdir=served.workdir, dialect=dialect)
        cut = agent.read(agent.ask())
        assert json.dumps(cut).count("short") == 1
        agent.run()

    assert served.server.report().steps_done == 2


@dialects
def test_an_empty_answer(serve: Serve, dialect: Name) -> None:
    with serve(script(EmptyFault(at=(1,)))) as served:
        agent = Agent(client=served.client, workdir=served.workdir, dialect=dialect)
        assert agent.run() == ""

    (exchange,) = served.server.exchanges()
    assert exchange.fault == "empty"
    reasons = {"chat": "stop", "responses": "completed", "messages": "end_turn"}
    assert exchange.finish_reason == reasons[dialect]
