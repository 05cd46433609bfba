"""The contract over HTTP: routes, statuses, cookies, prefixes, typed errors, cancellation."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sandbox.agents.app import agent_app
from sandbox.agents.client import HttpAgent, Patience, agent_at, agent_in_process
from sandbox.agents.contract import (
    ConflictError,
    ContractError,
    EpisodeId,
    InvalidRequestError,
    NoRouteError,
    UnprocessableError,
)
from sandbox.agents.lifecycle import AgentSessions
from sandbox.agents.openapi import AgentCard, interfaces_in, openapi_document
from sandbox.agents.wire import ERRORS, AgentFault, error_answer, error_from
from sandbox.commands.schema import TEXTS
from sandbox.errors import CouldNotFindOut, SandboxError, UsageError
from tests.unit.agent_server import Clients, given_up
from tests.unit.session_fakes import (
    FakeAgent,
    Held,
    activate_request,
    close_request,
    seed_request,
)
from tests.unit.test_session_lifecycle import Legacy

SEED, ACTIVATE, CLOSE = "/v1/agent_sessions", "/v1/responses", "/v1/agent_sessions/close"
SCHEMAS = Path("docs/schemas/1.0")


class Desk:
    """A fake adapter, its sessions, and somebody who writes requests by hand."""

    def __init__(self, clients: Clients, agent: FakeAgent, sessions: AgentSessions[Held]) -> None:
        self.clients, self.agent, self.sessions = clients, agent, sessions
        self.http = clients.raw()

    def post(self, path: str, body: object, **options: object) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()

        async def ask() -> httpx.Response:
            return await self.http.post(path, content=content, **options)  # type: ignore[arg-type]

        return self.clients.portal.call(ask)


@pytest.fixture
def desk() -> Iterator[Desk]:
    agent = FakeAgent()
    sessions = AgentSessions(agent, stop_wait_s=10)
    with Clients(agent_app(agent, sessions=sessions)) as clients:
        yield Desk(clients, agent, sessions)


def seed_body(name: str = "s") -> dict[str, object]:
    return seed_request(name).model_dump(mode="json")


def activate_body() -> dict[str, object]:
    return activate_request().model_dump(mode="json")


# --- statuses and bodies ------------------------------------------------------------------------


def test_an_activation_is_bound_by_the_sessions_cookie(desk: Desk) -> None:
    assert desk.post(SEED, seed_body("a name/with ; odd=things")).status_code == 200
    body = activate_body()
    del body["agent_session_id"]
    assert desk.post(ACTIVATE, body).json()["status"] == "completed"
    assert desk.agent.activations == ["a name/with ; odd=things"]
    other = desk.post(ACTIVATE, {**body, "agent_session_id": "other"})
    assert (other.status_code, other.json()["error"]["type"]) == (409, "conflict")


@pytest.mark.parametrize(
    ("path", "body", "status", "kind", "said"),
    [
        (SEED, b"{", 422, "invalid_request", "no JSON"),
        (SEED, [1], 422, "invalid_request", "no JSON object"),
        (SEED, {"agent_session_id": "s"}, 422, "invalid_request", "episode_id: Field required"),
        (SEED, {**seed_body(), "x": 1}, 422, "invalid_request", "x: Extra inputs"),
        (ACTIVATE, {"input": "go"}, 422, "invalid_request", "agent_session_id: Field required"),
        (ACTIVATE, activate_body(), 409, "conflict", "not set up"),
        ("/ng-rollout/other" + SEED, seed_body(), 409, "conflict", "rollout other"),
        ("/run", {"agent_session_id": "s"}, 409, "conflict", "takes no session"),
        ("/run", {}, 409, "conflict", "not by /run"),
        ("/nowhere", {}, 404, "no_route", "/nowhere"),
        ("/openapi.json", {}, 405, "no_route", "Method Not Allowed"),
    ],
)
def test_a_request_that_cannot_be_served_says_why(
    desk: Desk, path: str, body: object, status: int, kind: str, said: str
) -> None:
    answer = desk.post(path, body)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["type"] == kind
    assert said in answer.json()["error"]["message"]


def test_routes_under_the_rollouts_prefix_are_the_same(desk: Desk) -> None:
    assert desk.post("/ng-rollout/r" + SEED, seed_body()).status_code == 200
    assert desk.post("/ng-rollout/r" + ACTIVATE, activate_body()).status_code == 200
    closed = desk.post("/ng-rollout/r" + CLOSE, close_request().model_dump(mode="json"))
    assert closed.json()["agent_observations"]["source"] == "fake"
    assert "agent_session" not in desk.http.cookies


@pytest.mark.parametrize("during", ["setup", "run", "close"])
def test_a_failure_says_which_duty_failed(desk: Desk, during: str) -> None:
    def breaks(_: threading.Event) -> None:
        raise ValueError("a fault of the adapter")

    failing = CouldNotFindOut("the engine is gone", cure="start it")
    desk.agent.seed_fails = failing if during == "setup" else None
    answer = desk.post(SEED, seed_body())
    if during == "run":
        desk.agent.while_active = breaks
        answer = desk.post(ACTIVATE, activate_body())
    if during == "close":
        desk.agent.close_fails = failing
        answer = desk.post(CLOSE, close_request().model_dump(mode="json"))
    error = answer.json()["error"]
    assert error["during"] == during
    if during == "run":
        assert (answer.status_code, error["type"]) == (500, "agent_fault")
        assert error["message"] == "ValueError: a fault of the adapter"
    else:
        assert (answer.status_code, error["cure"]) == (503, "start it")


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_comes_back_as_the_same_class(name: str) -> None:
    kind, status = ERRORS[name]
    error: SandboxError = kind("what happened", cure="what to do")
    if isinstance(error, UnprocessableError):
        error = UnprocessableError("what happened", reason="bare", cure="what to do")
    if isinstance(error, InvalidRequestError):
        error = InvalidRequestError("what happened", details=("a: b",), cure="what to do")
    sent, body = error_answer(error, "run")
    back = error_from(sent, body.model_dump_json().encode(), asked="x")
    assert (type(back), sent, str(back)) == (kind, status, str(error))
    assert vars(back) == vars(error)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ContractError),
        (404, NoRouteError),
        (409, ConflictError),
        (422, UnprocessableError),
        (500, AgentFault),
        (503, CouldNotFindOut),
    ],
)
def test_of_a_foreign_body_the_status_tells(status: int, kind: type[SandboxError]) -> None:
    error = error_from(status, b"<h1>sorry</h1>", asked="POST /x")
    assert type(error) is kind
    assert error.message == f"POST /x was answered {status}: <h1>sorry</h1>"


# --- the document -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TEXTS)
def test_the_published_schemas_are_up_to_date(name: str) -> None:
    published = (SCHEMAS / name).read_text()
    assert published == TEXTS[name][1](), "run: sandbox schema --write docs/schemas/1.0"


def test_nothing_else_is_published() -> None:
    assert sorted(path.name for path in SCHEMAS.iterdir()) == sorted(TEXTS)


def test_a_server_describes_its_agent(desk: Desk) -> None:
    described = desk.clients.of("s").describe()
    assert described.interfaces == ("agent-session",)
    assert described.prefixed
    assert described.card == AgentCard(name="agent", interface="agent-session")


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        ([SEED, ACTIVATE, CLOSE], ("agent-session",)),
        ([SEED, ACTIVATE, CLOSE, "/run"], ("agent-session", "legacy")),
        ([ACTIVATE, "/run"], ("legacy",)),
        ([SEED, ACTIVATE], ()),
    ],
)
def test_the_interface_is_read_from_the_paths(paths: list[str], found: tuple[str, ...]) -> None:
    assert interfaces_in({"paths": {path: {} for path in paths}}) == found


def test_every_reference_of_the_document_leads_somewhere() -> None:
    document = openapi_document()
    schemas = document["components"]["schemas"]
    refs = {word for word in json.dumps(document).split('"') if word.startswith("#/")}
    assert refs
    assert all(ref.removeprefix("#/components/schemas/") in schemas for ref in refs)
    assert "agent_session_id" not in schemas["ActivateRequest"]["required"]


# --- cancellation -------------------------------------------------------------------------------


@pytest.mark.parametrize("during", ["setup", "run"])
def test_a_client_that_gives_up_stops_the_work(during: str) -> None:
    given_up(during, socket=False)


def test_a_close_that_fails_at_the_end_is_told() -> None:
    agent = FakeAgent(close_fails=CouldNotFindOut("busy"))
    sessions = AgentSessions(agent)
    sessions.seed(seed_request())
    assert sessions.close_all() == ("agent session s: busy",)


# --- the client ---------------------------------------------------------------------------------


def stuck(path: str) -> Starlette:
    async def sleep(_: Request) -> Response:
        await anyio.sleep(60)
        return JSONResponse({})

    return Starlette(routes=[Route(path, sleep, methods=["POST"])])


@pytest.mark.parametrize("duty", ["seed", "activate", "close"])
def test_a_server_that_never_answers_is_given_up(duty: str) -> None:
    patience = Patience(setup_s=0.05, grace_s=0.05, close_s=0.05)
    path = {"seed": SEED, "activate": ACTIVATE, "close": CLOSE}[duty]
    request = {
        "seed": seed_request(),
        "activate": activate_request().model_copy(update={"deadline_s": 0.05}),
        "close": close_request(),
    }[duty]
    started = time.monotonic()
    with agent_in_process(stuck(path), patience=patience) as agent:
        asked = getattr(agent.under_prefix(prefixed=False), duty)
        with pytest.raises(CouldNotFindOut, match="no answer within"):
            asked(request)
    assert time.monotonic() - started < 30


def answering(body: object, status: int = 200) -> Starlette:
    async def answer(_: Request) -> Response:
        return JSONResponse(body, status)

    return Starlette(routes=[Route(SEED, answer, methods=["POST"])])


@pytest.mark.parametrize("body", [{}, [], {"agent_session_id": "other"}, {"agent_session_id": 3}])
def test_an_answer_that_is_none_is_a_contract_error(body: object) -> None:
    with agent_in_process(answering(body)) as agent, pytest.raises(ContractError):
        agent.under_prefix(prefixed=False).seed(seed_request())


def test_nobody_at_the_url() -> None:
    with agent_at("http://127.0.0.1:9") as agent, pytest.raises(CouldNotFindOut) as caught:
        agent.seed(seed_request())
    assert caught.value.cure


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x", "http://", "/tmp/x"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(UsageError), agent_at(url):
        pass


def test_what_the_response_has_more_is_let_be() -> None:
    async def answer(_: Request) -> Response:
        more = {"temperature": 1, "top_p": None, "text": {"format": {"type": "text"}}}
        said = {"id": "r", "created_at": 1, "model": "m", "status": "completed", **more}
        return JSONResponse(said)

    app = Starlette(routes=[Route(ACTIVATE, answer, methods=["POST"])])
    with agent_in_process(app) as agent:
        said: HttpAgent = agent.under_prefix(prefixed=False)
        assert said.activate(activate_request()).id == "r"


# --- bounds -------------------------------------------------------------------------------------


def test_what_a_session_left_is_forgotten_after_the_retry_window() -> None:
    now, forgotten = [0.0], []

    class Remembers(FakeAgent):
        def forget_session(self, agent_session_id: str) -> None:
            forgotten.append(agent_session_id)

    sessions = AgentSessions(Remembers(), clock=lambda: now[0], retry_window_s=10)
    for name in ("a", "b"):
        sessions.seed(seed_request(name))
        sessions.close(close_request(name))
    now[0] = 11
    assert sessions.episode_of("a") is None
    assert forgotten == ["a", "b"]
    assert sessions._records == {}


def test_whose_a_session_is() -> None:
    sessions = AgentSessions(FakeAgent())
    sessions.seed(seed_request("a"))
    sessions.close(close_request("late", rollout="x"))
    assert sessions.episode_of("a") == EpisodeId(rollout_id="r")
    assert sessions.episode_of("late") == EpisodeId(rollout_id="x")


def test_a_legacy_agent_has_no_session_routes() -> None:
    with agent_in_process(agent_app(Legacy())) as agent:
        assert agent.describe().interfaces == ("legacy",)
        with pytest.raises(NoRouteError):
            agent.seed(seed_request())
