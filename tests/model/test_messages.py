"""What only the Messages dialect has on the wire: request ids, token counts, forms beside calls."""

from __future__ import annotations

from collections import Counter
from typing import Any

import httpx
import pytest

from sandbox.evidence.capture import capture, is_completed
from sandbox.evidence.tally import digest_of
from sandbox.model.faults import (
    CutFault,
    LengthFault,
    MalformedFault,
    StatusFault,
    StreamErrorFault,
)
from sandbox.model.script import Script, TextStep
from sandbox.model.wire import MAX_BODY
from tests.model.agent import Agent
from tests.model.conftest import Serve, Served
from tests.model.steps import tool

TEXT = TextStep(text="A final text that is long enough to be cut somewhere in its middle.")
SCRIPT = Script(steps=(tool(1), TEXT))
CLIENT = {"anthropic-version": "2023-06-01", "x-api-key": "sk-secret-key-123"}
COUNT = "messages/count_tokens?beta=true"
streams = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


def agent(served: Served, *, stream: bool = True) -> Agent:
    return Agent(client=served.client, workdir=served.workdir, dialect="messages", stream=stream)


def count(served: Served) -> httpx.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": "how long is this?"}]}
    return served.client.post(COUNT, json=body)


def tally_is_right(served: Served) -> bool:
    return Counter(served.server.tally()) == Counter(map(digest_of, served.server.exchanges()))


# --- request ids ------------------------------------------------------------------------------


@streams
def test_the_request_id_is_the_exchanges(serve: Serve, stream: bool) -> None:
    with serve(SCRIPT) as served:
        response = agent(served, stream=stream).ask()

    (exchange,) = served.server.exchanges()
    assert response.headers["request-id"] == exchange.exchange_id
    assert exchange.exchange_id.isalnum()
    assert exchange.response_id == f"msg{exchange.exchange_id.removeprefix('mc')}"


@pytest.mark.parametrize(
    "fault",
    [
        StatusFault(at="every", status=529, headers={"retry-after": "1"}),
        StreamErrorFault(at="every"),
        MalformedFault(at="every"),
        LengthFault(at="every"),
    ],
    ids=lambda fault: fault.kind,
)
@streams
def test_failed_replies_have_their_request_id_too(serve: Serve, fault: Any, stream: bool) -> None:
    with serve(SCRIPT.model_copy(update={"faults": (fault,)})) as served:
        response = agent(served, stream=stream).ask()

    (exchange,) = served.server.exchanges()
    assert response.headers["request-id"] == exchange.exchange_id
    if response.status_code >= 400:
        assert response.json()["request_id"] == exchange.exchange_id


@pytest.mark.parametrize(
    "body", [{}, {"model": "m", "max_tokens": 1, "messages": [{"role": "x"}]}], ids=repr
)
def test_an_invalid_request_is_refused_in_the_apis_form(serve: Serve, body: Any) -> None:
    with serve(SCRIPT) as served:
        response = served.client.post("messages", json=body)

    (exchange,) = served.server.exchanges()
    assert response.status_code == 400
    assert response.json()["type"] == "error"
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert response.headers["request-id"] == exchange.exchange_id
    assert (exchange.dialect, exchange.fault) == ("messages", None)


def test_other_dialects_name_no_request(serve: Serve) -> None:
    with serve(SCRIPT) as served:
        response = Agent(client=served.client, workdir=served.workdir).ask()

    assert "request-id" not in response.headers


# --- token counts -----------------------------------------------------------------------------


