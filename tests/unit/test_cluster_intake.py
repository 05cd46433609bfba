"""Runtimes that arrive in pieces: whole and verified, or not there."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import cast

import pytest

from sandbox.conformance.cluster.intake import Intake, Piece, Runtime
from sandbox.engine.client import Engine
from sandbox.errors import IntegrityError
from sandbox.runtimes.store import Store

DATA = bytes(range(256)) * 40
SHA256 = hashlib.sha256(DATA).hexdigest()
WANT = Runtime(harness="codex", platform="linux-x64-musl", sha256=SHA256, size=len(DATA))


def send(intake: Intake, data: bytes, *, sha256: str = SHA256, skip: int = -1) -> None:
    for offset in range(0, len(data), 4096):
        if offset != skip:
            piece = Piece(sha256=sha256, size=len(data), offset=offset)
            intake.take(WANT, piece, data[offset : offset + 4096])


def test_a_bundle_is_there_when_its_last_piece_has_come(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with Intake(cast("Engine", None), store) as intake:
        assert intake.lacks(WANT)
        send(intake, DATA)
        assert not intake.lacks(WANT)
    assert store.bundle(SHA256).read_bytes() == DATA
    assert not list(tmp_path.rglob(".arrive-*"))


@pytest.mark.parametrize("skip", [0, 4096])
def test_a_missing_piece_leaves_nothing(skip: int, tmp_path: Path) -> None:
    with Intake(cast("Engine", None), Store(tmp_path)) as intake:
        with pytest.raises(IntegrityError, match="runtime codex linux-x64-musl"):
            send(intake, DATA, skip=skip)
        assert intake.lacks(WANT)
    assert not list(tmp_path.rglob(".arrive-*"))


def test_other_bytes_are_not_kept_and_can_be_sent_again(tmp_path: Path) -> None:
    with Intake(cast("Engine", None), Store(tmp_path)) as intake:
        with pytest.raises(IntegrityError, match="another hash"):
            send(intake, DATA[:-1] + b"!")
        assert intake.lacks(WANT)
        send(intake, DATA)
        assert not intake.lacks(WANT)


def test_a_stored_bundle_with_other_bytes_counts_as_missing(tmp_path: Path) -> None:
    path = Store(tmp_path).bundle(SHA256)
    path.parent.mkdir()
    path.write_bytes(DATA[:-1] + b"!")
    with Intake(cast("Engine", None), Store(tmp_path)) as intake:
        assert intake.lacks(WANT)
        assert not path.exists()
