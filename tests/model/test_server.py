"""The server itself: routes, what is captured, disconnects, the tally, start and stop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections import Counter
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import pytest
from starlette.types import Message

from sandbox.conformance.conditions import YEAR_S
from sandbox.errors import CouldNotFindOut
from sandbox.evidence.exchanges import Exchange
from sandbox.evidence.tally import digest_of
from sandbox.model.app import ModelApp
from sandbox.model.capture import Capture
from sandbox.model.director import Director
from sandbox.model.faults import StallFault
from sandbox.model.script import HoldStep, Script, TextStep
from sandbox.model.server import ModelServer
from sandbox.model.tally import Tally
from sandbox.model.wire import MAX_BODY
from tests.model.agent import Agent
from tests.model.conftest import Serve, Served
from tests.model.steps import tool

TEXT = Script(steps=(TextStep(text="done"),))
HOLD = Script(steps=(HoldStep(),))


def agent(served: Served) -> Agent:
    return Agent(client=served.client, workdir=served.workdir)


def digests(exchanges: tuple[Exchange, ...]) -> Counter[str]:
    return Counter(map(digest_of, exchanges))


def wait_for_exchanges(server: ModelServer, count: int, deadline_s: float = 30.0) -> None:
    ends = time.monotonic() + deadline_s
    while len(server.exchanges()) < count:
        assert time.monotonic() < ends, f"{len(server.exchanges())} exchanges, not {count}"
        time.sleep(0.005)


@pytest.mark.parametrize("ahead_s", [-YEAR_S, 0, YEAR_S])
def test_a_clock_that_is_told_is_not_the_one_that_is_recorded(serve: Serve, ahead_s: int) -> None:
    before = time.time()
    with serve(TEXT, ahead_s=ahead_s) as served:
        asked = {"model": "m", "messages": [{"role": "user", "content": "go"}]}
        answer = served.client.post("chat/completions", json=asked)
        wait_for_exchanges(served.server, 1)
        (exchange,) = served.server.exchanges()
    after = time.time()
    told = parsedate_to_datetime(answer.headers["date"]).timestamp()
    assert before - 2 <= told - ahead_s <= after
    assert before - 1 <= answer.json()["created"] - ahead_s <= after
    assert before <= exchange.started_at <= after


# --- routes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/rollout/r1/v1/models", 200),
        ("GET", "/rollout/r1/v1/models/scripted-model", 200),
        ("GET", "/rollout/r1/v1/models/other", 404),
        ("HEAD", "/rollout/r1/v1", 200),
        ("HEAD", "/rollout/r1", 200),
        ("GET", "/rollout/r1/", 200),
        ("HEAD", "/rollout/r1/api/hello", 404),
        ("POST", "/rollout/r1/v1/models", 405),
        ("GET", "/rollout/r1/v1/chat/completions", 405),
        ("GET", "/rollout/r1/v1/responses", 405),
        ("GET", "/rollout/r1/v1/messages", 405),
        ("GET", "/rollout/r1/v1/messages/count_tokens", 405),
        ("POST", "/rollout/r1/v1/messages/batches", 404),
        ("POST", "/rollout/r1/v1/embeddings", 404),
        ("POST", "/rollout/r2/v1/chat/completions", 404),
        ("POST", "/v1/chat/completions", 404),
        ("GET", "/api/v1/models", 404),
        ("HEAD", "/", 404),
    ],
)
def test_every_route_is_answered_and_captured(
    serve: Serve, method: str, path: str, status: int
) -> None:
    with serve(TEXT) as served:
        url = f"http://127.0.0.1:{served.port}{path}"
        response = served.client.request(method, url)

    (exchange,) = served.server.exchanges()
    assert response.status_code == exchange.status_code == status
    assert (exchange.method, exchange.path) == (method, path)
    assert digests((exchange,)) == Counter(served.server.tally())
    if method != "HEAD":
        assert exchange.response == response.json()


def test_the_models_list_names_the_models(serve: Serve) -> None:
    with serve(TEXT) as served:
        listed = served.client.get("models").json()

    assert [model["id"] for model in listed["data"]] == ["scripted-model"]


def test_another_rollouts_path_is_captured_with_its_id(serve: Serve) -> None:
    with serve(TEXT) as served:
        served.client.post(f"http://127.0.0.1:{served.port}/rollout/other/v1/responses", json={})

    (exchange,) = served.server.exchanges()
    assert (exchange.rollout_id, exchange.dialect, exchange.request) == ("other", "none", {})


def test_a_rollout_id_with_odd_letters_works(serve: Serve) -> None:
    with serve(TEXT, rollout_id="cell/r 1#ü") as served:
        agent(served).run()

    assert served.server.exchanges()[0].rollout_id == "cell/r 1#ü"


# --- requests ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "saved"),
    [
        (b"{not json", "{not json"),
        (b"", None),
        (b"[1]", [1]),
        (b'{"model": "m"}', {"model": "m"}),
        (b"\xff\xfe", "\N{REPLACEMENT CHARACTER}" * 2),
    ],
    ids=["malformed", "empty", "no object", "no messages", "no text"],
)
def test_a_request_that_cannot_be_read_is_answered_400_and_captured(
    serve: Serve, body: bytes, saved: Any
) -> None:
    with serve(TEXT) as served:
        response = served.client.post("chat/completions", content=body)

    (exchange,) = served.server.exchanges()
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert exchange.request == saved
    assert exchange.dialect == "chat"
    assert digests((exchange,)) == Counter(served.server.tally())


def test_headers_are_captured_without_the_key(serve: Serve) -> None:
    headers = {"Authorization": "Bearer sk-secret-key-123", "Session-Id": "s1", "X-Other": "y"}
    with serve(TEXT) as served:
        served.client.headers.update(headers)
        agent(served).run()

    (exchange,) = served.server.exchanges()
    assert "sk-secret" not in exchange.model_dump_json()
    assert exchange.headers["authorization"].startswith("Bearer sha256:")
    assert exchange.headers["x-other"] == "y"
    assert exchange.client_session_id == "s1"


def test_the_query_is_part_of_the_path(serve: Serve) -> None:
    with serve(TEXT) as served:
        served.client.get("models?client=a%20b")

    assert served.server.exchanges()[0].path == "/rollout/r1/v1/models?client=a%20b"


def test_a_large_request_is_read_whole(serve: Serve) -> None:
    text = "漢" * 3_000_000
    with serve(TEXT) as served:
        agent(served).ask(messages=[{"role": "user", "content": text}])

    request: Any = served.server.exchanges()[0].request
    assert request["messages"][0]["content"] == text


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "chunked"])
def test_a_request_over_the_limit_is_answered_413_and_captured(
    serve: Serve, declared: bool
) -> None:
    block = b"x" * (1 << 20)
    blocks = MAX_BODY // len(block) + 1
    with serve(TEXT) as served:
        response = served.client.post(
            "chat/completions",
            content=(block for _ in range(blocks)),
            headers={"content-length": str(blocks * len(block))} if declared else {},
        )

    (exchange,) = served.server.exchanges()
    assert response.status_code == exchange.status_code == 413
    assert exchange.request is None
    assert digests((exchange,)) == Counter(served.server.tally())


def test_exchanges_survive_a_file(serve: Serve) -> None:
    with serve(Script(steps=(tool(1), TextStep(text="ü 漢 👍")))) as served:
        agent(served).run()
        served.client.post("chat/completions", content=b'{"a": "\\ud83d"}')

    for exchange in served.server.exchanges():
        again = Exchange.model_validate_json(exchange.model_dump_json())
        assert again == exchange
        assert digest_of(again) == digest_of(exchange)


# --- clients that leave -----------------------------------------------------------------------


def test_a_client_that_leaves_before_its_body_is_captured(serve: Serve) -> None:
    with serve(TEXT) as served:
        with socket.create_connection(("127.0.0.1", served.port)) as client:
            client.sendall(
                b"POST /rollout/r1/v1/responses HTTP/1.1\r\nhost: x\r\n"
                b'content-length: 100\r\n\r\n{"model": "m"'
            )
            time.sleep(0.1)
        wait_for_exchanges(served.server, 1)

    (exchange,) = served.server.exchanges()
    assert (exchange.status_code, exchange.disconnected) == (0, True)
    assert exchange.request == '{"model": "m"'
    assert exchange.completed_at >= exchange.started_at
    assert digests((exchange,)) == Counter(served.server.tally())


def test_a_client_that_leaves_while_it_is_held_is_captured_at_once(serve: Serve) -> None:
    with serve(HOLD) as served:
        served.client.timeout = 0.2
        with pytest.raises(httpx.ReadTimeout):
            agent(served).ask()
        wait_for_exchanges(served.server, 1)

    (exchange,) = served.server.exchanges()
    assert exchange.disconnected  # and not when the server stopped


def test_a_client_that_leaves_while_the_marker_is_read_is_captured_as_gone() -> None:
    looking, go_on = threading.Event(), threading.Event()

    def marker(_path: str) -> str:
        looking.set()
        go_on.wait(60)
        return "text1"

    script = Script(steps=(tool(1), TextStep(text="done")))
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = ModelServer(script, rollout_id="r1", listener=listener, marker=marker)
    result = {"role": "tool", "tool_call_id": script.all_calls()[0].call_id, "content": ""}
    tools = [{"type": "function", "function": {"name": "bash", "parameters": {}}}]
    with server:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(
                f"http://127.0.0.1:{port}{server.base_path}/chat/completions",
                json={"model": "m", "messages": [result], "tools": tools},
                timeout=0.3,
                trust_env=False,
            )
        assert looking.wait(30)
        go_on.set()
        wait_for_exchanges(server, 1)

    (exchange,) = server.exchanges()
    assert exchange.disconnected
    assert (exchange.status_code, exchange.response) == (0, None)
    assert server.report().steps_done == 1


def test_a_client_that_closes_after_the_last_event_did_not_leave_early(serve: Serve) -> None:
    with serve(TEXT) as served:
        for _ in range(5):
            with served.client.stream(
                "POST", "chat/completions", json=agent(served).request()
            ) as response:
                for line in response.iter_lines():
                    if line == "data: [DONE]":
                        break
        wait_for_exchanges(served.server, 5)

    assert not any(exchange.disconnected for exchange in served.server.exchanges())


# --- the tally sees what the capture lost -----------------------------------------------------


def test_a_dropped_twin_is_seen_by_the_tally(serve: Serve) -> None:
    with serve(TEXT) as served:
        agent(served).ask()
        agent(served).ask()

    one, two = served.server.exchanges()
    tally = Counter(served.server.tally())
    assert digest_of(one) == digest_of(two)
    assert digests((one, two)) == tally
    assert digests((one,)) != tally
    assert digests((one, two, two)) != tally


class Forgetful(Capture):
    """A defect: of equal exchanges only the first is kept."""

    def add(self, exchange: Exchange, tools_asked: dict[str, str]) -> None:
        if digest_of(exchange) not in map(digest_of, self.exchanges()):
            super().add(exchange, tools_asked)


@pytest.mark.parametrize("capture", [Capture(), Forgetful()], ids=["sound", "forgetful"])
def test_a_forgetful_capture_is_caught(capture: Capture) -> None:
    async def read_marker(_path: str) -> None: ...

    async def post_twice() -> tuple[str, ...]:
        tally = Tally(
            ModelApp(
                TEXT,
                rollout_id="r1",
                director=Director(TEXT, read_marker),
                capture=capture,
                clock=time.time,
                stopping=asyncio.Event(),
                hang_up=lambda _scope: None,
                models=(),
            )
        )
        transport = httpx.ASGITransport(app=tally)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            for _ in range(2):
                await client.post("/rollout/r1/v1/responses", json={"model": "m", "input": "hi"})
        return tally.entries()

    tally = asyncio.run(post_twice())

    assert len(tally) == 2
    is_whole = digests(capture.exchanges()) == Counter(tally)
    assert is_whole == (not isinstance(capture, Forgetful))


@pytest.mark.parametrize("streamed", [True, False])
def test_the_time_of_an_end_is_before_the_client_can_know_of_it(streamed: bool) -> None:
    """Else what a client does next would seem to have happened before the reply had ended."""
    capture, order = Capture(), list[str]()
    body = json.dumps({"model": "m", "input": "hi", "stream": streamed}).encode()
    asked = iter([{"type": "http.request", "body": body}])

    def clock() -> float:
        order.append("clock")
        return float(len(order))

    async def receive() -> Message:
        message = next(asked, None)
        return message or await asyncio.Event().wait() or {}

    async def send(message: Message) -> None:
        order.append(message["type"])

    async def read_marker(_path: str) -> None: ...

    async def post() -> None:
        app = ModelApp(
            TEXT,
            rollout_id="r1",
            director=Director(TEXT, read_marker),
            capture=capture,
            clock=clock,
            stopping=asyncio.Event(),
            hang_up=lambda _scope: None,
            models=(),
        )
        path = "/rollout/r1/v1/responses"
        await app({"type": "http", "method": "POST", "path": path, "headers": []}, receive, send)

    asyncio.run(post())

    (exchange,) = capture.exchanges()
    assert exchange.status_code == 200
    assert order[-2:] == ["clock", "http.response.body"]
    assert exchange.completed_at == len(order) - 1


@pytest.mark.parametrize(
    "change",
    [{"status_code": 500}, {"request": {"model": "other"}}, {"path": "/"}, {"method": "GET"}],
    ids=["status", "request", "path", "method"],
)
def test_an_altered_exchange_is_seen_by_the_tally(serve: Serve, change: dict[str, Any]) -> None:
    with serve(TEXT) as served:
        agent(served).ask()

    (exchange,) = served.server.exchanges()
    assert digests((exchange.model_copy(update=change),)) != Counter(served.server.tally())


def test_many_at_once_are_all_captured(serve: Serve) -> None:
    with serve(TEXT) as served:
        threads = [threading.Thread(target=lambda: agent(served).ask()) for _ in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    exchanges = served.server.exchanges()
    assert len({exchange.exchange_id for exchange in exchanges}) == 24
    assert len({exchange.response_id for exchange in exchanges}) == 24
    assert digests(exchanges) == Counter(served.server.tally())


# --- start and stop ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script",
    [HOLD, Script(steps=TEXT.steps, faults=(StallFault(at="every", where="stream"),))],
    ids=["held", "stalled"],
)
def test_stop_is_prompt_with_open_connections(serve: Serve, script: Script) -> None:
    def ask() -> None:
        with contextlib.suppress(httpx.HTTPError):
            agent(served).ask()

    with serve(script) as served:
        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        began = time.monotonic()
        served.server.stop()
        took = time.monotonic() - began
        for thread in threads:
            thread.join()

    assert took < 20
    exchanges = served.server.exchanges()
    assert len(exchanges) == 3
    assert not any(exchange.disconnected for exchange in exchanges)
    assert digests(exchanges) == Counter(served.server.tally())


def test_a_client_that_came_and_left_just_before_the_stop_is_seen(serve: Serve) -> None:
    for _ in range(20):
        with serve(TEXT) as served:
            with socket.create_connection(("127.0.0.1", served.port)) as client:
                path = f"{served.server.base_path}/models"
                client.sendall(f"GET {path} HTTP/1.1\r\nHost: model\r\n\r\n".encode())
            served.server.stop()
        (seen,) = served.server.exchanges()
        assert seen.path == path


def test_stop_does_not_wait_for_a_slow_marker() -> None:
    release = threading.Event()
    script = Script(steps=(tool(1), TextStep(text="done")))
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = ModelServer(
        script, rollout_id="r1", listener=listener, marker=lambda _path: str(release.wait(60))
    )
    result = {"role": "tool", "tool_call_id": script.all_calls()[0].call_id, "content": ""}
    tools = [{"type": "function", "function": {"name": "bash", "parameters": {}}}]
    with server, httpx.Client(trust_env=False, timeout=0.2) as client:
        with contextlib.suppress(httpx.HTTPError):
            client.post(
                f"http://127.0.0.1:{port}{server.base_path}/chat/completions",
                json={"model": "m", "messages": [result], "tools": tools},
            )
        began = time.monotonic()
        server.stop()
        took = time.monotonic() - began
    release.set()

    assert took < 20
    assert len(server.exchanges()) == 1


def test_stop_can_be_called_twice_and_frees_the_port(serve: Serve) -> None:
    with serve(TEXT) as served:
        served.server.stop()
        served.server.stop()
        with pytest.raises(httpx.ConnectError):
            served.client.get("models")
        socket.create_server(("127.0.0.1", served.port)).close()


def test_a_server_that_never_started_closes_its_listener() -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    ModelServer(TEXT, rollout_id="r1", listener=listener, marker=lambda _path: None).stop()

    assert listener.fileno() == -1


def test_a_listener_that_cannot_be_served_says_so() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.close()
    server = ModelServer(TEXT, rollout_id="r1", listener=listener, marker=lambda _path: None)

    with pytest.raises(CouldNotFindOut, match="model server for rollout r1 did not start"):
        server.start()


def test_requests_that_came_before_the_start_are_served() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"GET /rollout/r1/v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
        with ModelServer(TEXT, rollout_id="r1", listener=listener, marker=lambda _path: None):
            client.settimeout(5)
            assert client.recv(15) == b"HTTP/1.1 200 OK"


def test_replies_do_not_wait_for_acknowledgements() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with ModelServer(TEXT, rollout_id="r1", listener=listener, marker=lambda _path: None):
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_no_thread_is_left(serve: Serve) -> None:
    before = set(threading.enumerate())
    with serve(Script(steps=(tool(1), TextStep(text="done")))) as served:
        agent(served).run()

    ends = time.monotonic() + 30
    while left := set(threading.enumerate()) - before:
        assert time.monotonic() < ends, left
        time.sleep(0.005)


def test_snapshots_can_be_taken_while_it_runs(serve: Serve) -> None:
    with serve(TEXT) as served:
        assert served.server.exchanges() == ()
        agent(served).ask()
        wait_for_exchanges(served.server, 1)
        assert len(served.server.tally()) == 1
        assert served.server.report().steps_done == 1


# --- who is there, and who asks -----------------------------------------------------------------


def test_a_server_that_is_not_reachable_refuses_connections() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    script = TEXT.model_copy(update={"reachable": False})
    with ModelServer(script, rollout_id="r1", listener=listener, marker=lambda _: None) as server:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        assert (server.exchanges(), server.tally()) == ((), ())


def test_the_verifier_is_known_by_its_own_address() -> None:
    listeners = [socket.create_server((host, 0)) for host in ("127.0.0.1", "127.0.0.2")]
    body = {"model": "m", "messages": [{"role": "user", "content": "is it good?"}]}
    with ModelServer(
        TEXT,
        rollout_id="r1",
        listener=listeners[0],
        marker=lambda _: None,
        verifier_listener=listeners[1],
    ) as server:
        for host, port in [listener.getsockname() for listener in listeners]:
            url = f"http://{host}:{port}{server.base_path}/chat/completions"
            assert httpx.post(url, json=body, trust_env=False).status_code == 200
        wait_for_exchanges(server, 2)
        assert [exchange.caller for exchange in server.exchanges()] == ["agent", "verifier"]
