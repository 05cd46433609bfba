"""The options that name an agent server to test, and what they find."""

from __future__ import annotations

import argparse

from sandbox.conformance.remote import find_remote
from sandbox.conformance.world import RemoteAgent
from sandbox.errors import UsageError
from sandbox.harnesses.registry import registered


def add_agent(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--agent-url",
        metavar="URL",
        help="test the agent server at this URL instead of the adapters of this package",
    )
    parser.add_argument(
        "--agent-name", metavar="NAME", help="what cells call that server (default: as it says)"
    )
    parser.add_argument(
        "--interface",
        choices=("auto", "agent-session", "legacy"),
        default="auto",
        help="how that server is asked (default: as its OpenAPI document says)",
    )


def remote_agent(arguments: argparse.Namespace) -> RemoteAgent | None:
    """Return the server that is to be tested; None: our own adapters are.

    Raises:
        UsageError: options about a server without its URL.
        ContractError: the server does not say what it is.
        CouldNotFindOut: it does not answer.
    """
    if arguments.agent_url is None:
        if arguments.agent_name is not None or arguments.interface != "auto":
            raise UsageError("--agent-name and --interface are about the server of --agent-url")
        return None
    return find_remote(
        arguments.agent_url,
        name=arguments.agent_name,
        interface=arguments.interface,
        harnesses=registered().harnesses,
    )
