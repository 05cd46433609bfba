"""How a reply travels: a list of moves on the wire, bent by a fault. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from sandbox.model.dialect import Ask, Dialect, Reply
from sandbox.model.faults import (
    CutFault,
    EmptyFault,
    Fault,
    LengthFault,
    MalformedFault,
    StallFault,
    StreamErrorFault,
)

NOT_JSON = '{"malformed": '


@dataclass(frozen=True)
class Start:
    """Status line and headers."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Data:
    """A piece of the body."""

    body: bytes


@dataclass(frozen=True)
class Pause:
    """Nothing for ``seconds``; None: until the client leaves or the server stops."""

    seconds: float | None


@dataclass(frozen=True)
class Drop:
    """The connection is closed although the message is not complete."""


Move = Start | Data | Pause | Drop


def json_moves(
    status: int, body: JsonValue, headers: Mapping[str, str] | None = None
) -> tuple[Move, ...]:
    """A complete JSON reply."""
    data = _encode(body)
    sized = {"content-type": "application/json", "content-length": str(len(data))}
    return Start(status, {**sized, **(headers or {})}), Data(data)


def bend(reply: Reply, fault: Fault | None) -> Reply:
    """The reply that a fault lets the model say: cut short, or empty.

    A call that is cut short gets an id of its own, so the step stays due whatever the harness
    makes of half a call.
    """
    match fault:
        case EmptyFault():
            return replace(reply, text="", reasoning="", calls=())
        case LengthFault():
            calls = tuple(
                replace(
                    call,
                    call_id=f"{call.call_id}short",
                    arguments=call.arguments[: len(call.arguments) // 2],
                )
                for call in reply.calls
            )
            text = reply.text if calls else reply.text[: len(reply.text) // 2]
            return replace(reply, text=text, calls=calls, length_stop=True)
        case _:
            return reply


def reply_moves(dialect: Dialect, ask: Ask, reply: Reply, fault: Fault | None) -> tuple[Move, ...]:
    """A reply, streamed or not as asked for, with the fault that travels with it."""
    if not ask.stream:
        return whole_moves(dialect, dialect.body(reply), fault, request_id=reply.request_id)
    streamed = {"content-type": "text/event-stream", "cache-control": "no-cache"}
    return _bent(
        Start(200, {**streamed, **dialect.headers(reply.request_id)}),
        dialect.frames(reply, usage=ask.usage),
        fault,
        broken=dialect.malformed_frame(NOT_JSON),
        ending=_ending(dialect, reply),
    )


def whole_moves(
    dialect: Dialect, body: JsonValue, fault: Fault | None, *, request_id: str
) -> tuple[Move, ...]:
    """A reply that is not streamed, with the fault that travels with it."""
    headers = dialect.headers(request_id)
    if isinstance(fault, StreamErrorFault):
        error = dialect.error(500, fault.message, fault.code, request_id=request_id)
        return json_moves(500, error, headers)
    start = Start(200, {"content-type": "application/json", **headers})
    if isinstance(fault, MalformedFault):
        return start, Data(NOT_JSON.encode())
    data = _encode(body)
    return _bent(start, (data[: len(data) // 2], data[len(data) // 2 :]), fault)


def _bent(
    start: Start,
    parts: Sequence[bytes],
    fault: Fault | None,
    *,
    broken: bytes = b"",
    ending: Callable[[StreamErrorFault, int], bytes] = lambda _fault, _sequence: b"",
) -> tuple[Move, ...]:
    sent: tuple[Move, ...] = tuple(Data(part) for part in parts)
    head, tail = _split(sent, fault)
    moves: tuple[Move, ...] = (start, *sent)
    match fault:
        case StallFault(where="headers"):
            moves = (Pause(fault.seconds), start, *sent)
        case StallFault():
            moves = (start, *head, Pause(fault.seconds), *tail)
        case CutFault(where="headers"):
            moves = (Drop(),)
        case CutFault():
            moves = (start, *head) if fault.clean else (start, *head, Drop())
        case MalformedFault():
            moves = (start, *head, Data(broken))
        case StreamErrorFault():
            moves = (start, *head, Data(ending(fault, len(head))))
    return moves


def _ending(dialect: Dialect, reply: Reply) -> Callable[[StreamErrorFault, int], bytes]:
    return lambda fault, sequence: dialect.failure_frame(
        reply, message=fault.message, code=fault.code, sequence=sequence
    )


def _split(moves: Sequence[Move], fault: Fault | None) -> tuple[tuple[Move, ...], tuple[Move, ...]]:
    """The moves before and after a fault in the stream; at least one is on each side."""
    after = getattr(fault, "after", None) or len(moves) // 2
    place = max(1, min(after, len(moves) - 1))
    return tuple(moves[:place]), tuple(moves[place:])


def _encode(body: JsonValue) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
