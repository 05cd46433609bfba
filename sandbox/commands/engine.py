"""The engine that a command works with, swept of what dead runs left there."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from sandbox.engine.client import Engine
from sandbox.engine.host import ensure_engine
from sandbox.engine.sweep import SweepReport, sweep
from sandbox.engine.workroom import workroom
from sandbox.errors import EngineFailure
from sandbox.progress import Progress


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add the option that allows installing and starting an engine."""
    parser.add_argument(
        "--ensure-engine",
        action="store_true",
        help="as root with apt, install and start Docker when no engine answers",
    )


@contextmanager
def open_engine(arguments: argparse.Namespace, progress: Progress) -> Iterator[Engine]:
    """Give a connected, swept engine, and this process a ``workroom`` for its temporary files.

    Raises:
        PrerequisiteMissing: no engine answers, and none may or can be started.
        CacheUnusable: no temporary folder can be written.
    """
    connect = partial(ensure_engine, progress) if arguments.ensure_engine else Engine.connect
    with workroom(), connect() as engine:
        say_swept(sweep(engine), progress)
        yield engine


@contextmanager
def leaving_nothing(engine: Engine, run_id: str, progress: Progress) -> Iterator[None]:
    """At the end, remove what a failing engine kept the run from removing."""
    try:
        yield
    finally:
        try:
            removed = sweep(engine, include_run=run_id).removed
            say_swept(SweepReport(removed=removed), progress)
        except EngineFailure as error:
            progress.say(f"something of the run may be left, for the next sweep: {error.message}")


def say_swept(swept: SweepReport, progress: Progress) -> None:
    """Say in lines what a sweep removed, and what a person has to look at."""
    if swept.removed:
        kinds = ", ".join(f"{item.kind} {item.name}" for item in swept.removed)
        progress.say(f"removed what runs left: {kinds}")
    for kept in swept.unsettled:
        progress.say(f"left in place: {kept.item.kind} {kept.item.name}: {kept.reason}")
