"""The resources server of a legacy run: seeds the agent's sandbox, and grades what is in it."""

from __future__ import annotations

from typing import Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sandbox.agents.handling import Answer, answered, body_of, in_thread, no_route, parsed
from sandbox.agents.legacy import (
    SEED_SESSION,
    VERIFY,
    SeedSessionRequest,
    SeedSessionResponse,
    VerifyRequest,
    VerifyResponse,
)


class SandboxResources(Protocol):
    """A task whose sandbox the agent starts."""

    def connect(self, asked: SeedSessionRequest) -> SeedSessionResponse:
        """Make the workspace in the agent's sandbox, and connect the model; once.

        Raises:
            UnprocessableError: that container is not there, or is not the one that was ordered.
        """

    def grade(self, asked: VerifyRequest) -> VerifyResponse:
        """Look at the sandbox, not at what the agent says."""


def resources_app(resources: SandboxResources) -> Starlette:
    """Serve a task to one agent."""

    async def seed_session(request: Request) -> Response:
        async def work() -> Answer:
            asked = parsed(SeedSessionRequest, await body_of(request))
            return await in_thread(lambda: resources.connect(asked))

        return await answered(work, None)

    async def verify(request: Request) -> Response:
        async def work() -> Answer:
            # an agent's response may have every field of its own
            asked = parsed(VerifyRequest, await body_of(request), more="ignore")
            return await in_thread(lambda: resources.grade(asked))

        return await answered(work, None)

    return Starlette(
        routes=[
            Route(SEED_SESSION, seed_session, methods=["POST"]),
            Route(VERIFY, verify, methods=["POST"]),
        ],
        exception_handlers={HTTPException: no_route},
    )
