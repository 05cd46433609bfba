"""One request to a model route: read it, ask the director, play the answer, note what was said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sandbox.evidence.records import TokenUsage
from sandbox.model.body import parse_body
from sandbox.model.capture import Draft
from sandbox.model.delivery import Pause, bend, json_moves, reply_moves
from sandbox.model.dialect import Ask, AskInvalid, Dialect, JsonObject, Reply
from sandbox.model.director import Director, Hold, Refuse, Speak
from sandbox.model.faults import Fault, StallFault, StatusFault, fault_name
from sandbox.model.script import Script
from sandbox.model.wire import Wire

_CHARACTERS_A_TOKEN = 4


class Conversation:
    """Serves the model routes of one script.

    Args:
        script: its faults and options.
        director: follows its steps.
    """

    def __init__(self, script: Script, director: Director) -> None:
        self._script = script
        self._director = director

    async def serve(self, draft: Draft, wire: Wire, dialect: Dialect, *, size: int) -> None:
        """Serve one request of ``size`` bytes whose JSON is in the draft."""
        if draft.method != "POST":
            message = f"{draft.method} is not allowed here, only POST"
            await answer(draft, wire, 405, dialect.error(405, message))
            return
        try:
            ask = _parse(dialect, draft)
        except AskInvalid as error:
            await answer(draft, wire, 400, dialect.error(400, str(error)))
            return
        draft.streamed = ask.stream
        fault = self._script.fault(self._director.number(ask))
        draft.fault = None if fault is None else fault_name(fault)
        if isinstance(fault, StatusFault):
            body = dialect.error(fault.status, fault.message, fault.code)
            await answer(draft, wire, fault.status, body, fault.headers)
            return
        match await self._director.decide(ask):
            case Refuse(reason):
                body = dialect.error(400, f"script_refused: {reason}", "script_refused")
                await answer(draft, wire, 400, body)
            case Hold():
                draft.fault = draft.fault or "hold"
                await wire.play((Pause(None),))
            case Speak() as speak:
                reply = self._reply(draft, ask, speak, fault, size=size)
                complete = await wire.play(reply_moves(dialect, ask, reply, fault))
                _note(draft, wire, dialect)
                if complete and isinstance(fault, StallFault | None) and _ends(speak):
                    self._director.done(speak.step or 0)

    def _reply(
        self, draft: Draft, ask: Ask, speak: Speak, fault: Fault | None, *, size: int
    ) -> Reply:
        said = Reply(
            id=draft.exchange_id.removeprefix("mc"),
            model=ask.model,
            created=int(draft.started_at),
            text=speak.text,
            reasoning=speak.reasoning,
            calls=speak.calls,
        )
        reply = bend(said, fault)
        return replace(reply, usage=_count(reply, size)) if self._script.usage else reply


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


def _parse(dialect: Dialect, draft: Draft) -> Ask:
    if not isinstance(draft.request, dict):
        raise AskInvalid("the body must be a JSON object")
    return dialect.parse(draft.request)


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


def _count(reply: Reply, size: int) -> TokenUsage:
    """Token counts that follow from the request's size and the reply's text alone."""
    reasoning = -(-len(reply.reasoning) // _CHARACTERS_A_TOKEN)
    said = len(reply.text) + sum(len(call.name) + len(call.arguments) for call in reply.calls)
    output = max(1, said // _CHARACTERS_A_TOKEN) + reasoning
    return TokenUsage(
        input_tokens=max(1, size // _CHARACTERS_A_TOKEN),
        output_tokens=output,
        total_tokens=max(1, size // _CHARACTERS_A_TOKEN) + output,
        reasoning_tokens=reasoning,
        cached_tokens=0,
    )
