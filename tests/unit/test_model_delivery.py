"""How replies travel: what each fault does to the moves, streamed and not."""

import json
from dataclasses import replace
from typing import Any

import pytest

from sandbox.evidence.exchanges import TokenUsage
from sandbox.model.chat import Chat
from sandbox.model.delivery import (
    Data,
    Drop,
    Move,
    Pause,
    Start,
    bend,
    json_moves,
    reply_moves,
    whole_moves,
)
from sandbox.model.dialect import Ask, Call, Dialect, Reply
from sandbox.model.faults import (
    CutFault,
    EmptyFault,
    Fault,
    LengthFault,
    MalformedFault,
    StallFault,
    StreamErrorFault,
)
from sandbox.model.messages import Messages
from sandbox.model.responses import Responses

REPLY = Reply(
    id="0001",
    model="m",
    created=7,
    text="some text that needs more than one delta to travel",
    usage=TokenUsage(input_tokens=1, output_tokens=1, total_tokens=2),
)
CALL = Call(call_id="call1", name="bash", arguments='{"command": "true"}')
STREAMED = Ask(model="m", stream=True, usage=True)
WHOLE = Ask(model="m", stream=False, usage=True)

every_dialect = pytest.mark.parametrize(
    "dialect", [Chat(), Responses(), Messages()], ids=["chat", "responses", "messages"]
)
both_ways = pytest.mark.parametrize("ask", [STREAMED, WHOLE], ids=["streamed", "whole"])


def kinds(moves: tuple[Move, ...]) -> list[str]:
    return [type(move).__name__ for move in moves]


def body(moves: tuple[Move, ...]) -> bytes:
    return b"".join(move.body for move in moves if isinstance(move, Data))


def send(dialect: Dialect, ask: Ask, fault: Fault | None) -> tuple[Move, ...]:
    return reply_moves(dialect, ask, REPLY, fault)


@every_dialect
def test_without_a_fault_a_stream_is_its_frames(dialect: Dialect) -> None:
    start, *rest = send(dialect, STREAMED, None)

    assert isinstance(start, Start)
    assert start.status == 200
    assert start.headers["content-type"] == "text/event-stream"
    assert rest == [Data(frame) for frame in dialect.frames(REPLY, usage=True)]


@every_dialect
def test_without_a_fault_a_whole_reply_is_its_body(dialect: Dialect) -> None:
    moves = send(dialect, WHOLE, None)

    assert json.loads(body(moves)) == dialect.body(REPLY)


@every_dialect
@both_ways
def test_a_stall_before_the_headers_comes_first_and_changes_nothing_else(
    dialect: Dialect, ask: Ask
) -> None:
    moves = send(dialect, ask, StallFault(at="every", seconds=2.5))

    assert moves[0] == Pause(2.5)
    assert moves[1:] == send(dialect, ask, None)


@every_dialect
@both_ways
def test_a_stall_in_the_stream_has_something_on_either_side(dialect: Dialect, ask: Ask) -> None:
    moves = send(dialect, ask, StallFault(at="every", where="stream"))
    place = moves.index(Pause(None))

    assert kinds(moves[:2]) == ["Start", "Data"]
    assert 2 <= place < len(moves) - 1
    assert body(moves) == body(send(dialect, ask, None))


@pytest.mark.parametrize("after", [1, 3, 10_000])
def test_after_counts_the_frames_before_a_stall(after: int) -> None:
    frames = len(Chat().frames(REPLY, usage=True))
    moves = send(Chat(), STREAMED, StallFault(at="every", where="stream", after=after))

    assert moves.index(Pause(None)) - 1 == min(after, frames - 1)


@every_dialect
@both_ways
def test_a_cut_stream_is_dropped_before_its_end(dialect: Dialect, ask: Ask) -> None:
    moves = send(dialect, ask, CutFault(at="every"))

    assert moves[-1] == Drop()
    assert 0 < len(body(moves)) < len(body(send(dialect, ask, None)))


