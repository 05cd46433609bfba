"""Finds out what an agent server at a URL is, before any cell is planned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import ValidationError

from sandbox.agents.client import Described, HttpAgent, agent_at
from sandbox.agents.contract import ContractError, Interface
from sandbox.conformance.world import RemoteAgent
from sandbox.evidence.folder import brief
from sandbox.harnesses.base import Capabilities, Harness

DEFAULT_NAME = "remote"


def find_remote(
    url: str,
    *,
    name: str | None,
    interface: Literal["auto", "agent-session", "legacy"],
    harnesses: Mapping[str, Harness],
) -> RemoteAgent:
    """Ask the server for its OpenAPI document, and choose the interface by it unless told.

    Sessions are preferred; a server that has them is never asked by ``/run``.

    Args:
        url: where it is.
        name: what cells call it; None: as its document does.
        interface: "auto", or the one to use whatever the document says.
        harnesses: our adapters; one of the same name lends its declared capabilities.

    Raises:
        ContractError: ``auto``, and the server has no document or none of the two interfaces.
        CouldNotFindOut: it does not answer.
    """
    with agent_at(url) as client:
        described = _described(client, needed=interface == "auto")
    card = None if described is None else described.card
    called = name or (card.name if card else DEFAULT_NAME)
    return RemoteAgent(
        url=url,
        name=called,
        interface=_chosen(described) if interface == "auto" else interface,
        capabilities=_capabilities(described, harnesses.get(called)),
        prefixed=described is not None and described.prefixed,
        card=card,
    )


def _described(client: HttpAgent, *, needed: bool) -> Described | None:
    try:
        return client.describe()
    except ContractError as error:
        if not needed:
            return None
        raise ContractError(
            f"the agent server does not say which interface it has: {error.message}",
            cure="serve /openapi.json, or give --interface agent-session or legacy",
        ) from error


def _chosen(described: Described | None) -> Interface:
    if described is None or not described.interfaces:
        raise ContractError(
            "the agent server's OpenAPI document has neither the three session routes nor /run",
            cure="serve the routes of `sandbox schema agent-contract`, or give --interface",
        )
    return described.interfaces[0]


def _capabilities(described: Described | None, adapter: Harness | None) -> Capabilities | None:
    """Return what the server declares; else what our adapter of its name does."""
    if described is None or described.card is None or not described.card.capabilities:
        return None if adapter is None else adapter.capabilities
    try:
        return Capabilities.model_validate(described.card.capabilities)
    except ValidationError as error:
        raise ContractError(
            f"the agent server declares capabilities that are none: {brief(error)}",
            cure="declare those of `sandbox serve codex`, or none",
        ) from error
