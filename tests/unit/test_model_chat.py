"""The Chat Completions dialect: requests read, replies in the API's exact form."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.evidence.exchanges import TokenUsage
from sandbox.model.chat import DONE, Chat
from sandbox.model.dialect import AskInvalid, Call, Reply
from sandbox.model.sse import json_events
from tests.unit.model_replies import replies

CHAT = Chat()
USAGE = TokenUsage(
    input_tokens=10, output_tokens=4, total_tokens=14, reasoning_tokens=1, cached_tokens=0
)
CALL = Call(call_id="call1", name="bash", arguments='{"command": "true"}')
REPLY = Reply(id="0001", model="m", created=7, text="hello", usage=USAGE)


def chunks(reply: Reply, *, usage: bool = True) -> list[dict[str, Any]]:
    return list(json_events(CHAT.frames(reply, usage=usage)))


def test_a_request_with_a_history_is_read() -> None:
    ask = CHAT.parse(
        {
            "model": "m",
            "stream": True,
            "stream_options": {"include_usage": True},
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": [{"type": "text", "text": "do"}]},
                {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}, {"id": "c2"}]},
                {"role": "tool", "tool_call_id": "c1", "content": "out"},
                {
                    "role": "tool",
                    "tool_call_id": "c2",
                    "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
                },
            ],
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "bash", "parameters": {"type": "object"}},
                },
                {"type": "custom"},
            ],
        }
    )

    assert (ask.model, ask.stream, ask.usage) == ("m", True, True)
    assert ask.results == {"c1": "out", "c2": "ab"}
    assert ask.requested == ("c1", "c2")
    assert [tool.name for tool in ask.tools] == ["bash"]


def test_a_small_request_is_read() -> None:
    ask = CHAT.parse({"model": "m", "messages": [{"role": "user", "content": "x"}]})

    assert (ask.stream, ask.usage, ask.tools, ask.requested) == (False, False, (), ())


@pytest.mark.parametrize(
    "body",
    [{}, {"model": 1, "messages": [{}]}, {"model": "m"}, {"model": "m", "messages": []}],
    ids=["empty", "model", "no messages", "empty messages"],
)
def test_a_request_without_model_or_messages_is_invalid(body: dict[str, Any]) -> None:
    with pytest.raises(AskInvalid):
        CHAT.parse(body)


def test_the_completion_object_of_a_text() -> None:
    body: Any = CHAT.body(REPLY)

    assert (body["id"], body["object"], body["created"]) == ("chatcmpl0001", "chat.completion", 7)
    (choice,) = body["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"] == "hello"
    assert "tool_calls" not in choice["message"]
    assert body["usage"]["total_tokens"] == 14
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 1


def test_the_completion_object_of_a_call_has_no_content() -> None:
    body: Any = CHAT.body(replace(REPLY, text="", calls=(CALL,)))

    (choice,) = body["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert choice["message"]["tool_calls"] == [
        {
            "id": "call1",
            "type": "function",
            "function": {"name": "bash", "arguments": '{"command": "true"}'},
        }
    ]


def test_absent_usage_is_left_out() -> None:
    silent = replace(REPLY, usage=None)

    assert "usage" not in CHAT.body(silent)
    assert all("usage" not in chunk for chunk in chunks(silent))


def test_usage_is_streamed_only_when_asked_for() -> None:
    assert all("usage" not in chunk for chunk in chunks(REPLY, usage=False))

    *before, last = chunks(REPLY, usage=True)

    assert all(chunk["usage"] is None for chunk in before)
    assert last["choices"] == []
    assert last["usage"]["prompt_tokens"] == 10


def test_the_stream_begins_with_the_role_and_ends_with_reason_and_done() -> None:
    frames = CHAT.frames(REPLY, usage=False)
    first, *_, last = chunks(REPLY, usage=False)

    assert frames[-1] == DONE == b"data: [DONE]\n\n"
    assert first["object"] == "chat.completion.chunk"
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert last["choices"][0] == {
        "index": 0,
        "delta": {},
        "logprobs": None,
        "finish_reason": "stop",
    }


def test_only_the_first_delta_of_a_call_has_its_id_and_name() -> None:
    two = replace(REPLY, text="", calls=(CALL, replace(CALL, call_id="call2", arguments="x" * 60)))
    deltas = [
        part
        for chunk in chunks(two, usage=False)
        for part in chunk["choices"][0]["delta"].get("tool_calls", [])
    ]

    heads = [part for part in deltas if "id" in part]

    assert [(part["index"], part["id"]) for part in heads] == [(0, "call1"), (1, "call2")]
    assert all(part["type"] == "function" and part["function"]["name"] for part in heads)
    assert all(set(part) == {"index", "function"} for part in deltas if "id" not in part)


def test_a_length_stop_is_told_as_such() -> None:
    assert (
        chunks(replace(REPLY, length_stop=True), usage=False)[-1]["choices"][0]["finish_reason"]
        == "length"
    )


@given(replies)
def test_a_complete_stream_adds_up_to_the_body(reply: Reply) -> None:
    assert CHAT.assemble(CHAT.frames(reply, usage=True)) == CHAT.body(reply)


@given(replies, st.data())
def test_a_cut_stream_adds_up_to_a_part(reply: Reply, data: st.DataObject) -> None:
    frames = CHAT.frames(reply, usage=True)
    sent = frames[: data.draw(st.integers(0, len(frames) - 2 - (reply.usage is not None)))]

    part: Any = CHAT.assemble(sent)

    if not sent:
        assert part is None
        return
    (choice,) = part["choices"]
    assert choice["finish_reason"] is None
    assert reply.text.startswith(choice["message"]["content"] or "")
    assert CHAT.told(part).response_id == f"chatcmpl{reply.id}"
    assert CHAT.told(part).usage is None


@given(replies)
def test_what_a_body_tells_is_what_the_reply_was(reply: Reply) -> None:
    told = CHAT.told(json.loads(json.dumps(CHAT.body(reply))))

    assert told.response_id == f"chatcmpl{reply.id}"
    assert told.calls == {call.call_id: call.name for call in reply.calls}
    assert told.usage == reply.usage
    assert told.finish_reason in ("stop", "tool_calls", "length")


@pytest.mark.parametrize("body", [None, "text", [], {"choices": 3}], ids=repr)
def test_an_odd_body_tells_nothing(body: Any) -> None:
    told = CHAT.told(body)

    assert (told.response_id, told.finish_reason, dict(told.calls), told.usage) == (
        None,
        None,
        {},
        None,
    )


def test_a_failed_stream_keeps_what_came_before_and_the_error() -> None:
    frames: Sequence[bytes] = CHAT.frames(REPLY, usage=False)[:2]
    failure = CHAT.failure_frame(REPLY, message="broken", code="server_error", sequence=2)

    body: Any = CHAT.assemble([*frames, failure])

    assert body["choices"][0]["message"]["content"] == "hello"
    assert body["error"]["message"] == "broken"


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, "invalid_request_error", None),
        (401, "authentication_error", "invalid_api_key"),
        (429, "rate_limit_error", "rate_limit_exceeded"),
        (503, "server_error", None),
    ],
)
def test_errors_have_the_apis_form(status: int, kind: str, code: str | None) -> None:
    assert CHAT.error(status, "why") == {
        "error": {"message": "why", "type": kind, "param": None, "code": code}
    }
