"""``sandbox pins list``: what is pinned, one line a bundle."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from datetime import UTC, datetime

from sandbox.commands.library import libraries_of, selected_library
from sandbox.commands.records import columns, print_records
from sandbox.commands.sizes import megabytes
from sandbox.errors import ExitCode
from sandbox.progress import progress
from sandbox.runtimes.library import RuntimeEntry
from sandbox.runtimes.needs import Needs
from sandbox.runtimes.pins import Pins

_TITLES = ("HARNESS", "VERSION", "PLATFORMS", "SIZE", "LICENCE", "LIBC", "CPU", "AGE", "HERE")


def run(arguments: argparse.Namespace) -> ExitCode:
    """Print it; no network, nothing is hashed."""
    with progress() as shown, selected_library(arguments.pins, shown) as library:
        entries = library.entries()
        lines = columns(_rows(entries, datetime.now(UTC)))
        lines += [line for one in libraries_of(library) for line in _unavailable(one.pins)]
    print_records(entries, lines, as_json=arguments.json)
    return ExitCode.OK


def _rows(entries: Iterable[RuntimeEntry], now: datetime) -> list[tuple[str, ...]]:
    bundles: dict[tuple[str, str], list[RuntimeEntry]] = {}
    for entry in entries:
        bundles.setdefault((entry.harness, entry.sha256), []).append(entry)
    rows: list[tuple[str, ...]] = [_TITLES]
    for shared in bundles.values():
        one = shared[0]
        rows.append(
            (
                one.harness,
                one.version,
                " ".join(each.platform for each in shared),
                megabytes(one.size),
                one.licence if one.redistributable else f"{one.licence} (not passed on)",
                libc_floor(one.needs),
                one.needs.cpu or "any",
                _age(one.released, now),
                "yes" if one.cached else "no",
            )
        )
    return rows


def libc_floor(needs: Needs) -> str:
    """Say which libc a bundle needs, and how new: "glibc 2.28", "musl", or "any" if static."""
    if needs.interpreter is None:
        return "any"
    if "ld-musl" in needs.interpreter:
        return "musl"
    return f"glibc {needs.glibc}" if needs.glibc else "glibc"


def _age(released: datetime | None, now: datetime) -> str:
    return "unknown" if released is None else f"{(now - released).days} d ({released:%Y-%m-%d})"


def _unavailable(pins: Pins) -> list[str]:
    return [
        f"{name} {platform}: not pinned: {reason}"
        for name, pin in sorted(pins.harness.items())
        for platform, reason in sorted(pin.unavailable.items())
    ]
