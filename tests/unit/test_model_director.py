"""The director: goes on only when the tool really ran and its result came back."""

import asyncio
from collections.abc import Mapping

import pytest

from sandbox.model.dialect import Ask, Tool
from sandbox.model.director import Decision, Director, Hold, Refuse, Speak
from sandbox.model.script import (
    HoldStep,
    ParallelToolStep,
    RawToolStep,
    Script,
    TextStep,
    ToolStep,
)

BASH = Tool(name="bash", schema={"properties": {"command": {"type": "string"}}})
EXEC = Tool(name="exec_command", schema={"properties": {"cmd": {"type": "string"}}})
POLL = Tool(name="write_stdin", schema={})
YIELDED = "Chunk ID: a\nWall time: 10 seconds\nProcess running with session ID 42\nOutput:\nx\n"
EXITED = "Chunk ID: b\nWall time: 4 seconds\nProcess exited with code 0\nOutput:\n"


def tool(number: int, exit_code: int | None = 0) -> ToolStep:
    return ToolStep(
        command=f"run {number}",
        marker=f"m{number}",
        marker_text=f"text {number}",
        output="",
        exit_code=exit_code,
    )


class Room:
    """A director over a dict of files; every look is noted."""

    def __init__(self, script: Script, files: Mapping[str, str | Exception]) -> None:
        self.script = script
        self.files = dict(files)
        self.looks: list[str] = []
        self.director = Director(script, self._read)
        self.ids = [call.call_id for call in script.all_calls()]

    async def _read(self, path: str) -> str | None:
        self.looks.append(path)
        found = self.files.get(path)
        if isinstance(found, Exception):
            raise found
        return found

    def ask(
        self,
        results: Mapping[str, str] | None = None,
        *,
        tools: tuple[Tool, ...] = (BASH,),
        requested: tuple[str, ...] = (),
    ) -> Decision:
        ask = Ask(
            model="m",
            stream=True,
            usage=True,
            tools=tools,
            results=results or {},
            requested=requested,
        )
        return asyncio.run(self.director.decide(ask))


SCRIPT = Script(steps=(tool(1), tool(2), TextStep(text="done", reasoning="why")))
RAN = {"m1": "text 1", "m2": "text 2\n"}


def refusal(decision: Decision) -> str:
    assert isinstance(decision, Refuse)
    return decision.reason


def test_the_script_goes_its_way() -> None:
    room = Room(SCRIPT, RAN)
    first, second = room.ids

    one, two, three = room.ask(), room.ask({first: ""}), room.ask({first: "", second: ""})

    assert isinstance(one, Speak)
    assert isinstance(two, Speak)
    assert [call.arguments for call in one.calls + two.calls] == [
        '{"command": "run 1"}',
        '{"command": "run 2"}',
    ]
    assert three == Speak(step=2, text="done", reasoning="why")
    assert room.director.report().steps_done == 2


def test_the_same_request_gets_the_same_step() -> None:
    room = Room(SCRIPT, RAN)

    assert room.ask() == room.ask()
    assert room.ask({room.ids[0]: ""}) == room.ask({room.ids[0]: ""})
    assert room.ask() == room.ask()


def test_a_tool_that_did_not_run_stops_the_script() -> None:
    room = Room(SCRIPT, {})

    reason = refusal(room.ask({room.ids[0]: "I ran it, honestly"}))

    assert reason == f"tool call {room.ids[0]} did not run: no marker m1"
    assert room.director.report().refusal == reason
    assert room.director.report().steps_done == 0


def test_a_marker_with_another_text_stops_the_script() -> None:
    room = Room(SCRIPT, {"m1": "text 2"})

    assert "holds 'text 2', not 'text 1'" in refusal(room.ask({room.ids[0]: ""}))


def test_a_missing_result_stops_the_script() -> None:
    room = Room(SCRIPT, RAN)
    first, second = room.ids

    assert first in refusal(room.ask(requested=(first,)))
    assert first in refusal(room.ask({second: ""}))


def test_the_first_refusal_is_the_one_reported() -> None:
    room = Room(SCRIPT, {})
    first = refusal(room.ask({room.ids[0]: ""}))
    refusal(room.ask(requested=(room.ids[0],)))

    assert room.director.report().refusal == first


def test_a_marker_that_cannot_be_read_says_so() -> None:
    room = Room(SCRIPT, {"m1": RuntimeError("engine gone")})

    reason = refusal(room.ask({room.ids[0]: ""}))

    assert reason == "marker m1 could not be read: RuntimeError: engine gone"


def test_a_verified_call_is_not_looked_at_again() -> None:
    room = Room(SCRIPT, RAN)
    room.ask({room.ids[0]: ""})
    room.files.clear()

    assert isinstance(room.ask({room.ids[0]: ""}), Speak)
    assert room.looks == ["m1"]


