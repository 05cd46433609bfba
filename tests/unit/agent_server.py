"""The contract's fake adapter behind the contract's own server: one client for each session."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Self

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal
from starlette.applications import Starlette

from sandbox.agents.app import agent_app
from sandbox.agents.client import IN_PROCESS, HttpAgent, Patience
from sandbox.agents.contract import (
    ActivateRequest,
    CloseRequest,
    CloseResponse,
    SeedRequest,
    SeedResponse,
)
from sandbox.agents.lifecycle import AgentSessions
from sandbox.agents.openapi import ACTIVATE, SEED
from sandbox.agents.response import AgentResponse
from sandbox.agents.server import LocalServer
from tests.unit.session_fakes import FakeAgent, activate_request, close_request, seed_request

IMPATIENT = Patience(setup_s=20, grace_s=20, close_s=20, document_s=20)


class Clients:
    """Asks like ``AgentSessions``, over HTTP; over a real socket when ``socket`` is true.

    ``app`` is served here, or is the URL of a server that runs already.
    """

    def __init__(self, app: Starlette | str, *, socket: bool = False) -> None:
        self._app = app
        self._socket = socket or isinstance(app, str)
        self._stack = ExitStack()
        self._clients: dict[str, HttpAgent] = {}
        self.portal: BlockingPortal
        self.url = IN_PROCESS

    def __enter__(self) -> Self:
        self.portal = self._stack.enter_context(start_blocking_portal("asyncio"))
        if isinstance(self._app, str):
            self.url = self._app
        elif self._socket:
            self.url = self._stack.enter_context(LocalServer(self._app)).url
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def raw(self) -> httpx.AsyncClient:
        made = httpx.AsyncClient(transport=self._transport(), base_url=self.url, timeout=20)
        self._stack.callback(lambda: self.portal.call(made.aclose))
        return made

    def _transport(self) -> httpx.AsyncBaseTransport:
        if self._socket or isinstance(self._app, str):
            return httpx.AsyncHTTPTransport(verify=False)  # plain HTTP: read no certificates
        return httpx.ASGITransport(self._app)

    def of(self, session: str) -> HttpAgent:
        if session not in self._clients:
            self._clients[session] = HttpAgent(
                self.raw(), self.portal, patience=IMPATIENT, prefixed=not self._socket
            )
        return self._clients[session]

    def seed(self, request: SeedRequest) -> SeedResponse:
        return self.of(request.agent_session_id).seed(request)

    def activate(self, request: ActivateRequest) -> AgentResponse:
        return self.of(request.agent_session_id).activate(request)

    def close(self, request: CloseRequest) -> CloseResponse:
        return self.of(request.agent_session_id).close(request)


class Slow:
    """Makes the fake wait for its cancel in one duty, and remembers that it was told."""

    def __init__(self) -> None:
        self.begun, self.told = threading.Event(), threading.Event()

    def __call__(self, cancel: threading.Event) -> None:
        self.begun.set()
        assert cancel.wait(60)
        self.told.set()


def given_up(during: str, *, socket: bool) -> None:
    """A client gives up in the middle of a duty: the work is told, and nothing is left."""
    agent, slow = FakeAgent(), Slow()
    sessions = AgentSessions(agent, stop_wait_s=10)
    if during == "setup":
        agent.while_seeding = slow
    else:
        agent.while_active = slow
    with Clients(agent_app(agent, sessions=sessions), socket=socket) as clients:
        http = clients.raw()

        async def ask() -> None:
            if during == "run":
                await http.post(SEED, content=seed_request().model_dump_json())
            await http.post(SEED if during == "setup" else ACTIVATE, content=body)

        body = (seed_request() if during == "setup" else activate_request()).model_dump_json()
        future = clients.portal.start_task_soon(ask)
        assert slow.begun.wait(60)
        future.cancel()
        if during == "setup" and socket:  # a seed may be asked again: only a close ends it
            clients.close(close_request())
        assert slow.told.wait(60)
        clients.close(close_request())
    assert [held.released for held in agent.made] == [1]
