"""Checks of the installed runtime."""

from __future__ import annotations

import re

from sandbox.evidence.checks.check import check
from sandbox.evidence.verdict import MissingEvidence, Outcome, Tier, judged_by
from sandbox.evidence.view import CellEvidence


@check(
    tier=Tier.P0,
    kind="sandbox",
    group="install",
    why="a run with another version or other bytes than the pin proves nothing about the pin",
)
def install_exact(cell: CellEvidence) -> Outcome:
    """The installer's receipt names the pinned bytes, and the harness says the pinned version."""
    pin, receipt = cell.cell.pin, cell.install
    if pin is None:
        raise MissingEvidence("cell.json names no pin")
    pairs = (
        ("harness", pin.harness, receipt.harness),
        ("version", pin.version, receipt.version),
        ("platform", pin.platform, receipt.platform),
        ("bundle sha256", pin.bundle_sha256, receipt.bundle_sha256),
    )
    faults = [f"expected {name} {want}, saw {seen}" for name, want, seen in pairs if want != seen]
    exact = rf"(?<![\w.+-])v?{re.escape(pin.version)}(?![\w.+-])"
    if not re.search(exact, receipt.version_output):
        faults.append(f"expected --version {pin.version}, saw {receipt.version_output.strip()!r}")
    home = cell.cell.session_dir
    if home is not None and not receipt.prefix.startswith(f"{home.rstrip('/')}/"):
        faults.append(f"expected the prefix below {home}, saw {receipt.prefix}")
    return judged_by(faults)


CHECKS = (install_exact,)
