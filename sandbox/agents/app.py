"""The contract's server: a starlette application around any adapter.

Hooks block, so each runs in a thread of its own. When a request's task is cancelled (the server
ends, or a client in the same process gives up), the hook is told to stop and waited for; a setup
that nobody waits for any more is closed. A client that hangs up during an activation or a run ends
it: nobody could get the answer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import quote, unquote

from pydantic import JsonValue
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from sandbox.agents.contract import (
    ActivateRequest,
    Agent,
    CloseRequest,
    ConflictError,
    EpisodeId,
    SeedRequest,
    interface_of,
)
from sandbox.agents.handling import (
    Answer,
    afterwards,
    answered,
    body_of,
    hung_up,
    in_thread,
    json_answer,
    no_route,
    parsed,
    quietly,
)
from sandbox.agents.legacy import RunRow
from sandbox.agents.lifecycle import AgentSessions
from sandbox.agents.openapi import (
    ACTIVATE,
    CLOSE,
    COOKIE,
    DOCUMENT,
    PREFIX,
    RUN,
    SEED,
    AgentCard,
    openapi_document,
)

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def agent_app(
    agent: Agent[Any],
    *,
    card: AgentCard | None = None,
    sessions: AgentSessions[Any] | None = None,
) -> Starlette:
    """Serve an adapter by the one interface that its class implements.

    Args:
        agent: the adapter.
        card: what the OpenAPI document says of it.
        sessions: its sessions, for somebody who has to close them all; made here otherwise.

    Raises:
        ContractError: the class implements half an interface, or none.
    """
    interface = interface_of(type(agent))
    said = card or AgentCard(name=agent.name, interface=interface)
    served = _Served(agent, sessions or AgentSessions(agent))
    handlers: dict[str, Handler] = {RUN: served.run}
    if interface == "agent-session":
        handlers |= {SEED: served.seed, ACTIVATE: served.activate, CLOSE: served.close}
    routes = [Route(path, handler, methods=["POST"]) for path, handler in handlers.items()]

    async def describe(_: Request) -> Response:
        return json_answer(200, openapi_document(said))  # made when it is asked for: most never are

    return Starlette(
        routes=[Route(DOCUMENT, describe), Mount(PREFIX, routes=routes), *routes],
        exception_handlers={HTTPException: no_route},
    )


class _Served:
    def __init__(self, agent: Agent[Any], sessions: AgentSessions[Any]) -> None:
        self._agent = agent
        self._sessions = sessions
        self._legacy = interface_of(type(agent)) == "legacy"

    async def seed(self, request: Request) -> Response:
        async def work() -> Answer:
            asked = parsed(SeedRequest, await body_of(request))
            _same_rollout(request, asked.episode_id)
            name = asked.agent_session_id

            def give_up() -> None:
                self._sessions.cancel(name)

            try:
                answer = await in_thread(lambda: self._sessions.seed(asked), give_up)
            except asyncio.CancelledError:
                closing = CloseRequest(agent_session_id=name, episode_id=asked.episode_id)
                await afterwards(quietly(lambda: self._sessions.close(closing)))
                raise
            cookies["seeded"] = name
            return answer

        cookies: dict[str, str] = {}
        response = await answered(work, "setup")
        for name in cookies.values():
            response.set_cookie(COOKIE, quote(name, safe=""), httponly=True, samesite="lax")
        return response

    async def activate(self, request: Request) -> Response:
        async def work() -> Answer:
            asked = parsed(ActivateRequest, _bound(request, await body_of(request)))
            name = asked.agent_session_id
            self._same_session_rollout(request, name)

            def give_up() -> None:
                self._sessions.cancel(name)

            async with hung_up(request, give_up):
                return await in_thread(lambda: self._sessions.activate(asked), give_up)

        return await answered(work, "run")

    async def close(self, request: Request) -> Response:
        async def work() -> Answer:
            asked = parsed(CloseRequest, await body_of(request))
            _same_rollout(request, asked.episode_id)
            return await in_thread(lambda: self._sessions.close(asked))

        response = await answered(work, "close")
        response.delete_cookie(COOKIE)
        return response

    async def run(self, request: Request) -> Response:
        async def work() -> Answer:
            body = await body_of(request)
            self._refuse_session(request, body)
            row = parsed(RunRow, body)
            _same_rollout(request, row.episode_id)
            cancel = threading.Event()
            async with hung_up(request, cancel.set):
                asked = row.model_dump(mode="json")
                return await in_thread(lambda: self._agent.run(asked, cancel), cancel.set)

        return await answered(work, "run")

    def _refuse_session(self, request: Request, body: dict[str, JsonValue]) -> None:
        """A run makes its own episode; it is not for a session, nor for an agent that has them."""
        name = body.get("agent_session_id") or _cookie(request)
        if name is not None:
            raise ConflictError(f"/run takes no session, and the request has one: {name}")
        if not self._legacy:
            raise ConflictError(
                f"{self._agent.name} works in agent sessions, not by /run",
                cure=f"seed it: POST {SEED}",
            )

    def _same_session_rollout(self, request: Request, name: str) -> None:
        seeded = self._sessions.episode_of(name)
        if seeded is not None:
            _same_rollout(request, seeded)


# --- what a request says ----------------------------------------------------------------------


def _cookie(request: Request) -> str | None:
    found = request.cookies.get(COOKIE)
    return unquote(found) if found else None


def _bound(request: Request, body: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Bind an activation to the session of its cookie, where the body does not name one."""
    bound, named = _cookie(request), body.get("agent_session_id")
    if bound is not None and named is not None and bound != named:
        raise ConflictError(f"the body names agent session {named}, the cookie {bound}")
    return body if bound is None or named is not None else {**body, "agent_session_id": bound}


def _same_rollout(request: Request, episode: EpisodeId) -> None:
    prefix = request.path_params.get("rollout_id")
    if prefix is not None and prefix != episode.capture_key:
        raise ConflictError(
            f"the path is of rollout {prefix}, the request of rollout {episode.capture_key}"
        )
