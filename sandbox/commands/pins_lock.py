"""``sandbox pins lock [HARNESS ...]``: pins.toml resolved to pins.lock."""

from __future__ import annotations

import argparse

from sandbox.commands.records import print_records
from sandbox.errors import ExitCode
from sandbox.progress import progress
from sandbox.runtimes.library import RuntimeLibrary
from sandbox.runtimes.outdated import ask_with, released_with


def run(arguments: argparse.Namespace) -> ExitCode:
    """Fetch, make and measure everything, then write the lock, sorted; say whether it changed."""
    with progress() as shown, RuntimeLibrary(arguments.pins, progress=shown) as library:
        ask = ask_with(library.clients)
        made = library.update_lock(
            arguments.harness, released=released_with(library.pins, library.pins_path, ask)
        )
    line = f"{'wrote' if made.changed else 'unchanged:'} {made.path}"
    print_records([made], [line], as_json=arguments.json)
    return ExitCode.OK
