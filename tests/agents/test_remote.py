"""What an agent server at a URL is found to be: name, interface, capabilities."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sandbox.agents.contract import ContractError
from sandbox.agents.server import LocalServer
from sandbox.conformance.remote import find_remote
from sandbox.conformance.world import RemoteAgent
from sandbox.harnesses.codex import CODEX

SESSION = dict.fromkeys(["/v1/agent_sessions", "/v1/responses", "/v1/agent_sessions/close"])
CAN = CODEX.capabilities.model_dump(mode="json")


@contextmanager
def serving(document: Any, status: int = 200) -> Iterator[str]:
    async def describe(_: Request) -> Response:
        return JSONResponse(document, status)

    with LocalServer(Starlette(routes=[Route("/openapi.json", describe)])) as server:
        yield server.url


def find(
    document: Any,
    status: int = 200,
    *,
    name: str | None = None,
    interface: Literal["auto", "agent-session", "legacy"] = "auto",
) -> RemoteAgent:
    with serving(document, status) as url:
        return find_remote(url, name=name, interface=interface, harnesses={"codex": CODEX})


def test_a_server_says_what_it_is() -> None:
    card = {"name": "mine", "interface": "agent-session", "version": "2", "capabilities": CAN}
    prefixed = {f"/ng-rollout/{{rollout_id}}{path}": None for path in SESSION}
    found = find({"info": {"x-agent": card}, "paths": {**SESSION, **prefixed, "/run": None}})
    assert (found.name, found.interface, found.prefixed) == ("mine", "agent-session", True)
    assert found.capabilities == CODEX.capabilities
    assert found.card is not None
    assert found.card.version == "2"


def test_a_server_that_says_little_is_asked_as_it_can_be() -> None:
    found = find({"paths": {"/run": {}}})
    assert (found.name, found.interface, found.prefixed) == ("remote", "legacy", False)
    assert found.capabilities is None
    assert find({"paths": SESSION}, name="codex").capabilities == CODEX.capabilities


@pytest.mark.parametrize("document", [{}, [], {"paths": []}, {"paths": {"/v1/responses": {}}}])
def test_a_document_without_an_interface_is_a_contract_error(document: Any) -> None:
    with pytest.raises(ContractError, match="neither"):
        find(document)


def test_without_a_document_the_interface_must_be_said() -> None:
    with pytest.raises(ContractError, match="does not say") as caught:
        find({}, 404)
    assert caught.value.cure is not None
    assert "--interface" in caught.value.cure
    assert find({}, 404, interface="legacy").interface == "legacy"


def test_capabilities_that_are_none_are_refused() -> None:
    card = {"name": "mine", "interface": "legacy", "capabilities": {"dialect": "morse"}}
    with pytest.raises(ContractError, match="dialect"):
        find({"info": {"x-agent": card}, "paths": {"/run": {}}})
