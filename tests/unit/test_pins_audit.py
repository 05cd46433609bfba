"""What `pins audit` says of signatures and provenance, with the verifying programs in sh."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sandbox.commands.pins_audit import exit_code
from sandbox.errors import FetchError
from sandbox.runtimes.audit import audit_npm, audit_wheel
from sandbox.runtimes.integrity import Integrity
from sandbox.runtimes.lock import LockedArtifact, load_lock
from sandbox.runtimes.npm import Dist

LOCK = load_lock()
PI, WHEEL = LOCK.artifacts["pi"], LOCK.artifacts["node-linux-x64-gnu"]
NAMED = {"name": PI.name, "version": PI.version}
ONE = "1 package has a verified registry signature"


def npm(folder: Path, report: object, text: str = ONE) -> tuple[str, ...]:
    """An npm that looks at the project it is run in and prints these."""
    script = folder / "npm.sh"
    script.write_text(
        "grep -q pi-coding-agent node_modules/pin-0/package.json || exit 9\n"
        f"case \"$*\" in *--json*) echo '{json.dumps(report)}' ;; *) echo '{text}' ;; esac\n"
    )
    return ("sh", str(script))


def statuses(
    tmp_path: Path, dist: Dist | Exception, report: object = None, text: str = ONE
) -> tuple[str, str, int]:
    def said(name: str, version: str) -> Dist:
        assert (name, version) == (PI.name, PI.version)
        if isinstance(dist, Exception):
            raise dist
        return dist

    def program() -> tuple[str, ...]:
        assert report is not None, "nothing is published: npm is not asked"
        return npm(tmp_path, report, text)

    found = audit_npm([PI], said, program, os.environ)
    by_proof = {one.proof: one.status for one in found}
    return by_proof["signature"], by_proof["provenance"], exit_code(found)


def dist(integrity: str = PI.integrity, *, signed: bool = True, attested: bool = True) -> Dist:
    return Dist(("x",), Integrity.parse(integrity), signed=signed, attested=attested)


GOOD = {"invalid": [], "missing": [], "verified": [NAMED]}


@pytest.mark.parametrize(
    ("served", "report", "text", "expected"),
    [
        pytest.param(
            dist(signed=False, attested=False), None, "",
            ("not published", "not published", 0), id="nothing",
        ),
        pytest.param(dist(), GOOD, ONE, ("verified", "verified", 0), id="both"),
        pytest.param(
            dist(attested=False), {"invalid": [], "missing": []}, ONE,
            ("verified", "not published", 0), id="signature",
        ),
        pytest.param(
            dist(), {"invalid": [NAMED | {"code": "EINTEGRITYSIGNATURE"}]}, "",
            ("invalid", "invalid", 1), id="forged",
        ),
        pytest.param(
            dist(), {"invalid": [NAMED | {"code": "EATTESTATIONVERIFY"}]}, "",
            ("invalid", "invalid", 1), id="forged-provenance",
        ),
        pytest.param(dist(), GOOD, "", ("unknown", "verified", 4), id="no-key"),
        pytest.param(
            dist(), {"verified": []}, ONE, ("verified", "unknown", 4), id="attestation-unseen"
        ),
        pytest.param(dist(), "no report", ONE, ("unknown", "unknown", 4), id="npm-fails"),
        pytest.param(
            dist("sha512-" + "A" * 86 + "=="), None, "", ("invalid", "invalid", 1), id="other-bytes"
        ),
        pytest.param(FetchError("no route"), None, "", ("unknown", "unknown", 4), id="offline"),
    ],
)  # fmt: skip
def test_npm(
    tmp_path: Path, served: Dist | Exception, report: object, text: str,
    expected: tuple[str, str, int],
) -> None:  # fmt: skip
    assert statuses(tmp_path, served, report, text) == expected


def provenance(kind: str = "GitHub") -> dict[str, object]:
    publisher = {"kind": kind, "repository": "owner/name", "workflow": "release.yml"}
    return {"version": 1, "attestation_bundles": [{"publisher": publisher, "attestations": []}]}


def verifier(folder: Path, code: int) -> dict[str, str]:
    """A pypi-attestations that looks at what it is given."""
    folder.mkdir()
    program = folder / "pypi-attestations"
    program.write_text(
        '#!/bin/sh\n[ "$1 $2 $3 $5" = "verify pypi --provenance-file --repository" ] || exit 8\n'
        'grep -q attestation_bundles "$4" || exit 7\n'
        '[ "${6#https://}" = github.com/owner/name ] || exit 7\n'
        f'[ -s "$7" ] && echo "OK: ${{7##*/}}"; exit {code}\n'
    )
    program.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("said", "code", "cached", "status"),
    [
        pytest.param(None, 0, True, "not published", id="none"),
        pytest.param(provenance(), 0, True, "verified", id="good"),
        pytest.param(provenance(), 1, True, "invalid", id="forged"),
        pytest.param(provenance(), 0, False, "unknown", id="not-cached"),
        pytest.param(provenance("Elsewhere"), 0, True, "unknown", id="publisher"),
        pytest.param({"attestation_bundles": []}, 0, True, "invalid", id="empty"),
    ],
)
def test_wheels(tmp_path: Path, said: object, code: int, cached: bool, status: str) -> None:
    wheel: LockedArtifact = WHEEL
    file = tmp_path / "cached"
    file.write_text("bytes")
    env = verifier(tmp_path / "bin", code)
    found = audit_wheel(wheel, said, file if cached else None, env)
    assert found.status == status, found.detail
    if status == "verified":
        assert found.detail == f"OK: {wheel.file}"


def test_without_a_verifier_what_is_published_is_unknown_with_the_cure(tmp_path: Path) -> None:
    found = audit_wheel(WHEEL, provenance(), tmp_path, {"PATH": str(tmp_path)})
    assert (found.status, exit_code([found])) == ("unknown", 4)
    assert "pip install pypi-attestations" in found.detail
