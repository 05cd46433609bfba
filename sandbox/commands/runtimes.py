"""``sandbox runtimes list|fetch|verify|lock``: the pinned runtimes on this machine."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from sandbox.commands.library import open_library
from sandbox.commands.sizes import megabytes
from sandbox.errors import ExitCode
from sandbox.evidence.records import Record
from sandbox.progress import Progress, progress
from sandbox.runtimes.collection import RuntimeCollection
from sandbox.runtimes.library import RuntimeLibrary
from sandbox.runtimes.tools import host_platform

_ACTIONS = {
    "list": "harness, version, platform, size, licence, and whether the bundle is here",
    "fetch": "fetch, verify and assemble bundles; what is here already is kept",
    "verify": "hash the lock and every cached byte, offline; exit 4 when one is wrong",
    "lock": "resolve pins.toml and write pins.lock",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in _ACTIONS.items():
        action = actions.add_parser(name, help=text, description=text)
        action.add_argument(
            "--pins",
            type=Path,
            metavar="FILE",
            help="this pins.toml alone (default: ours and those of installed harness packages)",
        )
        action.add_argument("--json", action="store_true", help="print JSON")
        if name == "fetch":
            action.add_argument("--harness", action="append", metavar="GLOB")
            action.add_argument(
                "--platform", action="append", metavar="GLOB", help=f"default: {_here()}"
            )


def _here() -> str:
    """Return the glob of the platforms that this machine's sandboxes can be."""
    return host_platform().rpartition("-")[0] + "-*"


def run(arguments: argparse.Namespace) -> ExitCode:
    """Do the action."""
    with progress() as shown:
        records, lines = _done(arguments, shown)
    if arguments.json:
        print(json.dumps([record.model_dump(mode="json") for record in records], indent=2))
    else:
        print("\n".join(lines))
    wrong = any(getattr(record, "status", "") == "corrupt" for record in records)
    return ExitCode.ERROR if wrong else ExitCode.OK


def _done(arguments: argparse.Namespace, shown: Progress) -> tuple[Sequence[Record], Sequence[str]]:
    """Do the action with one pins file, or with all."""
    if arguments.action == "lock" or arguments.pins is not None:
        with RuntimeLibrary(arguments.pins, progress=shown) as library:
            return _locked(library) if arguments.action == "lock" else _act(library, arguments)
    with open_library(shown) as libraries:
        return _act(libraries, arguments)


def _locked(library: RuntimeLibrary) -> tuple[Sequence[Record], Sequence[str]]:
    made = library.update_lock()
    return (made,), [f"{'wrote' if made.changed else 'unchanged:'} {made.path}"]


def _act(
    library: RuntimeLibrary | RuntimeCollection, arguments: argparse.Namespace
) -> tuple[Sequence[Record], Sequence[str]]:
    """Return the records of the action and how each reads in a line."""
    if arguments.action == "list":
        entries = library.entries()
        return entries, [
            f"{entry.harness:<10} {entry.version:<10} {entry.platform:<17} "
            f"{megabytes(entry.size):>8}  {entry.licence:<11} "
            f"{'cached' if entry.cached else 'not cached':<10} sha256:{entry.sha256[:16]}"
            for entry in entries
        ]
    if arguments.action == "fetch":
        fetched = library.fetch(arguments.harness or ("*",), arguments.platform or (_here(),))
        return fetched, [
            f"{item.bundle.harness} {item.bundle.version} {item.bundle.platform}: "
            f"{item.bundle.path} ({'here already' if item.already_here else 'fetched'}, "
            f"{item.duration_s:.1f} s)"
            for item in fetched
        ]
    verified = library.verify()
    return verified, [
        f"{entry.status:<8} {entry.kind:<8} {entry.name} {entry.detail}".rstrip()
        for entry in verified
    ]
