"""Checks of the installed runtime."""

from __future__ import annotations

import re

from sandbox.evidence.checks.check import check
from sandbox.evidence.records import InstallReceipt
from sandbox.evidence.verdict import MissingEvidence, Outcome, Tier, judged_by, not_applicable
from sandbox.evidence.view import CellEvidence


@check(
    tier=Tier.P0,
    kind="sandbox",
    group="install",
    why="a run with another version or other bytes than the pin proves nothing about the pin",
)
def install_exact(cell: CellEvidence) -> Outcome:
    """The installer's receipt names the pinned bytes, and the harness says the pinned version."""
    if cell.is_remote and cell.files.install is None:
        return not_applicable("an agent server installs its runtime itself")
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
    return judged_by([*faults, *_cited(cell, receipt)])


def _cited(cell: CellEvidence, receipt: InstallReceipt) -> list[str]:
    """Say what is wrong with the check of the version that a receipt cites.

    A program may be cited instead of run where nothing here can have changed it, which is a mount,
    if it ran from these bytes, in this image, before this cell ended.
    """
    proof = receipt.version_check
    earlier = receipt.version_checked == "earlier"
    if proof is None:
        return ["expected where the version was checked earlier, saw nothing"] if earlier else []
    image = cell.cell.image_record
    pairs = (
        ("bundle sha256", receipt.bundle_sha256, proof.bundle_sha256),
        ("image", None if image is None else image.image_id, proof.image_id),
        ("output", receipt.version_output, proof.version_output),
    )
    faults = [
        f"expected the version to be checked with {name} {want}, saw {seen}"
        for name, want, seen in pairs
        if want != seen
    ]
    if earlier and receipt.way != "mount":
        faults.append(f"expected the version of a {receipt.way} to be checked now, saw earlier")
    if proof.checked_at > cell.cell.completed_at:
        faults.append("expected the version to be checked before the cell ended, saw later")
    return faults


CHECKS = (install_exact,)
