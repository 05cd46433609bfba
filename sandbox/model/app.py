"""The model server's ASGI app: routes a request to its dialect, plays the answer, captures both."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import unquote

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from sandbox.model.body import parse_body
from sandbox.model.capture import Capture, Draft, saved_headers, session_of
from sandbox.model.chat import Chat
from sandbox.model.conversation import Conversation, answer, refuse
from sandbox.model.dialect import Dialect
from sandbox.model.director import Director
from sandbox.model.messages import VERSION_HEADER, Messages
from sandbox.model.models import anthropic_models, openai_models
from sandbox.model.responses import Responses
from sandbox.model.script import Script
from sandbox.model.wire import BodyTooLarge, ClientGone, Wire, request_path

CHAT, MESSAGES = Chat(), Messages()
DIALECTS: Mapping[str, Dialect] = {
    "/chat/completions": CHAT,
    "/responses": Responses(),
    "/messages": MESSAGES,
}
COUNT = "/messages/count_tokens"


class ModelApp:
    """ASGI app that serves one script under ``/rollout/<rollout id>/v1``.

    Args:
        script: what is said, and what goes wrong.
        rollout_id: the only one that is answered; any other path is a 404.
        director: follows the script.
        capture: takes every exchange.
        clock: wall time in seconds since the epoch.
        ahead_s: how far the times in replies are ahead of it.
        stopping: set when the server stops.
        hang_up: closes the connection of a scope's client at once.
        models: ids that the models list names.
        verifier_host: the address whose callers are the verifier; None: there is none.
    """

    def __init__(
        self,
        script: Script,
        *,
        rollout_id: str,
        director: Director,
        capture: Capture,
        clock: Callable[[], float],
        ahead_s: int = 0,
        stopping: asyncio.Event,
        hang_up: Callable[[Scope], None],
        models: Sequence[str],
        verifier_host: str | None = None,
    ) -> None:
        self._conversation = Conversation(script, director, ahead_s=ahead_s)
        self._rollout_id = rollout_id
        self._capture = capture
        self._clock = clock
        self._stopping = stopping
        self._hang_up = hang_up
        self._models = tuple(models)
        self._verifier_host = verifier_host
        self._numbers = itertools.count(1)
        self._origin = hashlib.sha256(rollout_id.encode()).hexdigest()[:10]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one exchange and capture it."""
        wire = Wire(
            receive,
            send,
            stopping=self._stopping,
            hang_up=lambda: self._hang_up(scope),
            clock=self._clock,
        )
        draft = self._open(scope)
        try:
            await self._serve(draft, wire)
        finally:
            exchange = draft.ended(
                status_code=wire.status,
                disconnected=wire.client_left,
                completed_at=self._clock() if wire.ending_at is None else wire.ending_at,
            )
            self._capture.add(exchange, draft.tools_asked)

    def _open(self, scope: Scope) -> Draft:
        headers = saved_headers(Headers(scope=scope).items())
        path = request_path(scope)
        host = (scope.get("server") or (None,))[0]
        return Draft(
            exchange_id=f"mc{next(self._numbers):05d}{self._origin}",
            rollout_id=split_path(path)[0],
            method=scope["method"],
            path=path,
            headers=headers,
            client_session_id=session_of(headers),
            started_at=self._clock(),
            caller="verifier" if host is not None and host == self._verifier_host else "agent",
        )

    async def _serve(self, draft: Draft, wire: Wire) -> None:
        try:
            raw = await wire.body()
        except ClientGone as gone:
            draft.request = parse_body(gone.args[0])
            return
        except BodyTooLarge as error:
            await refuse(draft, wire, _form(draft), 413, str(error))
            return
        draft.request = parse_body(raw)
        tail = split_path(draft.path)[1]
        if draft.rollout_id != self._rollout_id or tail is None:
            await refuse(draft, wire, _form(draft), 404, f"no route {draft.path}")
        elif tail in DIALECTS:
            draft.dialect = DIALECTS[tail].name
            await self._conversation.serve(draft, wire, DIALECTS[tail], size=len(raw))
        elif tail == COUNT:
            await self._conversation.count(draft, wire, MESSAGES, size=len(raw))
        else:
            await self._plain(draft, wire, tail.rstrip("/"))

    async def _plain(self, draft: Draft, wire: Wire, tail: str) -> None:
        """Answer what clients ask beside model calls: which models there are."""
        form = _form(draft)
        bodies = (anthropic_models if form is MESSAGES else openai_models)(self._models)
        if tail not in bodies:
            await refuse(draft, wire, form, 404, f"no route {tail}")
        elif draft.method not in ("GET", "HEAD"):
            message = f"{draft.method} is not allowed here, only GET"
            await refuse(draft, wire, form, 405, message)
        else:
            await answer(draft, wire, 200, bodies[tail], form.headers(draft.exchange_id))


def _form(draft: Draft) -> Dialect:
    """The dialect in whose form a request beside the model routes is answered."""
    tail = split_path(draft.path)[1] or ""
    is_anthropic = tail.startswith("/messages") or VERSION_HEADER in draft.headers
    return MESSAGES if is_anthropic else CHAT


def split_path(path: str) -> tuple[str | None, str | None]:
    """Rollout id and the rest after ``/v1`` of a request path, each None when it is not there.

    ``/rollout/<id>`` itself is answered like its ``/v1``, since some clients look there first.
    """
    parts = path.partition("?")[0].split("/", 4)
    if len(parts) < 3 or parts[:2] != ["", "rollout"] or not parts[2]:
        return None, None
    rollout_id = unquote(parts[2])
    if parts[3:] in ([], [""], ["v1"]):
        return rollout_id, ""
    return rollout_id, f"/{parts[4]}" if parts[3] == "v1" else None