@every_dialect
def test_a_clean_cut_only_lacks_the_dialects_end(dialect: Dialect) -> None:
    moves = send(dialect, STREAMED, CutFault(at="every", clean=True, after=10_000))

    assert Drop() not in moves
    assert moves == send(dialect, STREAMED, None)[:-1]


@both_ways
def test_a_cut_before_the_headers_sends_nothing(ask: Ask) -> None:
    assert send(Chat(), ask, CutFault(at="every", where="headers")) == (Drop(),)


@every_dialect
@both_ways
def test_a_malformed_reply_is_no_json(dialect: Dialect, ask: Ask) -> None:
    moves = send(dialect, ask, MalformedFault(at="every"))
    last = body(moves[-1:]).decode().rpartition("data: ")[2]

    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(last)
    assert kinds(moves)[-1] == "Data"


@every_dialect
def test_a_stream_error_is_the_last_event(dialect: Dialect) -> None:
    moves = send(dialect, STREAMED, StreamErrorFault(at="every", message="broken"))
    told: Any = dialect.assemble([body(moves)])

    assert told["error"]["message"] == "broken"
    assert moves[0] == Start(200, moves[0].headers if isinstance(moves[0], Start) else {})


def test_a_failed_responses_stream_keeps_counting() -> None:
    moves = send(Responses(), STREAMED, StreamErrorFault(at="every", after=3))
    events = [line for line in body(moves).decode().split("\n") if line.startswith("data:")]

    assert [json.loads(line[5:])["sequence_number"] for line in events] == [0, 1, 2, 3]


@every_dialect
def test_a_stream_error_without_a_stream_is_an_http_error(dialect: Dialect) -> None:
    start = send(dialect, WHOLE, StreamErrorFault(at="every"))[0]

    assert isinstance(start, Start)
    assert start.status == 500


@both_ways
@pytest.mark.parametrize(
    "fault",
    [None, StallFault(at="every"), MalformedFault(at="every"), StreamErrorFault(at="every")],
    ids=lambda fault: getattr(fault, "kind", "none"),
)
def test_headers_of_the_dialect_travel_with_every_reply(ask: Ask, fault: Fault | None) -> None:
    reply = replace(REPLY, request_id="mc0001")
    moves = reply_moves(Messages(), ask, reply, fault)

    (start,) = (move for move in moves if isinstance(move, Start))
    assert start.headers["request-id"] == "mc0001"


@pytest.mark.parametrize("fault", [None, LengthFault(at="every"), EmptyFault(at="every")])
def test_a_count_is_a_body_of_its_own(fault: Fault | None) -> None:
    moves = whole_moves(Messages(), {"input_tokens": 3}, fault, request_id="mc0001")

    assert json.loads(body(moves)) == {"input_tokens": 3}


def test_a_length_stop_halves_the_text() -> None:
    reply = bend(REPLY, LengthFault(at="every"))

    assert reply.length_stop
    assert reply.text == REPLY.text[: len(REPLY.text) // 2]


def test_a_length_stop_in_a_call_halves_its_arguments_and_renames_it() -> None:
    with_call = Reply(id="1", model="m", created=7, text="first", calls=(CALL,))

    reply = bend(with_call, LengthFault(at="every"))

    assert reply.text == "first"
    assert reply.calls[0].arguments == '{"command'
    assert reply.calls[0].call_id == "call1short"


def test_an_empty_answer_says_nothing_and_stops_well() -> None:
    reply = bend(REPLY, EmptyFault(at="every"))

    assert (reply.text, reply.calls, reply.length_stop) == ("", (), False)


def test_other_faults_leave_the_reply_alone() -> None:
    assert bend(REPLY, None) == bend(REPLY, CutFault(at="every")) == REPLY


def test_a_json_reply_says_its_length_and_keeps_given_headers() -> None:
    start, data = json_moves(429, {"error": "ü"}, {"retry-after": "1"})

    assert isinstance(start, Start)
    assert isinstance(data, Data)
    assert start.headers == {
        "content-type": "application/json",
        "content-length": str(len(data.body)),
        "retry-after": "1",
    }
