"""``sandbox pins outdated``: what could be bumped, and to which version."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta

from sandbox.commands.library import libraries_of, selected_library
from sandbox.commands.records import columns, print_records
from sandbox.errors import ExitCode, UsageError
from sandbox.progress import progress
from sandbox.runtimes.outdated import OutdatedEntry, ask_with, outdated


def cooldown(arguments: argparse.Namespace) -> timedelta:
    """Return the cooldown that was asked for."""
    if not 0 <= arguments.cooldown < 10_000:
        raise UsageError(f"--cooldown {arguments.cooldown}: a number of days, not negative")
    return timedelta(days=arguments.cooldown)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Ask the registries; exit code 1 when there is something to bump to."""
    found: list[OutdatedEntry] = []
    with (
        progress() as shown,
        selected_library(arguments.pins, shown) as library,
        shown.step("asking the registries"),
    ):
        for one in libraries_of(library):
            ask, now = ask_with(one.clients), datetime.now(UTC)
            found += outdated(one.pins, one.pins_path, ask, now=now, cooldown=cooldown(arguments))
    print_records(found, columns([_row(entry) for entry in found]), as_json=arguments.json)
    return ExitCode.FAILED if any(entry.newest for entry in found) else ExitCode.OK


def _row(entry: OutdatedEntry) -> tuple[str, ...]:
    if entry.newest:
        date = f"{entry.released:%Y-%m-%d}" if entry.released else "on an unknown day"
        said = f"-> {entry.newest} (released {date})"
    else:
        said = "newest"
    if entry.waiting:
        said += f"; {entry.waiting} is too young, or not there for every platform"
    return entry.harness, entry.current, said, " ".join(entry.platforms)
