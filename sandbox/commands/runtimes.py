"""``sandbox runtimes list|fetch|verify|lock``: the pinned runtimes on this machine."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from sandbox.commands.sizes import megabytes
from sandbox.errors import ExitCode, NothingSelected
from sandbox.evidence.records import Record
from sandbox.progress import Progress, progress
from sandbox.runtimes.library import RuntimeEntry, RuntimeLibrary
from sandbox.runtimes.lock import write_lock


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in (
        ("list", "harness, version, platform, size, licence, and whether the bundle is here"),
        ("fetch", "fetch, verify and assemble bundles; what is here already is kept"),
        ("verify", "hash the lock and every cached byte, offline; exit 4 when one is wrong"),
        ("lock", "resolve pins.toml and write pins.lock"),
    ):
        action = actions.add_parser(name, help=text, description=text)
        action.add_argument("--pins", type=Path, metavar="FILE", help="another pins.toml")
        if name != "lock":
            action.add_argument("--json", action="store_true", help="print JSON")
        if name in ("list", "fetch"):
            action.add_argument("--harness", action="append", default=[], metavar="GLOB")
            action.add_argument("--platform", action="append", default=[], metavar="GLOB")


def run(arguments: argparse.Namespace) -> ExitCode:
    """Do the action."""
    with progress() as shown, RuntimeLibrary(arguments.pins) as library:
        if arguments.action == "list":
            return _list(_chosen(library, arguments), as_json=arguments.json)
        if arguments.action == "fetch":
            return _fetch(library, _chosen(library, arguments), arguments, shown)
        if arguments.action == "verify":
            return _verify(library, arguments, shown)
        return _lock(library, shown)


def _chosen(library: RuntimeLibrary, arguments: argparse.Namespace) -> tuple[RuntimeEntry, ...]:
    chosen = tuple(
        entry
        for entry in library.entries()
        if _matches(entry.harness, arguments.harness)
        and _matches(entry.platform, arguments.platform)
    )
    if not chosen:
        raise NothingSelected(
            "no locked runtime matches", cure="see what there is: sandbox runtimes list"
        )
    return chosen


def _matches(name: str, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatchcase(name, glob) for glob in globs)


def _list(entries: Sequence[RuntimeEntry], *, as_json: bool) -> ExitCode:
    if as_json:
        _print_json(entries)
        return ExitCode.OK
    for entry in entries:
        here = "cached" if entry.cached else "not cached"
        print(
            f"{entry.harness:<10} {entry.version:<10} {entry.platform:<17} "
            f"{megabytes(entry.size):>8}  {entry.licence:<11} {here:<10} "
            f"sha256:{entry.sha256[:16]}"
        )
    return ExitCode.OK


def _fetch(
    library: RuntimeLibrary,
    entries: Sequence[RuntimeEntry],
    arguments: argparse.Namespace,
    shown: Progress,
) -> ExitCode:
    bundles = [
        library.ensure_bundle(entry.harness, entry.platform, shown) for entry in entries
    ]
    if arguments.json:
        _print_json(bundles)
        return ExitCode.OK
    for bundle in bundles:
        print(f"{bundle.harness} {bundle.version} {bundle.platform}: {bundle.path}")
    return ExitCode.OK


def _verify(
    library: RuntimeLibrary, arguments: argparse.Namespace, shown: Progress
) -> ExitCode:
    entries = library.verify(shown)
    corrupt = [entry for entry in entries if entry.status == "corrupt"]
    if arguments.json:
        _print_json(entries)
    else:
        for entry in entries:
            print(f"{entry.status:<8} {entry.kind:<8} {entry.name} {entry.detail}".rstrip())
    return ExitCode.ERROR if corrupt else ExitCode.OK


def _lock(library: RuntimeLibrary, shown: Progress) -> ExitCode:
    changed = write_lock(library.lock_path, library.resolve(shown))
    print(f"{'wrote' if changed else 'unchanged:'} {library.lock_path}")
    return ExitCode.OK


def _print_json(records: Sequence[Record]) -> None:
    print(json.dumps([record.model_dump(mode="json") for record in records], indent=2))
