"""Proofs that a program said its version: found again for the same things only."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.runtimes.proofs import Proofs, installer_sha256
from sandbox.runtimes.reports import Bundle

BUNDLE = Bundle(
    harness="tool",
    version="1.2.3",
    platform="linux-x64-musl",
    path=Path("/cache/abc.tar"),
    sha256="a" * 64,
    size=10,
    version_argv=("--version",),
    version_output="tool 1.2.3",
)
INSTALLER = installer_sha256(BUNDLE)


@pytest.fixture
def proofs(tmp_path: Path) -> Proofs:
    found = Proofs(folder=tmp_path / "proofs", image_id="sha256:1")
    assert found.find(BUNDLE, INSTALLER) is None
    found.keep(BUNDLE, INSTALLER, sandbox="box")
    return found


def test_a_kept_proof_is_found(proofs: Proofs) -> None:
    known = proofs.find(BUNDLE, INSTALLER)
    assert known is not None
    assert (known.bundle_sha256, known.image_id) == (BUNDLE.sha256, "sha256:1")
    assert (known.installer_sha256, known.sandbox) == (INSTALLER, "box")


def test_none_holds_for_anything_else(proofs: Proofs) -> None:
    assert proofs.find(BUNDLE.model_copy(update={"sha256": "b" * 64}), INSTALLER) is None
    assert proofs.find(BUNDLE, "0" * 64) is None
    assert Proofs(folder=proofs.folder, image_id="sha256:2").find(BUNDLE, INSTALLER) is None


@pytest.mark.parametrize(
    "change",
    [
        {"version_argv": ("version",)},
        {"version_output": "tool 1.2.4"},
        {"version_first_line": True},
    ],
    ids=str,
)
def test_what_is_compared_belongs_to_the_installer(change: dict[str, object]) -> None:
    assert installer_sha256(BUNDLE.model_copy(update=change)) != INSTALLER


@pytest.mark.parametrize("text", ["", "{}", "null"])
def test_a_damaged_proof_is_none(proofs: Proofs, text: str) -> None:
    (path,) = proofs.folder.glob("*.json")
    path.write_text(text)
    assert proofs.find(BUNDLE, INSTALLER) is None


def test_a_proof_put_at_another_name_is_none(proofs: Proofs) -> None:
    (path,) = proofs.folder.glob("*.json")
    proofs.keep(BUNDLE.model_copy(update={"sha256": "b" * 64}), INSTALLER, sandbox="box")
    (other,) = set(proofs.folder.glob("*.json")) - {path}
    other.replace(path)
    assert proofs.find(BUNDLE, INSTALLER) is None
