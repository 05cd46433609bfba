"""The contract's client: an agent server in this process or at a URL, asked in the same way.

Its methods block; the requests run on an event loop in a thread of the client's own, so that a
close can overtake an activation from another thread. Every request has a deadline of its own: the
time that the work may take by contract, and a grace on top. One client serves one agent session:
the session's cookie is kept in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette

from sandbox.agents.contract import (
    ActivateRequest,
    CloseRequest,
    CloseResponse,
    ContractError,
    Interface,
    SeedRequest,
    SeedResponse,
)
from sandbox.agents.legacy import RunRow, VerifyRow
from sandbox.agents.openapi import (
    ACTIVATE,
    CLOSE,
    DOCUMENT,
    PREFIX,
    RUN,
    SEED,
    AgentCard,
    interfaces_in,
)
from sandbox.agents.response import AgentResponse
from sandbox.agents.wire import error_from
from sandbox.errors import CouldNotFindOut, UsageError
from sandbox.evidence.folder import brief

Model = TypeVar("Model", bound=BaseModel)
IN_PROCESS = "http://agent.in-process"


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long answers may take, in seconds; ``grace_s`` comes on top of an activation's deadline.

    A setup may fetch and install a runtime; after the deadline the agent still stops its harness
    and reads what it left.
    """

    setup_s: float = 900.0
    grace_s: float = 180.0
    close_s: float = 300.0
    document_s: float = 10.0


@dataclass(frozen=True, kw_only=True)
class Described:
    """What a server's OpenAPI document says; ``card`` None: nothing about its agent."""

    interfaces: tuple[Interface, ...]
    prefixed: bool
    card: AgentCard | None


class HttpAgent:
    """Any agent behind the contract; made by ``agent_in_process`` and ``agent_at``.

    Every method raises the error that the server's answer stands for, ``ContractError`` for an
    answer that is none, and ``CouldNotFindOut`` when there is none in time.

    Args:
        client: sends the requests.
        portal: where its event loop is.
        patience: how long answers may take.
        prefixed: ask under ``/ng-rollout/{rollout_id}``.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        portal: BlockingPortal,
        *,
        patience: Patience,
        prefixed: bool,
    ) -> None:
        self._client = client
        self._portal = portal
        self._patience = patience
        self._prefixed = prefixed
        self._rollout: str | None = None

    def seed(self, request: SeedRequest) -> SeedResponse:
        """Set a session up."""
        rollout = request.episode_id.capture_key
        answer = self._post(SEED, request, SeedResponse, self._patience.setup_s, rollout=rollout)
        if answer.agent_session_id != request.agent_session_id:
            raise ContractError(
                f"the agent server seeded {answer.agent_session_id!r}, "
                f"asked for {request.agent_session_id!r}"
            )
        self._rollout = rollout
        return answer

    def activate(self, request: ActivateRequest) -> AgentResponse:
        """Run the session's one turn."""
        limit = request.deadline_s + self._patience.grace_s
        return self._post(ACTIVATE, request, AgentResponse, limit, rollout=self._rollout)

    def close(self, request: CloseRequest) -> CloseResponse:
        """End the session; safe to call again, and while an activation is under way."""
        rollout = request.episode_id.capture_key
        return self._post(CLOSE, request, CloseResponse, self._patience.close_s, rollout=rollout)

    def run(self, row: RunRow, *, cancel: threading.Event | None = None) -> VerifyRow:
        """Take a row through ``/run``; when ``cancel`` is set, hang up, which ends the run."""
        limit = self._patience.setup_s + row.deadline_s + self._patience.grace_s
        rollout = row.episode_id.capture_key
        return self._post(RUN, row, VerifyRow, limit, rollout=rollout, cancel=cancel)

    def describe(self) -> Described:
        """Read the server's OpenAPI document.

        Raises:
            ContractError: it has none.
        """
        answer = self._send("GET", DOCUMENT, None, self._patience.document_s)
        if answer.status_code != 200:
            raise error_from(answer.status_code, answer.content, asked=f"GET {DOCUMENT}")
        try:
            document = answer.json()
        except ValueError as error:
            raise ContractError(f"GET {DOCUMENT}: the answer is no JSON") from error
        paths = document.get("paths") if isinstance(document, dict) else None
        prefixed = isinstance(paths, dict) and any(path.startswith(PREFIX) for path in paths)
        return Described(
            interfaces=interfaces_in(document), prefixed=prefixed, card=_card(document)
        )

    def under_prefix(self, *, prefixed: bool) -> HttpAgent:
        """Return the same client that asks under the rollout's prefix, or not."""
        return HttpAgent(self._client, self._portal, patience=self._patience, prefixed=prefixed)

    def _post(
        self,
        path: str,
        asked: BaseModel,
        answers: type[Model],
        limit_s: float,
        *,
        rollout: str | None,
        cancel: threading.Event | None = None,
    ) -> Model:
        prefix = ""
        if self._prefixed and rollout is not None:
            prefix = PREFIX.format(rollout_id=rollout)
        body = asked.model_dump_json(by_alias=True).encode(errors="replace")
        answer = self._send("POST", f"{prefix}{path}", body, limit_s, cancel)
        if not answer.is_success:
            raise error_from(answer.status_code, answer.content, asked=f"POST {path}")
        try:
            return answers.model_validate_json(answer.content, extra=_extra(answers))
        except ValidationError as error:
            raise ContractError(
                f"POST {path}: the answer is no {answers.__name__}: {brief(error)}"
            ) from error

    def _send(
        self,
        method: str,
        path: str,
        body: bytes | None,
        limit_s: float,
        cancel: threading.Event | None = None,
    ) -> httpx.Response:
        headers = {} if body is None else {"content-type": "application/json"}
        where = f"{method} {self._client.base_url}{path.lstrip('/')}"

        async def ask() -> httpx.Response:
            async with asyncio.timeout(limit_s):
                return await self._client.request(method, path, content=body, headers=headers)

        try:
            return _result(self._portal.start_task_soon(ask), cancel)
        except CancelledError as error:
            raise CouldNotFindOut(f"{where} was given up") from error
        except TimeoutError as error:
            raise CouldNotFindOut(f"{where} had no answer within {limit_s:g} s") from error
        except httpx.HTTPError as error:
            raise CouldNotFindOut(
                f"{where} had no answer: {type(error).__name__}: {error}",
                cure="is the agent server running, and can it be reached from here?",
            ) from error


