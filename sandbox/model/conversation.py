"""One request to a model route: read it, ask the director, play the answer, note what was said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sandbox.evidence.exchanges import TokenUsage
from sandbox.model.body import parse_body
from sandbox.model.capture import Draft
from sandbox.model.delivery import Pause, bend, json_moves, reply_moves, whole_moves
from sandbox.model.dialect import Ask, AskInvalid, Dialect, JsonObject, Reply
from sandbox.model.director import Director, Hold, Refuse, Speak
from sandbox.model.faults import Fault, StallFault, StatusFault, fault_name
from sandbox.model.messages import Messages
from sandbox.model.script import Script
from sandbox.model.wire import Wire

_CHARACTERS_A_TOKEN = 4


class Conversation:
    """Serves the model routes of one script.

    Args:
        script: its faults and options.
        director: follows its steps.
        ahead_s: how far the times in replies are ahead of the clock that is recorded.
    """

    def __init__(self, script: Script, director: Director, *, ahead_s: int = 0) -> None:
        self._script = script
        self._director = director
        self._ahead_s = ahead_s

    async def serve(self, draft: Draft, wire: Wire, dialect: Dialect, *, size: int) -> None:
        """Serve one request of ``size`` bytes whose JSON is in the draft."""
        ask = await _read(draft, wire, dialect, dialect.parse)
        if ask is None:
            return
        draft.streamed = ask.stream
        fault = self._fault(draft, self._director.number(ask))
        if isinstance(fault, StatusFault):
            await _fail(draft, wire, dialect, fault)
            return
        match await self._director.decide(ask):
            case Refuse(reason):
                message = f"script_refused: {reason}"
                await refuse(draft, wire, dialect, 400, message, code="script_refused")
            case Hold():
                draft.fault = draft.fault or "hold"
                await wire.play((Pause(None),))
            case Speak() as speak:
                reply = self._reply(draft, ask, speak, fault, size=size)
                complete = await wire.play(reply_moves(dialect, ask, reply, fault))
                _note(draft, wire, dialect)
                if complete and isinstance(fault, StallFault | None) and _ends(speak):
                    self._director.done(speak.step or 0)

    async def count(self, draft: Draft, wire: Wire, dialect: Messages, *, size: int) -> None:
        """Serve one request that only asks how many tokens a message request would have.

        No model answers it, so it is no call of the draft's dialect and has no number.
        """
        if await _read(draft, wire, dialect, dialect.parse_count) is None:
            return
        fault = self._fault(draft, None)
        if isinstance(fault, StatusFault):
            await _fail(draft, wire, dialect, fault)
            return
        body = dialect.count(_tokens(size))
        await wire.play(whole_moves(dialect, body, fault, request_id=draft.exchange_id))
        draft.response = parse_body(b"".join(wire.sent))

    def _fault(self, draft: Draft, number: int | None) -> Fault | None:
        """The fault on ask ``number`` (None: it has none), noted in the draft."""
        fault = self._script.fault(number)
        draft.fault = None if fault is None else fault_name(fault)
        return fault

    def _reply(
        self, draft: Draft, ask: Ask, speak: Speak, fault: Fault | None, *, size: int
    ) -> Reply:
        said = Reply(
            id=draft.exchange_id.removeprefix("mc"),
            model=ask.model,
            created=int(draft.started_at) + self._ahead_s,
            request_id=draft.exchange_id,
            text=speak.text,
            reasoning=speak.reasoning,
            calls=speak.calls,
        )
        reply = bend(said, fault)
        if not self._script.usage:
            return reply
        return replace(reply, usage=_count(reply, speak.reported_tokens or _tokens(size)))


async def answer(
    draft: Draft,
    wire: Wire,
    status: int,
    body: JsonObject,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Answer with a JSON body and note it."""
    await wire.play(json_moves(status, body, headers))
    draft.response = parse_body(b"".join(wire.sent))


async def refuse(
    draft: Draft,
    wire: Wire,
    dialect: Dialect,
    status: int,
    message: str,
    *,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Answer with an HTTP error in the dialect's form and note it."""
    body = dialect.error(status, message, code, request_id=draft.exchange_id)
    named = dialect.headers(draft.exchange_id)
    await answer(draft, wire, status, body, {**named, **(headers or {})})


async def _read(
    draft: Draft, wire: Wire, dialect: Dialect, parse: Callable[[JsonObject], Ask]
) -> Ask | None:
    """The ask in the draft's request; None when it has none and was answered so."""
    if draft.method != "POST":
        message = f"{draft.method} is not allowed here, only POST"
        await refuse(draft, wire, dialect, 405, message)
        return None
    if not isinstance(draft.request, dict):
        await refuse(draft, wire, dialect, 400, "the body must be a JSON object")
        return None
    try:
        return parse(draft.request)
    except AskInvalid as error:
        await refuse(draft, wire, dialect, 400, str(error))
        return None


async def _fail(draft: Draft, wire: Wire, dialect: Dialect, fault: StatusFault) -> None:
    message, code, headers = fault.message, fault.code, fault.headers
    await refuse(draft, wire, dialect, fault.status, message, code=code, headers=headers)


def _note(draft: Draft, wire: Wire, dialect: Dialect) -> None:
    """Fill in what the reply told, from the bytes that were sent."""
    sent = b"".join(wire.sent)
    draft.response = dialect.assemble([sent]) if draft.streamed else parse_body(sent)
    told = dialect.told(draft.response)
    draft.response_id = told.response_id
    draft.finish_reason = told.finish_reason
    draft.tools_asked = dict(told.calls)
    draft.usage = told.usage


def _ends(speak: Speak) -> bool:
    """Whether the answer itself carries its step out; a tool step is done once it is verified."""
    return speak.step is not None and not speak.calls


def _count(reply: Reply, asked: int) -> TokenUsage:
    """Token counts: ``asked`` for the request, and what follows from the reply's text."""
    reasoning = -(-len(reply.reasoning) // _CHARACTERS_A_TOKEN)
    said = len(reply.text) + sum(len(call.name) + len(call.arguments) for call in reply.calls)
    output = max(1, said // _CHARACTERS_A_TOKEN) + reasoning
    return TokenUsage(
        input_tokens=asked,
        output_tokens=output,
        total_tokens=asked + output,
        reasoning_tokens=reasoning,
        cached_tokens=0,
    )


def _tokens(size: int) -> int:
    """Tokens of a request of ``size`` bytes."""
    return max(1, size // _CHARACTERS_A_TOKEN)
