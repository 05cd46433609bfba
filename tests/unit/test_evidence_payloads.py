"""Bodies of the three dialects, read as conversation items."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from sandbox.evidence import payloads
from sandbox.evidence.observations import (
    MessageItem,
    ReasoningItem,
    ToolRequestItem,
    ToolResultItem,
)

USER = MessageItem(role="user", text="hello")
REQUEST = ToolRequestItem(tool_call_id="c1", tool_name="shell", arguments='{"cmd": "ls"}')
RESULT = ToolResultItem(tool_call_id="c1", output="a b")
THOUGHT = ReasoningItem(text="hm")
SAID = MessageItem(role="assistant", text="done")

RESPONSES: JsonValue = {
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "hel"}, {"text": "lo"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": '{"cmd": "ls"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "a b"},
        {"type": "message", "role": "assistant", "content": "done"},
        {"type": "unknown"},
        7,
    ]
}
CHAT: JsonValue = {
    "messages": [
        {"role": "user", "content": "hello"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "c1", "function": {"name": "shell", "arguments": '{"cmd": "ls"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "a b"}]},
        {"role": "assistant", "content": "done"},
        {"role": "stranger", "content": "x"},
    ]
}
MESSAGES: JsonValue = {
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hello"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "", "signature": "s"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "tool_use", "id": "c1", "name": "shell", "input": {"cmd": "ls"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "text", "text": "a b"}],
                }
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
    ]
}


@pytest.mark.parametrize(
    ("dialect", "body"), [("responses", RESPONSES), ("chat", CHAT), ("messages", MESSAGES)]
)
def test_the_same_history_in_each_dialect(dialect: payloads.Dialect, body: JsonValue) -> None:
    assert payloads.history(dialect, body) == (USER, THOUGHT, REQUEST, RESULT, SAID)
    assert payloads.tool_results(dialect, body) == {"c1": "a b"}


def test_a_messages_history_may_hold_system_messages_and_failed_results() -> None:
    body: JsonValue = {
        "system": [{"type": "text", "text": "instructions"}],
        "messages": [
            {"role": "user", "content": "hello"},
            {"role": "system", "content": "# Environment"},
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "content": "a b",
                        "is_error": True,
                        "cache_control": {"type": "ephemeral"},
                    },
                    {"type": "tool_result", "tool_use_id": "c2"},
                    {"type": "text", "text": "go on"},
                ],
            },
        ],
    }

    assert payloads.history("messages", body) == (
        USER,
        MessageItem(role="system", text="# Environment"),
        RESULT,
        ToolResultItem(tool_call_id="c2", output=""),
        MessageItem(role="user", text="go on"),
    )


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ({"command": "echo ä"}, '{"command": "echo ä"}'),
        ({}, "{}"),
        ('{"command": "ec', '{"command": "ec'),
    ],
    ids=["object", "empty", "no JSON"],
)
def test_a_messages_input_is_a_text_again(given: JsonValue, arguments: str) -> None:
    block: JsonValue = {"type": "tool_use", "id": "c1", "name": "shell", "input": given}

    (item,) = payloads.answer("messages", {"content": [block]})

    assert item == ToolRequestItem(tool_call_id="c1", tool_name="shell", arguments=arguments)


def test_input_may_be_a_string() -> None:
    assert payloads.history("responses", {"input": "hello"}) == (USER,)


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        (
            "responses",
            {"output": [{"type": "message", "role": "assistant", "content": [{"text": "done"}]}]},
        ),
        ("chat", {"choices": [{"message": {"content": "done"}}]}),
        ("messages", {"content": [{"type": "text", "text": "done"}]}),
    ],
)
def test_the_same_answer_in_each_dialect(dialect: payloads.Dialect, body: JsonValue) -> None:
    assert payloads.answer(dialect, body) == (SAID,)


def test_the_newest_user_text_is_the_question() -> None:
    assert payloads.question((USER, SAID, MessageItem(role="user", text="and now"))) == "and now"
    assert payloads.question((SAID,)) == ""


def test_a_structured_tool_output_is_read() -> None:
    item: JsonValue = {
        "type": "function_call_output",
        "call_id": "c1",
        "output": {"content": "a b"},
    }
    assert payloads.tool_results("responses", {"input": [item]}) == {"c1": "a b"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["input", "messages", "content", "role", "type", "tool_calls", "output", "choices"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(dialect=st.sampled_from(["responses", "chat", "messages"]), body=JSON)
def test_no_body_is_too_strange(dialect: payloads.Dialect, body: JsonValue) -> None:
    payloads.history(dialect, body)
    payloads.answer(dialect, body)


@pytest.mark.parametrize(
    ("tools", "names"),
    [
        ([{"type": "function", "function": {"name": "shell"}}], ("shell",)),
        ([{"name": "Bash", "input_schema": {}}, {"type": "web_search"}], ("Bash",)),
        ([{"name": "agents", "tools": [{"name": "spawn_agent"}]}], ("agents", "spawn_agent")),
        ("nonsense", ()),
    ],
    ids=["chat", "messages", "namespace", "malformed"],
)
def test_advertised_tools_are_named_in_every_dialect(
    tools: JsonValue, names: tuple[str, ...]
) -> None:
    assert payloads.tool_names({"tools": tools}) == names