def _result(asked: Future[httpx.Response], cancel: threading.Event | None) -> httpx.Response:
    """Wait for an answer; hang up when ``cancel`` is set."""
    while cancel is not None and not wait([asked], timeout=0.1).done:
        if cancel.is_set():
            asked.cancel()
    return asked.result()


def _extra(answers: type[BaseModel]) -> Any:
    """Servers may send more fields with a response; the rest is held to the letter."""
    return "ignore" if issubclass(answers, AgentResponse | VerifyRow) else None


def _card(document: object) -> AgentCard | None:
    info = document.get("info") if isinstance(document, dict) else None
    said = info.get("x-agent") if isinstance(info, dict) else None
    with contextlib.suppress(ValidationError):
        return AgentCard.model_validate(said)
    return None


@contextmanager
def agent_in_process(app: Starlette, *, patience: Patience | None = None) -> Iterator[HttpAgent]:
    """Give a client of an application in this process."""
    with _client(lambda: httpx.ASGITransport(app=app), IN_PROCESS, patience) as agent:
        yield agent.under_prefix(prefixed=True)


@contextmanager
def agent_at(url: str, *, patience: Patience | None = None) -> Iterator[HttpAgent]:
    """Give a client of the server at ``url``.

    Raises:
        UsageError: that is no HTTP URL.
    """
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise UsageError(f"not a URL: {url!r}: {error}") from error
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise UsageError(f"not the URL of an HTTP server: {url!r}", cure="as http://127.0.0.1:8000")
    with _client(httpx.AsyncHTTPTransport, url, patience) as agent:
        yield agent


@contextmanager
def _client(
    transport: Callable[[], httpx.AsyncBaseTransport], url: str, patience: Patience | None
) -> Iterator[HttpAgent]:
    with start_blocking_portal("asyncio") as portal:
        client = httpx.AsyncClient(
            transport=transport(), base_url=url, timeout=httpx.Timeout(None, connect=10.0)
        )
        try:
            yield HttpAgent(client, portal, patience=patience or Patience(), prefixed=False)
        finally:
            portal.call(client.aclose)
