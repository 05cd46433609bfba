"""``sandbox serve HARNESS``: the harness's adapter as an agent server of its own."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_args

from sandbox.agents.app import agent_app
from sandbox.agents.contract import Agent, Interface, interface_of
from sandbox.agents.engineplaces import EnginePlaces, ordered
from sandbox.agents.legacyagent import LegacyAgent
from sandbox.agents.libraryruntimes import LibraryRuntimes
from sandbox.agents.lifecycle import AgentSessions
from sandbox.agents.openapi import AgentCard
from sandbox.agents.server import LocalServer
from sandbox.agents.session import Options, SupervisedAgent
from sandbox.commands.engine import add_engine, open_engine
from sandbox.commands.library import open_library
from sandbox.conformance.interrupt import interruptible
from sandbox.conformance.prepare import prepare_images
from sandbox.engine.client import Engine
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.errors import CouldNotFindOut, ExitCode, UsageError
from sandbox.harnesses.base import Harness
from sandbox.harnesses.registry import registered
from sandbox.harnesses.source import source_sha256
from sandbox.progress import Progress, progress
from sandbox.runtimes.collection import RuntimeCollection


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("harness", metavar="HARNESS", help="whose adapter is served")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="default: a free one")
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="default: this machine only"
    )
    parser.add_argument(
        "--interface",
        choices=get_args(Interface),
        default="agent-session",
        help="agent sessions, or /run in images that `sandbox images bake` made",
    )
    parser.add_argument(
        "--image", metavar="NAME", help="task image for sessions that bring no sandbox of their own"
    )
    add_engine(parser)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Serve until INT or TERM; then every session is closed."""
    if not 0 <= arguments.port < 1 << 16:
        raise UsageError(f"--port {arguments.port}: not a port")
    known = registered()
    harness = known.find(arguments.harness)
    with (
        progress() as shown,
        open_engine(arguments, shown) as engine,
        open_library(shown, known) as library,
        tempfile.TemporaryDirectory(prefix="sandbox-serve-") as native,
    ):
        runtimes, options = LibraryRuntimes(library), Options(native_root=Path(native))
        agent: Agent[Any]
        if arguments.interface == "legacy":
            order = partial(ordered, engine)
            agent = LegacyAgent(harness, runtimes=runtimes, order=order, options=options)
        else:
            places = EnginePlaces(engine, make=_maker(engine, arguments.image, shown))
            agent = SupervisedAgent(harness, runtimes=runtimes, places=places, options=options)
        _serve(agent, _card(harness, agent, library), arguments, shown)
    return ExitCode.OK


def _serve(
    agent: Agent[Any], card: AgentCard, arguments: argparse.Namespace, shown: Progress
) -> None:
    sessions = AgentSessions(agent)
    asked = threading.Event()
    app = agent_app(agent, card=card, sessions=sessions)
    server = LocalServer(app, host=arguments.host, port=arguments.port)
    with server, interruptible(asked.set):
        print(server.url, flush=True)
        asked.wait()
        shown.say("closing the open agent sessions")
        errors = sessions.close_all()
    if errors:
        raise CouldNotFindOut(
            f"not everything could be closed: {'; '.join(errors)}", cure="sandbox sweep"
        )
    print("stopped", file=sys.stderr)


def _maker(engine: Engine, image: str | None, shown: Progress) -> Callable[[], Sandbox] | None:
    """Return what makes sandboxes of the named image; None without one."""
    if image is None:
        return None
    loaded = prepare_images(engine, [image], shown)[image]
    run_id = f"serve-{secrets.token_hex(4)}"

    def make() -> Sandbox:
        return Sandbox(engine, loaded.ref, owner=Ownership.current(run_id=run_id))

    return make


def _card(harness: Harness, agent: Agent[Any], library: RuntimeCollection) -> AgentCard:
    versions = sorted({e.version for e in library.entries() if e.harness == harness.name})
    return AgentCard(
        name=harness.name,
        interface=interface_of(type(agent)),
        version=" or ".join(versions) or None,
        adapter_sha256=source_sha256(harness),
        capabilities=harness.capabilities.model_dump(mode="json"),
    )