def test_without_a_shell_tool_the_script_stops() -> None:
    room = Room(SCRIPT, RAN)

    reason = refusal(room.ask(tools=(Tool(name="read", schema={}),)))

    assert reason == "no shell tool is advertised; advertised tools: read"


def test_a_script_that_is_over_says_so() -> None:
    room = Room(Script(steps=(tool(1),)), RAN)

    assert "the script is over" in refusal(room.ask({room.ids[0]: ""}))
    assert room.director.report().steps_done == 1


def test_parallel_calls_are_all_asked_for_and_all_verified() -> None:
    script = Script(steps=(ParallelToolStep(calls=(tool(1), tool(2))), TextStep(text="done")))
    room = Room(script, {"m1": "text 1"})

    first = room.ask()

    assert isinstance(first, Speak)
    assert [call.call_id for call in first.calls] == room.ids
    assert "no marker m2" in refusal(room.ask(dict.fromkeys(room.ids, "")))


def test_raw_calls_go_out_as_written_and_need_only_a_result() -> None:
    unknown = RawToolStep(tool_name="nope", arguments="{")
    broken = RawToolStep(tool_name=None, arguments="{")
    room = Room(Script(steps=(unknown, broken, TextStep(text="done"))), {})

    one, two = room.ask(), room.ask({room.ids[0]: "unsupported"})

    assert isinstance(one, Speak)
    assert isinstance(two, Speak)
    assert [(call.name, call.arguments) for call in one.calls + two.calls] == [
        ("nope", "{"),
        ("bash", "{"),
    ]
    assert isinstance(room.ask(dict.fromkeys(room.ids, "error")), Speak)
    assert room.looks == []


def test_a_tool_that_never_ends_may_be_held_after_an_early_result() -> None:
    room = Room(Script(steps=(tool(1, exit_code=None), HoldStep())), RAN)

    decision = room.ask({room.ids[0]: YIELDED}, tools=(EXEC, POLL))

    assert decision == Hold(step=1)
    assert room.director.report().steps_done == 2


def test_a_tool_that_never_ends_must_still_have_begun() -> None:
    room = Room(Script(steps=(tool(1, exit_code=None), HoldStep())), {})

    assert "no marker m1" in refusal(room.ask({room.ids[0]: YIELDED}, tools=(EXEC, POLL)))


def test_a_tool_that_yielded_is_polled_until_it_ends() -> None:
    room = Room(SCRIPT, RAN)
    first = room.ids[0]
    results = {first: YIELDED}

    for number in (1, 2):
        decision = room.ask(results, tools=(EXEC, POLL))
        assert isinstance(decision, Speak)
        (poll,) = decision.calls
        assert (poll.call_id, poll.name) == (f"{first}p{number}", "write_stdin")
        assert '"session_id": 42' in poll.arguments
        assert room.looks == []
        results[poll.call_id] = YIELDED if number == 1 else EXITED

    decision = room.ask(results, tools=(EXEC, POLL))

    assert isinstance(decision, Speak)
    assert decision.step == 1


@pytest.mark.parametrize(
    ("result", "tools"),
    [
        (EXITED + "Process running with session ID 42\n", (EXEC, POLL)),
        (YIELDED, (EXEC,)),
        ("Process running\n", (EXEC, POLL)),
    ],
    ids=["in the output", "no poll tool", "other words"],
)
def test_what_is_no_yield_is_not_polled(result: str, tools: tuple[Tool, ...]) -> None:
    room = Room(SCRIPT, RAN)

    decision = room.ask({room.ids[0]: result}, tools=tools)

    assert isinstance(decision, Speak)
    assert decision.step == 1


def test_helper_calls_get_the_helper_text_and_move_nothing() -> None:
    room = Room(SCRIPT, RAN)

    assert room.ask(tools=()) == Speak(step=None, text=SCRIPT.helper_text)
    assert room.director.report().steps_done == 0


def test_a_summary_of_a_history_claims_the_size_that_the_history_had() -> None:
    full = tool(1).model_copy(update={"reported_tokens": 980_000})
    script = Script(steps=(full, TextStep(text="done")), compacts=True)
    early, late = Room(script, RAN), Room(script, RAN)
    late.ask()
    claims = [room.ask(tools=()) for room in (early, late)]
    assert [one.reported_tokens for one in claims if isinstance(one, Speak)] == [None, 980_000]


def test_asks_are_numbered_and_helper_calls_are_not() -> None:
    director = Room(SCRIPT, RAN).director
    with_tools = Ask(model="m", stream=True, usage=True, tools=(BASH,))
    helper = Ask(model="m", stream=True, usage=True)

    assert [director.number(ask) for ask in (with_tools, helper, with_tools)] == [1, None, 2]


def test_text_before_a_call_is_said() -> None:
    spoken = tool(1).model_copy(update={"text": "I look first."})
    decision = Room(Script(steps=(spoken,)), {}).ask()

    assert isinstance(decision, Speak)
    assert (decision.text, len(decision.calls)) == ("I look first.", 1)
