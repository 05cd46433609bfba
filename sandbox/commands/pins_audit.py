"""``sandbox pins audit``: signatures and provenance of what is locked, as far as published."""

from __future__ import annotations

import argparse
import shutil
from collections import Counter
from collections.abc import Sequence

from sandbox.commands.library import libraries_of, selected_library
from sandbox.commands.records import print_records
from sandbox.errors import ExitCode, SandboxError
from sandbox.progress import progress
from sandbox.runtimes.audit import AuditEntry, Status, audit_npm, audit_wheel, entry
from sandbox.runtimes.integrity import Integrity
from sandbox.runtimes.library import RuntimeLibrary
from sandbox.runtimes.lock import LockedArtifact
from sandbox.runtimes.online import ServedEntry, ask_with, files_of, served


def run(arguments: argparse.Namespace) -> ExitCode:
    """Ask for all that is published; 1 when something is wrong, 4 when it could not be verified."""
    found: list[AuditEntry] = []
    with (
        progress() as shown,
        selected_library(arguments.pins, shown) as libraries,
        shown.step("asking the registries"),
    ):
        for library in libraries_of(libraries):
            files = files_of(library.lock())
            found += [*_npm(library, files), *_wheels(library, files), *_debs(library)]
    print_records(found, _lines(found, everything=arguments.all), as_json=arguments.json)
    return exit_code(found)


def exit_code(found: Sequence[AuditEntry]) -> ExitCode:
    """Return 1 when a proof is wrong, 4 when one could not be verified, else 0."""
    statuses = {one.status for one in found}
    if "invalid" in statuses:
        return ExitCode.FAILED
    return ExitCode.ERROR if "unknown" in statuses else ExitCode.OK


def _npm(library: RuntimeLibrary, files: Sequence[LockedArtifact]) -> list[AuditEntry]:
    clients = library.clients

    def npm() -> tuple[str, ...]:
        host = shutil.which("npm", path=clients.env.get("PATH", ""))
        return (host,) if host else clients.pinned_npm()

    wanted = [one for one in files if one.client == "npm"]
    return audit_npm(wanted, lambda n, v: clients.registry().dist(n, v), npm, clients.env)


def _wheels(library: RuntimeLibrary, files: Sequence[LockedArtifact]) -> list[AuditEntry]:
    return [_wheel(library, one) for one in files if one.client == "pip"]


def _wheel(library: RuntimeLibrary, one: LockedArtifact) -> AuditEntry:
    index = library.clients.index
    path = library.store.artifact(Integrity.parse(one.integrity))
    try:
        said = index().files(one.name).get(one.file)
        address = said.provenance if said else None
        provenance = index().json(address, what=one.file) if address else None
    except SandboxError as error:
        return entry(one, "provenance", "unknown", error.message)
    cached = path if path.is_file() else None
    return audit_wheel(one, provenance, cached, library.clients.env)


def _debs(library: RuntimeLibrary) -> list[AuditEntry]:
    """apt reads only package lists whose signature it verified, and they name the hash."""
    lock = library.lock()
    debs = {name: one for name, one in lock.artifacts.items() if one.client == "apt"}
    by_file = {(one.name, one.file): one for one in debs.values()}
    only = lock.model_copy(update={"artifacts": debs, "trees": {}})
    return [
        _deb(by_file[each.name, each.file], each)
        for each in served(only, ask_with(library.clients))
    ]


def _deb(one: LockedArtifact, said: ServedEntry) -> AuditEntry:
    if said.status == "ok":
        return entry(one, "signature", "verified", "by the archive's signed list")
    status: Status = "invalid" if said.status == "changed" else "unknown"
    return entry(one, "signature", status, said.detail)


def _lines(found: Sequence[AuditEntry], *, everything: bool) -> list[str]:
    shown = [one for one in found if everything or one.status in {"invalid", "unknown"}]
    lines = [
        f"{one.status:<13} {one.proof:<10} {one.name} {one.version} {one.detail}".rstrip()
        for one in shown
    ]
    counts = Counter((one.client, one.proof, one.status) for one in found)
    return lines + [
        f"{client} {proof}: {status} for {number} file(s)"
        for (client, proof, status), number in sorted(counts.items())
    ]
