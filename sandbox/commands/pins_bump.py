"""``sandbox pins bump HARNESS [VERSION]``: another version, its behaviour beside the pinned one."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from sandbox.commands.engine import open_engine
from sandbox.commands.library import library_of, selected_library
from sandbox.commands.pins_cells import (
    Behaviour,
    cells_of,
    compared,
    conclude,
    opened,
    said_version,
    sizes,
)
from sandbox.commands.pins_outdated import cooldown
from sandbox.engine.client import Engine
from sandbox.errors import ExitCode
from sandbox.progress import Progress, progress
from sandbox.runtimes.bump import Bump, group_of, plan_bump, target
from sandbox.runtimes.library import RuntimeLibrary
from sandbox.runtimes.outdated import ask_with, offer
from sandbox.runtimes.trying import carry_out, expect_output, lock_copy
from sandbox.runtimes.workingcopy import WorkingCopy, working_copy


def run(arguments: argparse.Namespace) -> ExitCode:
    """Try it in a working copy; the pins change only with ``--write``."""
    with progress() as shown, selected_library(arguments.pins, shown) as library:
        old = library_of(arguments.harness, library)
        old.lock()
        bump = _planned(arguments, old, shown)
        with (
            open_engine(arguments, shown) as engine,
            working_copy(old.pins, old.pins_path) as copy,
        ):
            found = _tried(arguments, engine, old, copy=copy, bump=bump, shown=shown)
            if arguments.write:
                found = found.model_copy(update={"written": copy.write_back()})
    return conclude(found, as_json=arguments.json)


def _planned(arguments: argparse.Namespace, old: RuntimeLibrary, shown: Progress) -> Bump:
    ask, pins, path = ask_with(old.clients), old.pins, old.pins_path
    version = arguments.version
    with shown.step(f"asking for versions of {arguments.harness}"):
        if version is None:
            now, _ = group_of(pins, arguments.harness, arguments.platform)
            latest = datetime.now(UTC) - cooldown(arguments)
            version = target(offer(pins, path, arguments.harness, now, ask, latest=latest))
        return plan_bump(pins, path, arguments.harness, version, ask, platforms=arguments.platform)


def _tried(
    arguments: argparse.Namespace,
    engine: Engine,
    old: RuntimeLibrary,
    *,
    copy: WorkingCopy,
    bump: Bump,
    shown: Progress,
) -> Behaviour:
    plan = cells_of(arguments, engine, {bump.harness: bump.platforms})
    carry_out(copy, [bump], old.clients, shown)
    with opened(copy, old, shown) as new:
        lock_copy(new, [bump.harness])
        said = said_version(engine, new, plan[0], shown)
    again = expect_output(copy, bump, said)
    with opened(copy, old, shown) as new:
        if again:
            lock_copy(new, [bump.harness])
        difference, folder = compared(
            arguments, engine, plan=plan, old=old, new=new, progress=shown
        )
        return Behaviour(
            bumps=(bump,),
            sizes=sizes(old, new, [bump.harness]),
            difference=difference,
            results=folder,
        )