def test_a_count_is_answered_and_is_no_model_call(serve: Serve) -> None:
    with serve(SCRIPT) as served:
        response = count(served)
        agent(served).run()

    counted, *calls = served.server.exchanges()
    assert response.json() == {"input_tokens": len(response.request.content) // 4}
    assert response.headers["request-id"] == counted.exchange_id
    assert (counted.dialect, counted.response_id, counted.usage) == ("none", None, None)
    assert counted.path.endswith(f"/v1/{COUNT}")
    assert counted.response == response.json()
    assert [call.model_call_id for call in capture(served.server.exchanges())] == [
        exchange.exchange_id for exchange in calls
    ]
    assert served.server.report().steps_done == 2
    assert tally_is_right(served)


def test_a_count_takes_no_number_from_the_asks(serve: Serve) -> None:
    script = SCRIPT.model_copy(update={"faults": (StatusFault(at=(1,), status=500),)})
    with serve(script) as served:
        counted = count(served)
        failed = agent(served).ask()

    assert (counted.status_code, failed.status_code) == (200, 500)


def test_a_server_that_always_fails_fails_counts_too(serve: Serve) -> None:
    script = SCRIPT.model_copy(update={"faults": (StatusFault(at="every", status=401),)})
    with serve(script) as served:
        response = count(served)

    (exchange,) = served.server.exchanges()
    assert response.status_code == 401
    assert response.json()["error"]["type"] == "authentication_error"
    assert exchange.fault == "status_401"
    assert tally_is_right(served)


def test_a_connection_that_is_always_cut_cuts_counts_too(serve: Serve) -> None:
    script = SCRIPT.model_copy(update={"faults": (CutFault(at="every", where="headers"),)})
    with serve(script) as served, pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        count(served)

    (exchange,) = served.server.exchanges()
    assert (exchange.status_code, exchange.fault) == (0, "cut_headers")
    assert tally_is_right(served)


def test_an_invalid_count_is_refused(serve: Serve) -> None:
    with serve(SCRIPT) as served:
        response = served.client.post(COUNT, json={"model": "m"})

    assert response.status_code == 400
    assert "messages" in response.json()["error"]["message"]


# --- what is beside the calls -----------------------------------------------------------------


def test_the_models_list_has_the_apis_form_for_its_clients(serve: Serve) -> None:
    with serve(SCRIPT) as served:
        listed = served.client.get("models?limit=1000", headers=CLIENT).json()
        one = served.client.get("models/scripted-model", headers=CLIENT).json()
        base = served.client.get(f"http://127.0.0.1:{served.port}/rollout/r1", headers=CLIENT)

    assert (listed["first_id"], listed["last_id"]) == ("scripted-model", "scripted-model")
    assert listed["has_more"] is False
    assert listed["data"] == [one]
    assert (one["type"], one["id"]) == ("model", "scripted-model")
    assert base.json() == listed


@pytest.mark.parametrize("path", ["files", "messages/batches", "../../other/v1/messages"])
def test_what_is_not_there_is_told_in_the_apis_form(serve: Serve, path: str) -> None:
    with serve(SCRIPT) as served:
        response = served.client.post(path, headers=CLIENT, json={})

    (exchange,) = served.server.exchanges()
    assert response.status_code == 404
    assert response.json()["error"]["type"] == "not_found_error"
    assert response.json()["request_id"] == exchange.exchange_id
    assert exchange.dialect == "none"


def test_a_request_over_the_limit_is_told_in_the_apis_form(serve: Serve) -> None:
    with serve(SCRIPT) as served:
        response = served.client.post("messages", content=b"x" * (MAX_BODY + 1))

    assert response.status_code == 413
    assert response.json()["error"]["type"] == "request_too_large"


def test_the_key_is_hidden_and_the_session_kept(serve: Serve) -> None:
    session = {"X-Claude-Code-Session-Id": "s1"}
    with serve(SCRIPT) as served:
        served.client.headers.update({**CLIENT, **session})
        agent(served).ask()

    (exchange,) = served.server.exchanges()
    assert "sk-secret" not in exchange.model_dump_json()
    assert exchange.headers["x-api-key"].startswith("sha256:")
    assert exchange.client_session_id == "s1"


# --- conversations ----------------------------------------------------------------------------


def test_a_result_of_blocks_counts_as_a_result(serve: Serve) -> None:
    with serve(SCRIPT) as served:
        worker = agent(served)
        body = worker.read(worker.ask())
        ((call_id, command),) = worker._said(body)[1]
        text = worker._run_tool(command)
        block = {
            "type": "tool_result",
            "tool_use_id": call_id,
            "is_error": True,
            "content": [{"type": "text", "text": text}],
        }
        worker.history.append({"role": "user", "content": [block]})
        said = worker.run()

    assert said == TEXT.text
    assert served.server.report().steps_done == 2


def test_a_request_that_may_call_no_tool_gets_the_helper_text(serve: Serve) -> None:
    with serve(SCRIPT) as served:
        helper = agent(served, stream=False)
        none = helper.ask(tool_choice={"type": "none"}).json()
        without = helper.ask(tools=[]).json()

    for body in (none, without):
        assert body["content"] == [{"type": "text", "text": SCRIPT.helper_text}]
    assert served.server.report().steps_done == 0


@streams
def test_only_whole_replies_count_as_completed(serve: Serve, stream: bool) -> None:
    faults = (
        StreamErrorFault(at=(1,)),
        MalformedFault(at=(2,)),
        LengthFault(at=(3,)),
    )
    with serve(Script(steps=(TEXT,), faults=faults)) as served:
        for _ in range(4):
            agent(served, stream=stream).ask()

    calls = capture(served.server.exchanges())
    assert [call.error_category for call in calls] == [
        "upstream_error",
        "stream_truncated",
        "incomplete",
        None,
    ]
    assert [is_completed(call) for call in calls] == [False, False, True, True]
