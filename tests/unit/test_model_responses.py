"""The Responses dialect: requests read, replies in the API's exact form."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.evidence.exchanges import TokenUsage
from sandbox.model.dialect import AskInvalid, Call, Reply
from sandbox.model.responses import Responses
from sandbox.model.sse import json_events
from tests.unit.model_replies import replies

RESPONSES = Responses()
USAGE = TokenUsage(
    input_tokens=10, output_tokens=4, total_tokens=14, reasoning_tokens=1, cached_tokens=0
)
CALL = Call(call_id="call1", name="exec_command", arguments='{"cmd": "true"}')
REPLY = Reply(id="0001", model="m", created=7, text="hello", usage=USAGE)
FULL = replace(REPLY, reasoning="because", calls=(CALL,))


def stream(reply: Reply) -> list[dict[str, Any]]:
    return list(json_events(RESPONSES.frames(reply, usage=True)))


def test_a_request_with_a_history_is_read() -> None:
    ask = RESPONSES.parse(
        {
            "model": "m",
            "stream": True,
            "input": [
                {"type": "message", "role": "user", "content": []},
                {"type": "function_call", "call_id": "c1", "name": "x", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "out"},
                {"type": "local_shell_call", "call_id": "c2"},
                {"type": "local_shell_call_output", "id": "c2", "output": "more"},
                {"type": "custom_tool_call", "call_id": "c3"},
                {
                    "type": "custom_tool_call_output",
                    "call_id": "c3",
                    "output": [{"type": "input_text", "text": "part"}],
                },
            ],
            "tools": [
                {"type": "function", "name": "exec_command", "parameters": {"type": "object"}},
                {
                    "type": "namespace",
                    "name": "agents",
                    "tools": [{"type": "function", "name": "spawn", "parameters": {}}],
                },
                {"type": "local_shell"},
                {"type": "web_search"},
            ],
        }
    )

    assert (ask.model, ask.stream, ask.usage) == ("m", True, True)
    assert ask.results == {"c1": "out", "c2": "more", "c3": "part"}
    assert ask.requested == ("c1", "c2", "c3")
    assert [tool.full_name for tool in ask.tools] == ["exec_command", "agents.spawn", "local_shell"]


def test_a_plain_text_input_is_read() -> None:
    assert RESPONSES.parse({"model": "m", "input": "hi"}).results == {}


@pytest.mark.parametrize(
    "body", [{}, {"model": "m"}, {"model": "m", "input": []}, {"input": "x"}], ids=repr
)
def test_a_request_without_model_or_input_is_invalid(body: dict[str, Any]) -> None:
    with pytest.raises(AskInvalid):
        RESPONSES.parse(body)


def test_the_response_object() -> None:
    body: Any = RESPONSES.body(FULL)

    assert (body["id"], body["object"], body["status"]) == ("resp0001", "response", "completed")
    assert [item["type"] for item in body["output"]] == ["reasoning", "message", "function_call"]
    assert body["output"][1]["content"][0]["text"] == "hello"
    assert body["output"][2]["call_id"] == "call1"
    assert body["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 14,
    }


def test_an_empty_reply_has_no_output() -> None:
    assert RESPONSES.body(replace(REPLY, text=""))["output"] == []


def test_absent_usage_is_null() -> None:
    assert RESPONSES.body(replace(REPLY, usage=None))["usage"] is None


def test_a_length_stop_is_incomplete() -> None:
    body: Any = RESPONSES.body(replace(REPLY, length_stop=True))

    assert body["status"] == "incomplete"
    assert body["incomplete_details"] == {"reason": "max_output_tokens"}
    assert stream(replace(REPLY, length_stop=True))[-1]["type"] == "response.incomplete"


def test_the_events_of_a_full_reply_in_order() -> None:
    assert [event["type"].removeprefix("response.") for event in stream(FULL)] == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]


def test_each_event_is_named_after_its_type() -> None:
    for frame in RESPONSES.frames(FULL, usage=True):
        name, data, *_ = frame.decode().split("\n")
        assert name == f"event: {json.loads(data.removeprefix('data: '))['type']}"


@given(replies)
def test_events_count_up_and_point_at_their_items(reply: Reply) -> None:
    events = stream(reply)
    output: Any = events[-1]["response"]["output"]

    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for event in events:
        if "item_id" in event:
            assert output[event["output_index"]]["id"] == event["item_id"]


@given(replies)
def test_deltas_add_up_to_the_done_events(reply: Reply) -> None:
    so_far: dict[tuple[str, str], str] = {}
    for event in stream(reply):
        kind, _, step = event["type"].rpartition(".")
        if step == "delta":
            key = (event["item_id"], kind)
            so_far[key] = so_far.get(key, "") + event["delta"]
        elif step == "done" and "item_id" in event and "part" not in event:
            whole = event["arguments"] if "arguments" in event else event["text"]
            assert so_far.pop((event["item_id"], kind), "") == whole
    assert so_far == {}


@given(replies)
def test_a_complete_stream_adds_up_to_the_body(reply: Reply) -> None:
    assert RESPONSES.assemble(RESPONSES.frames(reply, usage=True)) == RESPONSES.body(reply)


@given(replies)
def test_without_its_last_event_a_stream_has_the_items_but_no_end(reply: Reply) -> None:
    part: Any = RESPONSES.assemble(RESPONSES.frames(reply, usage=True)[:-1])

    assert part["status"] == "in_progress"
    assert part["output"] == RESPONSES.body(reply)["output"]
    told = RESPONSES.told(part)
    assert (told.finish_reason, told.usage) == (None, None)
    assert told.calls == {call.call_id: call.name for call in reply.calls}


@given(replies, st.data())
def test_any_cut_stream_adds_up_to_a_part(reply: Reply, data: st.DataObject) -> None:
    frames = RESPONSES.frames(reply, usage=True)
    part: Any = RESPONSES.assemble(frames[: data.draw(st.integers(0, len(frames) - 1))])

    if part is None:
        return
    for item, whole in zip(part["output"], RESPONSES.body(reply)["output"], strict=False):  # type: ignore[arg-type]
        assert item["id"] == whole["id"]  # type: ignore[index,call-overload]
        assert str(whole.get("arguments", "")).startswith(item.get("arguments", ""))  # type: ignore[union-attr]


@given(replies)
def test_what_a_body_tells_is_what_the_reply_was(reply: Reply) -> None:
    told = RESPONSES.told(json.loads(json.dumps(RESPONSES.body(reply))))

    assert told.response_id == f"resp{reply.id}"
    assert told.finish_reason == ("max_output_tokens" if reply.length_stop else "completed")
    assert told.calls == {call.call_id: call.name for call in reply.calls}
    assert told.usage == reply.usage


@given(replies)
def test_all_ids_are_letters_and_digits(reply: Reply) -> None:
    body: Any = RESPONSES.body(reply)

    found = [body["id"], *(item["id"] for item in body["output"])]

    assert all(name.isalnum() and name.isascii() for name in found)
    assert len(set(found)) == len(found)


def test_a_failed_stream_is_told_as_failed() -> None:
    frames = RESPONSES.frames(REPLY, usage=True)[:3]
    failure = RESPONSES.failure_frame(REPLY, message="broken", code="server_error", sequence=3)

    body: Any = RESPONSES.assemble([*frames, failure])

    assert body["status"] == "failed"
    assert body["error"] == {"code": "server_error", "message": "broken"}
    assert RESPONSES.told(body).finish_reason is None


def test_a_local_shell_call_has_its_action_and_no_argument_events() -> None:
    action = {"type": "exec", "command": ["sh", "-c", "true"], "env": {}}
    call = Call("call1", "local_shell", json.dumps(action), form="local_shell")
    reply = replace(REPLY, text="", calls=(call,))

    body: Any = RESPONSES.body(reply)

    assert body["output"][0]["type"] == "local_shell_call"
    assert body["output"][0]["action"] == action
    assert not [event for event in stream(reply) if "arguments" in event["type"]]
    assert RESPONSES.told(body).calls == {"call1": "local_shell"}
    assert RESPONSES.assemble(RESPONSES.frames(reply, usage=True)) == body


def test_a_call_keeps_its_namespace() -> None:
    body: Any = RESPONSES.body(replace(REPLY, calls=(replace(CALL, namespace="box"),)))

    assert body["output"][1]["namespace"] == "box"
