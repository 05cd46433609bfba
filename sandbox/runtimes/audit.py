"""What registries publish about who made a locked file: signatures and provenance, verified.

npm: registry signatures (ECDSA over name, version and integrity) and provenance attestations, both
verified by npm itself (`npm audit signatures`), whose keys and certificates come through sigstore's
TUF root, not from the registry alone. Python: attestations (PEP 740), verified against the cached
file by the ``pypi-attestations`` program where it is installed. In both cases what is published has
to be about the locked hash. Debian packages are covered by the signed package lists that apt reads.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandbox.errors import FetchError, SandboxError
from sandbox.evidence.records import Record
from sandbox.runtimes.client import run_client
from sandbox.runtimes.integrity import Integrity
from sandbox.runtimes.lock import LockedArtifact
from sandbox.runtimes.npm import Dist

_COUNT = re.compile(r"^(\d+) packages? ha(?:s a|ve) verified registry signatures?$", re.MULTILINE)

Proof = Literal["signature", "provenance"]
Status = Literal["verified", "not published", "invalid", "unknown"]
_ATTESTATIONS_CURE = f"run `{sys.executable} -m pip install pypi-attestations`"


class AuditEntry(Record):
    """One line of `pins audit`: one file, and one kind of proof.

    ``unknown``: it is published and could not be verified, or nobody could be asked.
    """

    client: str
    name: str
    version: str
    file: str
    proof: Proof
    status: Status
    detail: str = ""


def entry(one: LockedArtifact, proof: Proof, status: Status, detail: str = "") -> AuditEntry:
    """Return the line about one file."""
    return AuditEntry(
        client=one.client,
        name=one.name,
        version=one.version,
        file=one.file,
        proof=proof,
        status=status,
        detail=detail,
    )


class _Named(BaseModel):
    model_config = ConfigDict(extra="ignore")

    name: str
    version: str
    code: str = ""


class _Report(BaseModel):
    """What `npm audit signatures --json --include-attestations` prints."""

    model_config = ConfigDict(extra="ignore")

    invalid: tuple[_Named, ...] = ()
    missing: tuple[_Named, ...] = ()
    verified: tuple[_Named, ...] = Field(default=())


def audit_npm(
    files: Sequence[LockedArtifact],
    dist: Callable[[str, str], Dist],
    npm: Callable[[], tuple[str, ...]],
    env: Mapping[str, str],
) -> list[AuditEntry]:
    """Return what is known of npm's files: two lines each.

    Args:
        files: locked npm tarballs.
        dist: what the registry says of a version.
        npm: gives the argv of npm; called only when the registry publishes anything.
        env: its environment.
    """
    found: list[AuditEntry] = []
    published: list[tuple[LockedArtifact, Dist]] = []
    for one in files:
        try:
            said = dist(one.name, one.version)
        except SandboxError as error:
            found += [entry(one, proof, "unknown", error.message) for proof in _BOTH]
            continue
        if not _same(said.integrity, one):
            detail = f"it is about {said.integrity.text}, locked is {one.integrity}"
            found += [entry(one, proof, "invalid", detail) for proof in _BOTH]
        elif said.signed or said.attested:
            published.append((one, said))
        else:
            found += [entry(one, proof, "not published") for proof in _BOTH]
    return found + _verified_by_npm(published, npm, env)


_BOTH: tuple[Proof, ...] = ("signature", "provenance")


def _same(said: Integrity, one: LockedArtifact) -> bool:
    locked = Integrity.parse(one.integrity)
    return (said.algorithm, said.hexdigest) == (locked.algorithm, locked.hexdigest)


def _verified_by_npm(
    published: Sequence[tuple[LockedArtifact, Dist]],
    npm: Callable[[], tuple[str, ...]],
    env: Mapping[str, str],
) -> list[AuditEntry]:
    if not published:
        return []
    try:
        report, signatures = _npm_report([one for one, _ in published], npm(), env)
    except SandboxError as error:
        return [
            entry(one, proof, "unknown", error.message) if there else entry(one, proof, _ABSENT)
            for one, said in published
            for proof, there in zip(_BOTH, (said.signed, said.attested), strict=True)
        ]
    found = []
    good = [one for one, said in published if said.signed and not _wrong(one, report)]
    for one, said in published:
        bad = _wrong(one, report)
        signature: Status = "invalid" if bad else "verified"
        if said.signed and not bad and signatures < len(good):
            signature = "unknown"
            bad = f"npm verified {signatures} of {len(good)} signatures: it has no key for the rest"
        attested = any(_is(each, one) for each in report.verified)
        provenance: Status = "invalid" if _wrong(one, report) else "unknown"
        provenance = "verified" if attested else provenance
        found.append(entry(one, "signature", signature if said.signed else _ABSENT, bad))
        found.append(entry(one, "provenance", provenance if said.attested else _ABSENT, bad))
    return found


def _wrong(one: LockedArtifact, report: _Report) -> str:
    """What npm finds wrong with a file; empty when nothing."""
    codes = sorted({each.code for each in report.invalid if _is(each, one)})
    missing = any(_is(each, one) for each in report.missing)
    return ", ".join([*codes, *["no signature, though the registry has keys"] * missing])


_ABSENT: Status = "not published"


def _is(each: _Named, one: LockedArtifact) -> bool:
    return (each.name, each.version) == (one.name, one.version)


def _npm_report(
    files: Sequence[LockedArtifact], npm: tuple[str, ...], env: Mapping[str, str]
) -> tuple[_Report, int]:
    """Let npm look at a project in which these versions seem to be installed.

    Its JSON leaves out how many signatures it had a key for, its text says it: both are read.
    """
    argv = [*npm, "audit", "signatures", "--loglevel=error", "--no-color"]
    with tempfile.TemporaryDirectory() as folder:
        _write_project(files, Path(folder))
        as_json = [*argv, "--json", "--include-attestations"]
        code, out, errors = run_client(as_json, env=env, deadline_s=600, cwd=Path(folder))
        try:
            report = _Report.model_validate_json(out)
        except ValidationError as error:
            raise FetchError(
                f"`npm audit signatures` ended with exit code {code}: {(errors or out)[-500:]}"
            ) from error
        _, text, _ = run_client(argv, env=env, deadline_s=600, cwd=Path(folder))
    counted = _COUNT.search(text)
    return report, int(counted[1]) if counted else 0


def _write_project(files: Iterable[LockedArtifact], folder: Path) -> None:
    """npm reads what is installed: one folder a package, several versions below parents apart."""
    wanted = {}
    for number, one in enumerate(files):
        alias = f"pin-{number}"
        wanted[alias] = f"npm:{one.name}@{one.version}"
        home = folder / "node_modules" / alias
        home.mkdir(parents=True)
        said = {"name": one.name, "version": one.version}
        (home / "package.json").write_text(json.dumps(said), "utf-8")
    project = {"name": "pins", "private": True, "dependencies": wanted}
    (folder / "package.json").write_text(json.dumps(project), "utf-8")


class _Publisher(BaseModel):
    model_config = ConfigDict(extra="ignore")

    kind: str
    repository: str = ""


class _Attested(BaseModel):
    model_config = ConfigDict(extra="ignore")

    publisher: _Publisher


class _Provenance(BaseModel):
    """An index's provenance object (PEP 740), as far as it is read here."""

    model_config = ConfigDict(extra="ignore")

    attestation_bundles: tuple[_Attested, ...] = Field(min_length=1)


