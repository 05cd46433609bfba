"""The Messages dialect: requests read, replies in the API's exact form."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.evidence.exchanges import TokenUsage
from sandbox.model.dialect import AskInvalid, Call, Reply
from sandbox.model.messages import Messages
from sandbox.model.sse import json_events
from sandbox.model.tools import choose_shell_tool, shell_call
from tests.unit.model_replies import replies

MESSAGES = Messages()
USAGE = TokenUsage(input_tokens=10, output_tokens=4, reasoning_tokens=1, cached_tokens=0)
CALL = Call(call_id="call1", name="Bash", arguments='{"command": "true"}')
REPLY = Reply(id="0001", model="m", created=7, request_id="mc0001", text="hello", usage=USAGE)
SMALL: dict[str, Any] = {
    "model": "m",
    "max_tokens": 5,
    "messages": [{"role": "user", "content": "x"}],
}
BASH: dict[str, Any] = {
    "name": "Bash",
    "description": "runs",
    "input_schema": {
        "type": "object",
        "properties": {"command": {"type": "string"}, "timeout": {"type": "number"}},
        "required": ["command"],
    },
}
SEARCH: dict[str, Any] = {"type": "web_search_20250305", "name": "web_search"}


def events(reply: Reply) -> list[dict[str, Any]]:
    return list(json_events(MESSAGES.frames(reply, usage=True)))


def as_told(usage: TokenUsage | None) -> TokenUsage | None:
    """Usage as the wire can tell it: there is no total."""
    return None if usage is None else usage.model_copy(update={"total_tokens": None})


# --- requests ---------------------------------------------------------------------------------


def test_a_request_with_a_history_is_read() -> None:
    ask = MESSAGES.parse(
        {
            "model": "m",
            "max_tokens": 32000,
            "stream": True,
            "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "do"}]},
                {"role": "system", "content": "# Environment"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": "s"},
                        {"type": "text", "text": "I will"},
                        {"type": "tool_use", "id": "c1", "name": "Bash", "input": {}},
                        {"type": "tool_use", "id": "c2", "name": "Bash", "input": {}},
                        {"type": "tool_use", "id": "c3", "name": "Bash", "input": {}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "c1",
                            "content": "Exit code 7\nout",
                            "is_error": True,
                        },
                        {
                            "type": "tool_result",
                            "tool_use_id": "c2",
                            "content": [
                                {"type": "text", "text": "a"},
                                {"type": "image", "source": {}},
                                {"type": "text", "text": "b"},
                            ],
                        },
                        {"type": "tool_result", "tool_use_id": "c3"},
                        {"type": "text", "text": "go on"},
                    ],
                },
            ],
            "tools": [BASH, SEARCH],
        }
    )

    assert (ask.model, ask.stream, ask.usage) == ("m", True, True)
    assert ask.results == {"c1": "Exit code 7\nout", "c2": "ab", "c3": ""}
    assert ask.requested == ("c1", "c2", "c3")
    assert [tool.name for tool in ask.tools] == ["Bash"]


def test_a_small_request_is_read() -> None:
    ask = MESSAGES.parse(SMALL)

    assert (ask.stream, ask.usage, ask.tools, ask.requested) == (False, True, (), ())


def test_the_system_prompt_may_be_a_text() -> None:
    assert MESSAGES.parse({**SMALL, "system": "s"}) == MESSAGES.parse(SMALL)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": 1}, "model"),
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": ["x"]}, r"messages\.0\.role"),
        ({"messages": [{"role": "tool", "content": "x"}]}, r"messages\.0\.role"),
        ({"messages": [{"role": "user"}]}, r"messages\.0\.content"),
    ],
    ids=repr,
)
def test_a_request_that_the_api_would_refuse_is_invalid(
    change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(AskInvalid, match=reason):
        MESSAGES.parse({**SMALL, **change})


def test_a_count_request_needs_no_limit() -> None:
    body = {key: value for key, value in SMALL.items() if key != "max_tokens"}

    assert MESSAGES.parse_count(body) == MESSAGES.parse(SMALL)
    with pytest.raises(AskInvalid, match="model"):
        MESSAGES.parse_count({**body, "model": None})
    assert MESSAGES.count(12) == {"input_tokens": 12}


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (None, ["Bash", "Read"]),
        ({"type": "auto"}, ["Bash", "Read"]),
        ({"type": "any"}, ["Bash", "Read"]),
        ({"type": "tool", "name": "Read"}, ["Read"]),
        ({"type": "none"}, []),
    ],
    ids=["absent", "auto", "any", "tool", "none"],
)
def test_only_tools_that_may_be_called_are_offered(choice: Any, names: list[str]) -> None:
    tools: list[Any] = [BASH, {"name": "Read", "type": "custom", "input_schema": {}}]

    ask = MESSAGES.parse({**SMALL, "tools": tools, "tool_choice": choice})

    assert [tool.name for tool in ask.tools] == names


def test_tools_that_the_api_runs_are_not_offered() -> None:
    assert MESSAGES.parse({**SMALL, "tools": [SEARCH, {"type": "x"}, {}]}).tools == ()


def test_the_apis_own_shell_tool_is_called_without_a_schema() -> None:
    tools: list[Any] = [
        {"type": "text_editor_20250728", "name": "edit"},
        {"type": "bash_20250124", "name": "bash"},
    ]

    tool = choose_shell_tool(MESSAGES.parse({**SMALL, "tools": tools}).tools)

    assert shell_call(tool, "c1", "true").arguments == '{"command": "true"}'


# --- replies ----------------------------------------------------------------------------------


def test_the_message_object_of_a_text() -> None:
    assert MESSAGES.body(REPLY) == {
        "id": "msg0001",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 10,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 4,
            "output_tokens_details": {"thinking_tokens": 1},
            "service_tier": "standard",
        },
    }


def test_the_message_object_of_everything_has_its_blocks_in_order() -> None:
    body: Any = MESSAGES.body(replace(REPLY, reasoning="hm", calls=(CALL,)))

    thinking, text, call = body["content"]
    assert (thinking["type"], thinking["thinking"]) == ("thinking", "hm")
    assert thinking["signature"].isalnum()
    assert text == {"type": "text", "text": "hello"}
    assert call == {"type": "tool_use", "id": "call1", "name": "Bash", "input": {"command": "true"}}
    assert body["stop_reason"] == "tool_use"


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ("", {}),
        ("{}", {}),
        ('{"a": [1]}', {"a": [1]}),
        ('{"command": "ec', '{"command": "ec'),
        ("[1]", "[1]"),
        ('{"a": NaN}', '{"a": NaN}'),
        ('{"a": 1e999}', '{"a": 1e999}'),
    ],
)
def test_arguments_that_are_no_object_stay_a_text(arguments: str, given: Any) -> None:
    reply = replace(REPLY, text="", calls=(replace(CALL, arguments=arguments),))

    body: Any = MESSAGES.body(reply)

    assert body["content"][0]["input"] == given


def test_unknown_counts_are_left_out() -> None:
    body: Any = MESSAGES.body(replace(REPLY, usage=TokenUsage(input_tokens=3, output_tokens=1)))

    assert body["usage"] == {"input_tokens": 3, "output_tokens": 1, "service_tier": "standard"}
    only_input = replace(REPLY, usage=TokenUsage(input_tokens=3))
    assert "output_tokens" not in events(only_input)[0]["message"]["usage"]
    assert MESSAGES.assemble(MESSAGES.frames(only_input, usage=True)) == MESSAGES.body(only_input)
    assert MESSAGES.told(body).usage == TokenUsage(input_tokens=3, output_tokens=1)


def test_absent_usage_is_left_out() -> None:
    silent = replace(REPLY, usage=None)

    assert "usage" not in MESSAGES.body(silent)
    assert all("usage" not in event for event in events(silent))
    assert "usage" not in events(silent)[0]["message"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, "end_turn"),
        ({"text": ""}, "end_turn"),
        ({"calls": (CALL,)}, "tool_use"),
        ({"length_stop": True}, "max_tokens"),
        ({"calls": (CALL,), "length_stop": True}, "max_tokens"),
    ],
    ids=["text", "empty", "call", "length", "length in a call"],
)
def test_why_a_reply_ends(change: dict[str, Any], reason: str) -> None:
    reply = replace(REPLY, **change)

    body: Any = MESSAGES.body(reply)

    assert body["stop_reason"] == events(reply)[-2]["delta"]["stop_reason"] == reason


# --- streams ----------------------------------------------------------------------------------


def test_every_event_is_named_after_its_type() -> None:
    for frame in MESSAGES.frames(replace(REPLY, reasoning="hm", calls=(CALL,)), usage=True):
        name, data = frame.decode().removesuffix("\n\n").split("\n")
        assert name == f"event: {json.loads(data.removeprefix('data: '))['type']}"


def test_the_stream_of_a_thought_a_text_and_a_call() -> None:
    said = events(replace(REPLY, reasoning="hm", calls=(CALL,)))

    start, ping, *blocks, delta, stop = said
    assert start["type"] == "message_start"
    assert start["message"]["content"] == []
    assert start["message"]["stop_reason"] is None
    assert start["message"]["usage"] == {
        "input_tokens": 10,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 1,
        "service_tier": "standard",
    }
    assert ping == {"type": "ping"}
    assert [(event["type"], event["index"]) for event in blocks] == [
        ("content_block_start", 0),
        ("content_block_delta", 0),
        ("content_block_delta", 0),
        ("content_block_stop", 0),
        ("content_block_start", 1),
        ("content_block_delta", 1),
        ("content_block_stop", 1),
        ("content_block_start", 2),
        ("content_block_delta", 2),
        ("content_block_delta", 2),
        ("content_block_stop", 2),
    ]
    assert [event["content_block"] for event in blocks if "content_block" in event] == [
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "text", "text": ""},
        {"type": "tool_use", "id": "call1", "name": "Bash", "input": {}},
    ]
    assert [event["delta"]["type"] for event in blocks if "delta" in event] == [
        "thinking_delta",
        "signature_delta",
        "text_delta",
        "input_json_delta",
        "input_json_delta",
    ]
    assert delta["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert delta["usage"] == {
        "input_tokens": 10,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 4,
        "output_tokens_details": {"thinking_tokens": 1},
    }
    assert stop == {"type": "message_stop"}


def test_an_empty_reply_streams_no_block() -> None:
    said = [event["type"] for event in events(replace(REPLY, text=""))]

    assert said == ["message_start", "ping", "message_delta", "message_stop"]


@given(replies)
def test_a_complete_stream_adds_up_to_the_body(reply: Reply) -> None:
    assert MESSAGES.assemble(MESSAGES.frames(reply, usage=True)) == MESSAGES.body(reply)


@given(replies, st.data())
def test_a_cut_stream_adds_up_to_a_part(reply: Reply, data: st.DataObject) -> None:
    frames = MESSAGES.frames(reply, usage=True)
    sent = frames[: data.draw(st.integers(0, len(frames) - 2))]

    part: Any = MESSAGES.assemble(sent)

    if not sent:
        assert part is None
        return
    whole: Any = MESSAGES.body(reply)
    assert part["stop_reason"] is None
    assert len(part["content"]) <= len(whole["content"])
    for some, all_ in zip(part["content"], whole["content"], strict=False):
        assert some["type"] == all_["type"]
        assert all_.get("text", "").startswith(some.get("text", ""))
        assert all_.get("thinking", "").startswith(some.get("thinking", ""))
    assert MESSAGES.told(part).response_id == f"msg{reply.id}"
    assert MESSAGES.told(part).finish_reason is None
    assert MESSAGES.told(part).usage is None


@given(replies)
def test_what_a_body_tells_is_what_the_reply_was(reply: Reply) -> None:
    told = MESSAGES.told(json.loads(json.dumps(MESSAGES.body(reply))))

    assert told.response_id == f"msg{reply.id}"
    assert told.calls == {call.call_id: call.name for call in reply.calls}
    assert told.usage == as_told(reply.usage)
    assert told.finish_reason in ("end_turn", "tool_use", "max_tokens")


@pytest.mark.parametrize(
    "body", [None, "text", [], {"content": 3}, {"type": "error", "error": {"type": "x"}}], ids=repr
)
def test_an_odd_body_tells_nothing(body: Any) -> None:
    told = MESSAGES.told(body)

    assert (told.response_id, told.finish_reason, dict(told.calls), told.usage) == (
        None,
        None,
        {},
        None,
    )


@pytest.mark.parametrize(
    "event",
    [
        {"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta", "text": "x"}},
        {"type": "content_block_delta", "index": "0", "delta": {}},
        {"type": "content_block_delta", "index": 0, "delta": 3},
        {"type": "message_delta", "delta": None},
        {"type": "message_start", "message": None},
        {"type": "new_event"},
    ],
    ids=repr,
)
def test_an_odd_event_is_passed_over(event: dict[str, Any]) -> None:
    frames = MESSAGES.frames(REPLY, usage=True)
    odd = f"data: {json.dumps(event)}\n\n".encode()

    assert MESSAGES.assemble([*frames[:4], odd, *frames[4:]]) == MESSAGES.body(REPLY)


def test_a_failed_stream_keeps_what_came_before_and_the_error() -> None:
    frames = MESSAGES.frames(REPLY, usage=True)[:4]
    failure = MESSAGES.failure_frame(REPLY, message="broken", code="server_error", sequence=4)

    body: Any = MESSAGES.assemble([*frames, failure])

    assert failure.startswith(b"event: error\n")
    assert body["content"] == [{"type": "text", "text": "hello"}]
    assert body["stop_reason"] is None
    assert body["error"] == {"type": "api_error", "message": "broken"}


def test_a_stream_that_fails_after_its_stop_reason_did_not_end_well() -> None:
    frames = MESSAGES.frames(REPLY, usage=True)[:-1]
    failure = MESSAGES.failure_frame(REPLY, message="broken", code="server_error", sequence=6)

    told = MESSAGES.told(MESSAGES.assemble([*frames, failure]))

    assert (told.response_id, told.finish_reason, told.usage) == ("msg0001", None, None)


def test_a_stream_that_fails_at_once_is_the_error() -> None:
    failure = MESSAGES.failure_frame(REPLY, message="x", code="overloaded_error", sequence=0)

    assert MESSAGES.assemble([failure]) == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "x"},
        "request_id": "mc0001",
    }


def test_a_malformed_event_has_a_name_that_clients_read() -> None:
    assert MESSAGES.malformed_frame("{") == b"event: content_block_delta\ndata: {\n\n"


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (402, "billing_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "api_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_errors_have_the_apis_form(status: int, kind: str) -> None:
    assert MESSAGES.error(status, "why", request_id="mc1") == {
        "type": "error",
        "error": {"type": kind, "message": "why"},
        "request_id": "mc1",
    }


@pytest.mark.parametrize(
    ("code", "kind"),
    [("overloaded_error", "overloaded_error"), ("script_refused", "invalid_request_error")],
)
def test_a_code_is_the_type_only_when_the_api_has_it(code: str, kind: str) -> None:
    body: Any = MESSAGES.error(400, "why", code)

    assert body == {"type": "error", "error": {"type": kind, "message": "why"}}


def test_every_reply_names_its_request() -> None:
    assert MESSAGES.headers("mc1") == {"request-id": "mc1"}
