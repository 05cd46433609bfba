"""Agents of other packages: whole implementations of the contract's class, served like ours."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from sandbox.agents.contract import Agent, interface_of
from sandbox.agents.openapi import AgentCard
from sandbox.errors import UsageError
from sandbox.harnesses.source import source_sha256

GROUP = "sandbox.agents"
"""The entry-point group; an entry point's value is called without arguments and gives an Agent."""


def registered_agent(
    name: str, points: Iterable[EntryPoint] | None = None
) -> tuple[Agent[Any], AgentCard] | None:
    """Make the agent that a package registers under a name, with what is known of it.

    Args:
        name: the entry point's name.
        points: the entry points to look in; those of the installed packages by default.

    Returns:
        None when no package registers such an agent.

    Raises:
        UsageError: several packages do, or it cannot be made.
        ContractError: its class implements half an interface, or none.
    """
    known = entry_points(group=GROUP) if points is None else points
    found = {point.value: point for point in known if point.name == name}
    if not found:
        return None
    if len(found) > 1:
        raise UsageError(
            f"agent {name!r} is registered several times: {', '.join(sorted(found))}",
            cure="uninstall all packages but one that register it",
        )
    (point,) = found.values()
    agent = _made(point)
    card = AgentCard(
        name=name,
        interface=interface_of(type(agent)),
        version=None if point.dist is None else point.dist.version,
        adapter_sha256=source_sha256(agent),
    )
    return agent, card


def _made(point: EntryPoint) -> Agent[Any]:
    cure = "repair or uninstall the package that registers it"
    try:
        made: object = point.load()()
    except Exception as error:  # foreign code may raise anything
        raise UsageError(
            f"agent {point.name!r} cannot be made by {point.value}: "
            f"{type(error).__name__}: {error}",
            cure=cure,
        ) from error
    if not isinstance(made, Agent):
        raise UsageError(
            f"agent {point.name!r}: {point.value} gives a {type(made).__qualname__}, "
            "which is no sandbox.agents.contract.Agent",
            cure=cure,
        )
    return made
