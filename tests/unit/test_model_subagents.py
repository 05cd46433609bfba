"""Subagents and shortened histories: whose step is due when not all requests are the root's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import pytest

from sandbox.model.dialect import Ask, Call, Tool
from sandbox.model.director import Decision, Director, Refuse, Speak
from sandbox.model.script import Script, SubagentStep, TextStep, ToolStep
from sandbox.model.subagents import subagent_call

BASH = Tool(name="bash", schema={"properties": {"command": {"type": "string"}}})
TASK = Tool(
    name="task",
    schema={
        "properties": {
            name: {"type": "string"} for name in ("description", "prompt", "subagent_type")
        },
        "required": ["description", "prompt", "subagent_type"],
    },
)
SPAWN = Tool(name="spawn_agent", schema={"properties": {"message": {"type": "string"}}})
WAIT = Tool(name="wait_agent", schema={})
PROMPT = "Do the inner work."
FILES = {"inner": "inner text", "m1": "text 1", "m2": "text 2"}


def tool(name: str, text: str, tokens: int | None = None) -> ToolStep:
    return ToolStep(
        command=f"run {name}",
        marker=name,
        marker_text=text,
        output="",
        exit_code=0,
        reported_tokens=tokens,
    )


DELEGATES = Script(
    steps=(
        SubagentStep(prompt=PROMPT, steps=(tool("inner", "inner text"), TextStep(text="inner"))),
        TextStep(text="outer"),
    )
)
COMPACTS = Script(
    steps=(
        tool("m1", "text 1", 190_000),
        tool("m2", "text 2"),
        TextStep(text="done", reported_tokens=190_000),
    ),
    compacts=True,
)


class Room:
    def __init__(self, script: Script) -> None:
        async def read(path: str) -> str | None:
            return FILES.get(path)

        self.director = Director(script, read)

    def ask(
        self,
        prompt: str,
        results: Mapping[str, str] | None = None,
        tools: tuple[Tool, ...] = (BASH, TASK),
    ) -> Decision:
        given = results or {}
        ask = Ask(
            model="m",
            stream=True,
            usage=True,
            tools=tools,
            results=given,
            requested=tuple(given),
            prompts=("first", prompt),
        )
        return asyncio.run(self.director.decide(ask))

    def call(self, *args: object) -> Call:
        decision = self.ask(*args)  # type: ignore[arg-type]
        assert isinstance(decision, Speak)
        (call,) = decision.calls
        return call


def test_root_and_subagent_each_get_their_own_steps() -> None:
    room = Room(DELEGATES)
    spawn = room.call("outer prompt")
    assert (spawn.name, json.loads(spawn.arguments)["prompt"]) == ("task", PROMPT)
    inner = room.call(f"<task>{PROMPT}</task>")
    assert inner.name == "bash"
    assert inner.call_id != spawn.call_id
    said = room.ask(PROMPT, {inner.call_id: "ok"})
    assert isinstance(said, Speak)
    assert (said.text, said.step) == ("inner", None)
    assert room.director.report().steps_done == 0, "the subagent's end is not the root's"
    last = room.ask("outer prompt", {spawn.call_id: "inner"})
    assert isinstance(last, Speak)
    assert (last.text, last.step) == ("outer", 1)
    (expected,) = DELEGATES.expectations()
    assert (expected.tool_call_id, expected.spawned_by) == (inner.call_id, spawn.call_id)


def test_without_a_subagent_tool_the_root_runs_the_command_itself() -> None:
    room = Room(DELEGATES)
    call = room.call("outer prompt", None, (BASH,))
    assert (call.name, call.call_id) == ("bash", DELEGATES.expectations()[0].tool_call_id)
    last = room.ask("outer prompt", {call.call_id: "ok"}, (BASH,))
    assert isinstance(last, Speak)
    assert last.text == "outer"


def test_a_subagent_that_works_on_is_waited_for() -> None:
    room = Room(DELEGATES)
    tools = (BASH, SPAWN, WAIT)
    spawn = room.call("outer prompt", None, tools)
    assert json.loads(spawn.arguments) == {"message": PROMPT}
    started = {spawn.call_id: '{"agent_id":"a1","nickname":"x"}'}
    wait = room.call("outer prompt", started, tools)
    assert (wait.name, json.loads(wait.arguments)["targets"]) == ("wait_agent", ["a1"])
    ended = {**started, wait.call_id: '{"status":{"a1":{"completed":"inner"}}}'}
    last = room.ask("outer prompt", ended, tools)
    assert isinstance(last, Speak)
    assert last.text == "outer"


@pytest.mark.parametrize("tools", [(), (BASH,)], ids=["none", "shell only"])
def test_no_subagent_tool_no_call(tools: tuple[Tool, ...]) -> None:
    assert subagent_call(tools, "c1", "x") is None


def test_a_shortened_history_goes_on_where_it_was() -> None:
    room = Room(COMPACTS)
    first = room.ask("go")
    assert isinstance(first, Speak)
    assert first.reported_tokens == 190_000
    second = room.call("go", {first.calls[0].call_id: "ok"})
    helper = room.ask("Create a detailed summary of the conversation so far.")
    assert isinstance(helper, Speak)
    assert (helper.text, helper.calls) == (COMPACTS.helper_text, ())
    again = room.call("what was: a summary")
    assert again.call_id == second.call_id, "the verified first call is not asked for again"
    last = room.ask("what was: a summary", {second.call_id: "ok"})
    assert isinstance(last, Speak)
    assert (last.text, last.reported_tokens) == ("done", None)


def test_a_result_that_only_the_summary_saw_counts_too() -> None:
    room = Room(COMPACTS)
    first = room.call("go")
    room.ask("Create a detailed summary of it all.", {first.call_id: "ok"})
    again = room.ask("what was: a summary")
    assert isinstance(again, Speak)
    assert [call.call_id for call in again.calls] == [COMPACTS.all_calls()[1].call_id]


def test_a_history_that_was_not_shortened_is_full_at_the_end_too() -> None:
    room = Room(COMPACTS)
    first = room.call("go")
    second = room.call("go", {first.call_id: "ok"})
    last = room.ask("go", {first.call_id: "ok", second.call_id: "ok"})
    assert isinstance(last, Speak)
    assert last.reported_tokens == 190_000


def test_other_scripts_do_not_forgive_a_lost_result() -> None:
    room = Room(COMPACTS.model_copy(update={"compacts": False}))
    first = room.call("go")
    second = room.call("go", {first.call_id: "ok"})
    assert isinstance(room.ask("go", {second.call_id: "ok"}), Refuse)
