"""``sandbox serve NAME``: a harness's adapter, or an agent of another package, as a server."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
from sandbox.agents.registry import GROUP, registered_agent
from sandbox.agents.server import LocalServer
from sandbox.agents.session import Options, SupervisedAgent
from sandbox.commands.engine import add_engine, open_engine
from sandbox.commands.library import open_library
from sandbox.conformance.interrupt import interruptible
from sandbox.conformance.prepare import prepare_bundles, prepare_images
from sandbox.conformance.served import ServedSandboxes
from sandbox.conformance.ways import ImageRuntimes, choose_way, run_volumes
from sandbox.engine.client import Engine
from sandbox.errors import CouldNotFindOut, ExitCode, UsageError
from sandbox.harnesses.base import Harness
from sandbox.harnesses.registry import Registered, registered
from sandbox.harnesses.source import source_sha256
from sandbox.progress import Progress, progress
from sandbox.runtimes.collection import RuntimeCollection

LEASE_S = 4 * 3600.0
"""How long nobody may ask anything of a session, in seconds; an activation under way is asking."""
_LOOKS_A_LEASE = 4
_LOOK_S = 30.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "name",
        metavar="NAME",
        help="the harness whose adapter is served, or an agent that a package registers "
        f"(entry points {GROUP})",
    )
    parser.add_argument("--port", type=int, default=0, metavar="N", help="default: a free one")
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="default: this machine only"
    )
    parser.add_argument(
        "--interface",
        choices=get_args(Interface),
        help="agent sessions (default), or /run in images that `sandbox images bake` made",
    )
    parser.add_argument(
        "--image", metavar="NAME", help="task image for sessions that bring no sandbox of their own"
    )
    parser.add_argument(
        "--lease",
        type=float,
        default=LEASE_S,
        metavar="SECONDS",
        help="close sessions that nobody asked anything of for so long; 0: never "
        "(default: %(default)g)",
    )
    add_engine(parser)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Serve until INT or TERM; then every session is closed."""
    if not 0 <= arguments.port < 1 << 16:
        raise UsageError(f"--port {arguments.port}: not a port")
    if arguments.lease < 0:
        raise UsageError(f"--lease {arguments.lease:g}: not a time", cure="give seconds, or 0")
    known = registered()
    foreign = None if arguments.name in known.names else registered_agent(arguments.name)
    with progress() as shown:
        if foreign is None:
            _serve_harness(known, arguments, shown)
        else:
            _refuse_options(arguments, foreign[1])
            _serve(*foreign, arguments, shown)
    return ExitCode.OK


def _serve_harness(known: Registered, arguments: argparse.Namespace, shown: Progress) -> None:
    harness = known.find(arguments.name)
    with (
        open_engine(arguments, shown) as engine,
        open_library(shown, known) as library,
        tempfile.TemporaryDirectory(prefix="sandbox-serve-") as native,
        ExitStack() as stack,
    ):
        options = Options(native_root=Path(native))
        agent: Agent[Any]
        if arguments.interface == "legacy":
            runtimes, order = LibraryRuntimes(library), partial(ordered, engine)
            agent = LegacyAgent(harness, runtimes=runtimes, order=order, options=options)
        elif arguments.image is None:
            runtimes, places = LibraryRuntimes(library), EnginePlaces(engine)
            agent = SupervisedAgent(harness, runtimes=runtimes, places=places, options=options)
        else:
            own = stack.enter_context(_own(engine, library, harness, arguments.image, shown))
            places = EnginePlaces(engine, make=own.make)
            agent = SupervisedAgent(harness, runtimes=own, places=places, options=options)
        _serve(agent, _card(harness, agent, library), arguments, shown)


def _refuse_options(arguments: argparse.Namespace, card: AgentCard) -> None:
    """Refuse what only harnesses can be told: such an agent has its interface and its sandboxes."""
    if arguments.image is not None:
        raise UsageError(f"--image: {card.name} is no harness, and makes its own sandboxes")
    if arguments.interface not in (None, card.interface):
        raise UsageError(f"--interface {arguments.interface}: {card.name} has {card.interface}")


def _serve(
    agent: Agent[Any], card: AgentCard, arguments: argparse.Namespace, shown: Progress
) -> None:
    sessions = AgentSessions(agent)
    asked = threading.Event()
    app = agent_app(agent, card=card, sessions=sessions)
    server = LocalServer(app, host=arguments.host, port=arguments.port)
    with server, interruptible(asked.set):
        print(server.url, flush=True)
        _wait(asked, sessions, arguments.lease, shown)
        shown.say("closing the open agent sessions")
        errors = sessions.close_all()
    if errors:
        raise CouldNotFindOut(
            f"not everything could be closed: {'; '.join(errors)}", cure="sandbox sweep"
        )
    print("stopped", file=sys.stderr)


def _wait(
    asked: threading.Event, sessions: AgentSessions[Any], lease_s: float, shown: Progress
) -> None:
    """Wait for the end; meanwhile close sessions whose lease runs out."""
    every_s = min(lease_s / _LOOKS_A_LEASE, _LOOK_S) or None
    while not asked.wait(every_s):
        for error in sessions.close_lapsed(lease_s):
            shown.say(f"its lease ran out, and it could not be closed: {error}")


@contextmanager
def _own(
    engine: Engine, library: RuntimeCollection, harness: Harness, name: str, shown: Progress
) -> Iterator[ServedSandboxes]:
    """Give what makes sandboxes of the named image, with all made ready for them."""
    image = prepare_images(engine, [name], shown)[name]
    unpack = engine.info.is_local
    prepare_bundles(library, [(harness.name, image.platform)], shown, unpack=unpack)
    run_id, way = f"serve-{secrets.token_hex(4)}", choose_way("auto")
    with run_volumes(engine, way, run_id) as volumes:
        yield ServedSandboxes(
            engine,
            library,
            image,
            harness=harness.name,
            runtimes=ImageRuntimes(engine, library, image, way=way, volumes=volumes),
            run_id=run_id,
        )


def _card(harness: Harness, agent: Agent[Any], library: RuntimeCollection) -> AgentCard:
    versions = sorted({e.version for e in library.entries() if e.harness == harness.name})
    return AgentCard(
        name=harness.name,
        interface=interface_of(type(agent)),
        version=" or ".join(versions) or None,
        adapter_sha256=source_sha256(harness),
        capabilities=harness.capabilities.model_dump(mode="json"),
    )
