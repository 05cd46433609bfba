"""``sandbox pins verify``: the lock, every cached byte, and with ``--online`` what is served."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence

from sandbox.commands.library import libraries_of, selected_library
from sandbox.commands.records import print_records
from sandbox.errors import ExitCode
from sandbox.evidence.records import Record
from sandbox.progress import progress
from sandbox.runtimes.collection import RuntimeCollection
from sandbox.runtimes.completeness import lock_faults
from sandbox.runtimes.library import RuntimeLibrary, VerifyEntry
from sandbox.runtimes.online import ServedEntry, ask_with, served


def run(arguments: argparse.Namespace) -> ExitCode:
    """Look at all of it and name what is wrong; a corrupt file is left where it is."""
    with progress() as shown, selected_library(arguments.pins, shown) as library:
        found: list[VerifyEntry | ServedEntry] = [*_broken(library)]
        for one in libraries_of(library):
            found += _lock(one)
        if not arguments.lock:
            found += [entry for entry in library.verify() if entry.kind != "lock"]
        if arguments.online:
            with shown.step("asking the registries"):
                for one in libraries_of(library):
                    found += served(one.lock(), ask_with(one.clients))
    print_records(found, _lines(found, everything=arguments.all), as_json=arguments.json)
    return exit_code(found)


def _broken(library: RuntimeLibrary | RuntimeCollection) -> list[VerifyEntry]:
    broken = library.broken if isinstance(library, RuntimeCollection) else {}
    return [
        VerifyEntry(kind="lock", name=harness, status="corrupt", detail=error.message)
        for harness, error in sorted(broken.items())
    ]


def _lock(library: RuntimeLibrary) -> list[VerifyEntry]:
    name = str(library.lock_path)
    return [
        VerifyEntry(kind="lock", name=name, status="corrupt", detail=fault)
        for fault in lock_faults(library.pins, library.lock())
    ] or [VerifyEntry(kind="lock", name=name, status="ok")]


def exit_code(found: Sequence[VerifyEntry | ServedEntry]) -> ExitCode:
    """Return 1 when something is wrong, 4 when a registry could not tell, else 0."""
    statuses = {entry.status for entry in found}
    if statuses & {"corrupt", "changed", "gone"}:
        return ExitCode.FAILED
    return ExitCode.ERROR if "unknown" in statuses else ExitCode.OK


def _lines(found: Sequence[VerifyEntry | ServedEntry], *, everything: bool) -> list[str]:
    shown = [one for one in found if everything or one.status not in {"ok", "absent"}]
    counts = Counter((_what(entry), entry.status) for entry in found)
    sums = (f"{number} {status} ({what})" for (what, status), number in sorted(counts.items()))
    return [*map(_line, shown), "; ".join(sums)]


def _what(entry: Record) -> str:
    return entry.kind if isinstance(entry, VerifyEntry) else "registry"


def _line(entry: VerifyEntry | ServedEntry) -> str:
    name = entry.name if isinstance(entry, VerifyEntry) else f"{entry.name} {entry.version}"
    return f"{entry.status:<8} {_what(entry):<8} {name} {entry.detail}".rstrip()
