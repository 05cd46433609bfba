"""``sandbox doctor``: what this machine has and lacks, each lack with its cure."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from sandbox.commands.library import open_library
from sandbox.engine.doctor import examine, exit_code
from sandbox.engine.finding import Finding
from sandbox.errors import ExitCode
from sandbox.harnesses.registry import registered
from sandbox.progress import PlainProgress
from sandbox.runtimes.doctor import registry_findings
from sandbox.runtimes.library import RuntimeLibrary, VerifyEntry

_WORDS = {True: ("ok", "green"), False: ("MISSING", "bold red"), None: ("limited", "yellow")}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--offline", action="store_true", help="do not ask the registries")


def run(arguments: argparse.Namespace) -> ExitCode:
    """Look at everything, change nothing; the first missing thing decides the exit code."""
    more = [("store", _store), ("harnesses", _harnesses)]
    if not arguments.offline:
        more.append(("registries", _registries))
    findings = examine(more=more)
    if arguments.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _show(findings)
    return exit_code(findings)


def _show(findings: tuple[Finding, ...]) -> None:
    console = Console()
    for finding in findings:
        word, style = _WORDS[finding.ok]
        console.print(
            Text.assemble((f"{word:<8}", style), f"{finding.name}: {finding.detail}"),
            soft_wrap=True,
        )
        if finding.cure is not None and finding.ok is not True:
            console.print(Text(f"         what to do: {finding.cure}"), soft_wrap=True)


def _store() -> Iterator[Finding]:
    """Hash every cached byte of the pinned runtimes; what is not fetched yet is no fault."""
    with open_library(PlainProgress(quiet=True)) as library:
        entries = library.verify()
    corrupt = [entry for entry in entries if entry.status == "corrupt"]
    for entry in corrupt:
        yield _corrupt(entry)
    if not corrupt:
        here = sum(entry.status == "ok" for entry in entries)
        yield Finding(
            name="store", ok=True, detail=f"{here} of {len(entries)} files here, all whole"
        )


def _corrupt(entry: VerifyEntry) -> Finding:
    return Finding(
        name="store",
        ok=False,
        detail=f"{entry.kind} {entry.name}: {entry.detail}",
        cure="fetch it again: sandbox runtimes fetch",
        exit_code=ExitCode.ERROR,
    )


def _harnesses() -> Iterator[Finding]:
    known = registered()
    yield Finding(name="harnesses", ok=True, detail=", ".join(known.harnesses))
    with open_library(PlainProgress(quiet=True), known) as library:
        for error in (*known.broken.values(), *library.broken.values()):
            yield Finding(
                name="harnesses",
                ok=False,
                detail=error.message,
                cure=error.cure,
                exit_code=error.exit_code,
            )


def _registries() -> Iterator[Finding]:
    with RuntimeLibrary() as library:
        for found in registry_findings(library):
            yield Finding(
                name=f"{found.client} registry",
                ok=found.ok,
                detail=found.detail,
                cure=found.cure,
                exit_code=ExitCode.OK if found.ok else ExitCode.PREREQUISITE,
            )
