"""What is saved of a request: body, headers without secrets, session, path, tally."""

import asyncio
import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.evidence.exchanges import Exchange
from sandbox.evidence.tally import digest_of
from sandbox.model.app import split_path
from sandbox.model.body import parse_body
from sandbox.model.capture import Draft, saved_headers, session_of
from sandbox.model.tally import Tally

KEY = "sk-local-test-1234"
HASH = hashlib.sha256(KEY.encode()).hexdigest()[:12]


@pytest.mark.parametrize(
    ("headers", "saved"),
    [
        ({"Authorization": f"Bearer {KEY}"}, {"authorization": f"Bearer sha256:{HASH}"}),
        ({"X-API-Key": KEY}, {"x-api-key": f"sha256:{HASH}"}),
        ({"Content-Type": "text/plain"}, {"content-type": "text/plain"}),
    ],
    ids=["bearer", "key", "plain"],
)
def test_headers_are_saved_without_secrets(headers: dict[str, str], saved: dict[str, str]) -> None:
    assert saved_headers(headers.items()) == saved


def test_repeated_headers_are_joined() -> None:
    assert saved_headers([("Accept", "a"), ("accept", "b")]) == {"accept": "a, b"}


@pytest.mark.parametrize(
    ("headers", "session"),
    [
        ({"session-id": "s1", "x-session-id": "s2"}, "s1"),
        ({"x-session-id": "s2"}, "s2"),
        ({"x-claude-code-session-id": "s3"}, "s3"),
        ({"x-claude-code-session-id": "s3", "x-claude-code-agent-id": "a4"}, "a4"),
        ({"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, "4bf9"),
        ({"traceparent": "odd"}, None),
        ({}, None),
    ],
    ids=["codex", "opencode", "claude-code", "subagent", "trace", "odd trace", "none"],
)
def test_the_clients_session_is_found(headers: dict[str, str], session: str | None) -> None:
    found = session_of(headers)

    assert found == session or (found or "").startswith(session or "-")


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("/rollout/r1/v1/chat/completions", ("r1", "/chat/completions")),
        ("/rollout/r1/v1/messages?beta=true", ("r1", "/messages")),
        ("/rollout/r%2F1/v1/responses", ("r/1", "/responses")),
        ("/rollout/r1/v1", ("r1", "")),
        ("/rollout/r1", ("r1", "")),
        ("/rollout/r1/v2/responses", ("r1", None)),
        ("/v1/responses", (None, None)),
        ("/rollout//v1/responses", (None, None)),
        ("/", (None, None)),
    ],
)
def test_paths_are_split(path: str, parts: tuple[str | None, str | None]) -> None:
    assert split_path(path) == parts


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"", None),
        (b'{"a": 1}', {"a": 1}),
        (b"not json", "not json"),
        (b'{"a": NaN}', '{"a": NaN}'),
        (b'{"a": 1e999}', '{"a": 1e999}'),
        (b'"\\ud83d"', "\N{REPLACEMENT CHARACTER}" * 3),
        (b"\xff", "\N{REPLACEMENT CHARACTER}"),
        (b"[" * 100_000, "[" * 100_000),
    ],
    ids=["empty", "json", "text", "nan", "infinite", "surrogate", "bytes", "deep"],
)
def test_bodies_are_saved_as_what_json_can_hold(raw: bytes, value: Any) -> None:
    assert parse_body(raw) == value


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: json.dumps(text).encode()))
def test_any_body_can_be_saved_and_read_again(raw: bytes) -> None:
    exchange = draft(request=parse_body(raw)).ended(
        status_code=200, disconnected=False, completed_at=2.0
    )

    assert Exchange.model_validate_json(exchange.model_dump_json()) == exchange


def draft(**changes: Any) -> Draft:
    fields: dict[str, Any] = {
        "exchange_id": "mc1",
        "rollout_id": "r1",
        "method": "POST",
        "path": "/rollout/r1/v1/responses",
        "headers": {},
        "client_session_id": None,
        "started_at": 1.0,
    }
    return Draft(**{**fields, **changes})


# --- the tally --------------------------------------------------------------------------------


def pass_through(body: list[bytes], status: int | None) -> Tally:
    """One request through a tally around an app that reads the body and answers."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        if status is not None:
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    async def receive() -> dict[str, Any]:
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message: Any) -> None:
        del message

    parts = list(body)
    tally = Tally(app)
    scope = {"type": "http", "method": "POST", "path": "/p", "query_string": b"q=1"}
    asyncio.run(tally(scope, receive, send))
    return tally


@pytest.mark.parametrize("status", [200, 404, None])
def test_the_tally_counts_what_an_exchange_would_say(status: int | None) -> None:
    tally = pass_through([b'{"a":', b" 1}"], status)
    saved = draft(path="/p?q=1", request={"a": 1})
    exchange = saved.ended(status_code=status or 0, disconnected=False, completed_at=2.0)

    assert tally.entries() == (digest_of(exchange),)


def test_the_tally_counts_an_exchange_whose_app_broke() -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError

    async def nothing(*_: Any) -> Any:
        return {}

    tally = Tally(broken)
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b""}

    with pytest.raises(RuntimeError):
        asyncio.run(tally(scope, nothing, nothing))
    assert len(tally.entries()) == 1
