"""The contract as an OpenAPI 3.1 document, made of its models.

A server that serves its own at ``/openapi.json`` tells by its paths which interface it has. Facts
about the agent behind it may stand in ``info`` under ``x-agent`` (``AgentCard``).
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel, Field, JsonValue
from pydantic.json_schema import models_json_schema

from sandbox.agents.contract import (
    ActivateRequest,
    CloseRequest,
    CloseResponse,
    Interface,
    SeedRequest,
    SeedResponse,
)
from sandbox.agents.legacy import RunRow, VerifyRow
from sandbox.agents.response import AgentResponse
from sandbox.agents.wire import ErrorBody
from sandbox.evidence.records import Record

VERSION = "1.0"
SEED, ACTIVATE, CLOSE, RUN = (
    "/v1/agent_sessions",
    "/v1/responses",
    "/v1/agent_sessions/close",
    "/run",
)
PREFIX = "/ng-rollout/{rollout_id}"
DOCUMENT = "/openapi.json"
COOKIE = "agent_session"
_REF = "#/components/schemas/{model}"
_BODY_LIMIT_TEXT = "The body is not what the route takes, or the setup cannot work"

_ROUTES: dict[str, tuple[type[BaseModel], type[BaseModel], str]] = {
    SEED: (SeedRequest, SeedResponse, "Set an agent session up; idempotent for the same body."),
    ACTIVATE: (ActivateRequest, AgentResponse, "Let the session's agent work, once."),
    CLOSE: (CloseRequest, CloseResponse, "End a session, whatever it is doing; idempotent."),
    RUN: (RunRow, VerifyRow, "Take a flat task row through agent and verifier (legacy)."),
}
_FAILURES = {
    "400": "The request breaks the contract",
    "409": "The session is not in a state for this request",
    "422": _BODY_LIMIT_TEXT,
    "500": "The agent broke",
    "503": "The agent could not find out: engine, sandbox or supervision failed",
}


class AgentCard(Record):
    """What a server says of its agent: ``capabilities`` as an adapter declares them."""

    name: str
    interface: Interface
    version: str | None = None
    adapter_sha256: str | None = None
    capabilities: dict[str, JsonValue] = Field(default_factory=dict)


def paths_of(interface: Interface) -> tuple[str, ...]:
    """Return the routes that belong to an interface, without the rollout's prefix."""
    return (RUN,) if interface == "legacy" else (SEED, ACTIVATE, CLOSE)


def openapi_document(card: AgentCard | None = None) -> dict[str, Any]:
    """Return the document of the whole contract, or of the one interface that ``card`` names."""
    paths = tuple(_ROUTES) if card is None else paths_of(card.interface)
    info: dict[str, Any] = {
        "title": "Agent contract" if card is None else f"Agent contract: {card.name}",
        "version": VERSION,
    }
    if card is not None:
        info["x-agent"] = card.model_dump(mode="json")
    return {
        "openapi": "3.1.0",
        "info": info,
        "paths": {
            f"{prefix}{path}": {"post": _operation(path, prefixed=bool(prefix))}
            for path in paths
            for prefix in ("", PREFIX)
        },
        "components": {"schemas": _schemas()},
    }


def openapi_text() -> str:
    """Return the committed form of the document."""
    return json.dumps(openapi_document(), indent=2, sort_keys=True) + "\n"


def interfaces_in(document: object) -> tuple[Interface, ...]:
    """Say which interfaces an OpenAPI document describes, the preferred one first."""
    found = document.get("paths") if isinstance(document, dict) else None
    paths = set(found) if isinstance(found, dict) else set()
    known: tuple[Interface, ...] = get_args(Interface)
    return tuple(one for one in known if paths.issuperset(paths_of(one)))


def _operation(path: str, *, prefixed: bool) -> dict[str, Any]:
    asked, answered, text = _ROUTES[path]
    operation: dict[str, Any] = {
        "summary": text,
        "requestBody": {"required": True, "content": _content(asked)},
        "responses": {
            "200": {"description": "Done", "content": _content(answered)},
            **{
                status: {"description": said, "content": _content(ErrorBody)}
                for status, said in _FAILURES.items()
            },
        },
    }
    parameters = []
    if prefixed:
        parameters.append(_parameter("rollout_id", "path", required=True))
    if path == ACTIVATE:
        parameters.append(_parameter(COOKIE, "cookie", required=False))
    if parameters:
        operation["parameters"] = parameters
    return operation


def _parameter(name: str, where: str, *, required: bool) -> dict[str, Any]:
    return {"name": name, "in": where, "required": required, "schema": {"type": "string"}}


def _content(model: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(model=model.__name__)}}}


@cache
def _schemas() -> dict[str, Any]:
    models: list[type[BaseModel]] = [ErrorBody]
    for asked, answered, _ in _ROUTES.values():
        models += [asked, answered]
    _, top = models_json_schema([(model, "validation") for model in models], ref_template=_REF)
    schemas: dict[str, Any] = top["$defs"]
    activate = schemas[ActivateRequest.__name__]
    activate["required"] = [name for name in activate["required"] if name != "agent_session_id"]
    return schemas