_HOMES = {"GitHub": "github", "GitLab": "gitlab"}


def audit_wheel(
    one: LockedArtifact, provenance: object | None, cached: Path | None, env: Mapping[str, str]
) -> AuditEntry:
    """Return what is known of a wheel.

    Args:
        one: the locked wheel.
        provenance: the index's provenance object for that file; None: it publishes none.
        cached: the verified file of this machine.
        env: the environment of the program that verifies.
    """
    if provenance is None:
        return entry(one, "provenance", "not published")
    try:
        publisher = _Provenance.model_validate(provenance).attestation_bundles[0].publisher
    except ValidationError:
        return entry(one, "provenance", "invalid", "the index's provenance is not readable")
    if cached is None:
        detail = "published; fetch the file first: `sandbox runtimes fetch`"
        return entry(one, "provenance", "unknown", detail)
    program = Path(sys.executable).with_name("pypi-attestations")
    found = str(program) if program.is_file() else shutil.which(program.name, path=env.get("PATH"))
    if found is None:
        detail = f"published, and nothing here can verify it: {_ATTESTATIONS_CURE}"
        return entry(one, "provenance", "unknown", detail)
    return _attested(
        one, found, json.dumps(provenance), publisher=publisher, cached=cached, env=env
    )


def _attested(
    one: LockedArtifact,
    program: str,
    provenance: str,
    *,
    publisher: _Publisher,
    cached: Path,
    env: Mapping[str, str],
) -> AuditEntry:
    if publisher.kind not in _HOMES:
        detail = f"published by {publisher.kind}, whose identity nothing here knows"
        return entry(one, "provenance", "unknown", detail)
    home = f"https://{_HOMES[publisher.kind]}.com/{publisher.repository}"
    with tempfile.TemporaryDirectory() as folder:
        said, wheel = Path(folder) / "provenance.json", Path(folder) / one.file
        said.write_text(provenance, "utf-8")
        wheel.symlink_to(cached)
        argv = [program, "verify", "pypi", "--provenance-file", str(said)]
        argv += ["--repository", home, str(wheel)]
        code, out, errors = run_client(argv, env=env, deadline_s=120)
    detail = (errors or out).strip().rpartition("\n")[2][-300:]
    return entry(one, "provenance", "invalid" if code else "verified", detail or home)
