"""``sandbox pins diff BASE``: the behaviour of these pins beside that of another pins file.

For a change that was made already, as by an update bot: what it left to do (the harness's own
version, trees, the lock) is done in a working copy, and kept with ``--write``.
"""

from __future__ import annotations

import argparse

from sandbox.commands.engine import open_engine
from sandbox.commands.pins_cells import (
    Behaviour,
    cells_of,
    compared,
    conclude,
    opened,
    said_version,
    sizes,
)
from sandbox.engine.client import Engine
from sandbox.engine.workroom import workroom
from sandbox.errors import ExitCode, NothingSelected, UsageError
from sandbox.progress import Progress, progress
from sandbox.runtimes.completing import unfinished
from sandbox.runtimes.library import RuntimeLibrary
from sandbox.runtimes.pins import default_pins_path, load_pins
from sandbox.runtimes.trying import carry_out, expect_output, lock_copy
from sandbox.runtimes.workingcopy import WorkingCopy, working_copy


def run(arguments: argparse.Namespace) -> ExitCode:
    """Compare; 3 when no harness is pinned otherwise."""
    path = arguments.pins or default_pins_path()
    with (
        progress() as shown,
        RuntimeLibrary(arguments.base, progress=shown) as old,
        workroom(),
        working_copy(load_pins(path), path) as copy,
    ):
        old.lock()
        with open_engine(arguments, shown) as engine:
            found = _compared(arguments, engine, old, copy, shown)
            if arguments.write:
                found = found.model_copy(update={"written": copy.write_back()})
    return conclude(found, as_json=arguments.json)


def _compared(
    arguments: argparse.Namespace,
    engine: Engine,
    old: RuntimeLibrary,
    copy: WorkingCopy,
    shown: Progress,
) -> Behaviour:
    bumps = unfinished(old.pins, old.pins_path, load_pins(copy.pins_path), copy.pins_path)
    carry_out(copy, bumps, old.clients, shown)
    for bump in bumps:
        plan = cells_of(arguments, engine, {bump.harness: bump.platforms})
        with opened(copy, old, shown) as new:
            lock_copy(new, ())
            said = said_version(engine, new, plan[0], shown)
        expect_output(copy, bump, said)
    with opened(copy, old, shown) as new:
        if bumps or not _is_current(new):
            lock_copy(new, ())
        changed = _changed(old, new)
        plan = cells_of(arguments, engine, changed)
        difference, folder = compared(
            arguments, engine, plan=plan, old=old, new=new, progress=shown
        )
        return Behaviour(
            bumps=bumps,
            sizes=sizes(old, new, list(changed)),
            difference=difference,
            results=folder,
        )


def _is_current(library: RuntimeLibrary) -> bool:
    try:
        library.lock()
    except UsageError:
        return False
    return True


def _changed(old: RuntimeLibrary, new: RuntimeLibrary) -> dict[str, tuple[str, ...]]:
    """Return the harnesses whose bundles are others, with the platforms where they are."""
    before = {(one.harness, one.platform): one.sha256 for one in old.entries()}
    found: dict[str, tuple[str, ...]] = {}
    for one in new.entries():
        if before.get((one.harness, one.platform)) != one.sha256:
            found[one.harness] = (*found.get(one.harness, ()), one.platform)
    if not found:
        raise NothingSelected(
            "no harness is pinned otherwise than there", cure="change a pin first, or `pins bump`"
        )
    return found
