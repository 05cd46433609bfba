"""The store: a cached file is used only with the proof that its bytes are the pinned ones."""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import IntegrityError
from sandbox.runtimes.integrity import Integrity
from sandbox.runtimes.store import Store, proof_path

DATA = b"the pinned bytes" * 1000
INTEGRITY = Integrity.parse("sha256:" + hashlib.sha256(DATA).hexdigest())


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Store, Path]:
    store = Store(tmp_path / "store")
    path = store.artifact(INTEGRITY)
    path.parent.mkdir(parents=True)
    path.write_bytes(DATA)
    return store, path


def holds(stored: tuple[Store, Path], *, rehash: bool = False) -> bool:
    store, path = stored
    return store.holds(path, INTEGRITY, size=len(DATA), rehash=rehash)


def flip(path: Path) -> None:
    with path.open("r+b") as stream:
        stream.seek(5)
        stream.write(b"!")


def test_an_absent_file_is_not_held(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert not store.holds(store.artifact(INTEGRITY), INTEGRITY, size=1)


def test_a_good_file_is_hashed_once_and_then_known(stored: tuple[Store, Path]) -> None:
    assert holds(stored)
    proof = proof_path(stored[1])
    written = proof.stat().st_mtime_ns
    assert holds(stored)
    assert proof.stat().st_mtime_ns == written


def test_one_flipped_byte_is_seen_before_any_proof(stored: tuple[Store, Path]) -> None:
    flip(stored[1])
    with pytest.raises(IntegrityError, match="pinned is"):
        holds(stored)


def test_one_flipped_byte_is_seen_after_the_proof_even_with_old_times(
    stored: tuple[Store, Path],
) -> None:
    assert holds(stored)
    before = stored[1].stat()
    flip(stored[1])
    os.utime(stored[1], ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(IntegrityError, match="pinned is"):
        holds(stored)
    assert not proof_path(stored[1]).exists()


def test_a_file_swapped_for_another_of_the_same_size_is_seen(stored: tuple[Store, Path]) -> None:
    assert holds(stored)
    other = stored[1].with_name("other")
    other.write_bytes(bytes(len(DATA)))
    other.rename(stored[1])
    with pytest.raises(IntegrityError, match="pinned is"):
        holds(stored)


def test_a_truncated_file_is_seen_by_its_size(stored: tuple[Store, Path]) -> None:
    os.truncate(stored[1], 10)
    with pytest.raises(IntegrityError, match="10 bytes where 16000 are pinned"):
        holds(stored)


def test_a_forged_proof_does_not_survive_a_rehash(stored: tuple[Store, Path]) -> None:
    assert holds(stored)
    proof = proof_path(stored[1]).read_text()
    flip(stored[1])
    figures = stored[1].stat()
    forged = proof.rsplit(",", 2)[0] + f", {figures.st_mtime_ns}, {figures.st_ctime_ns}]"
    proof_path(stored[1]).write_text(forged)
    assert holds(stored)  # whoever can write the store can lie to the shortcut ...
    with pytest.raises(IntegrityError):
        holds(stored, rehash=True)  # ... but not to `verify`, nor to the installer


@pytest.mark.parametrize("text", ["", "{}", "null", "[1]", "\x00"], ids=repr)
def test_a_broken_proof_means_hashing_again(stored: tuple[Store, Path], text: str) -> None:
    proof_path(stored[1]).write_text(text)
    assert holds(stored)


def test_a_corrupt_file_is_dropped_and_said(stored: tuple[Store, Path]) -> None:
    store, path = stored
    flip(path)
    wrong = store.holds_or_drops(path, INTEGRITY, size=len(DATA))
    assert wrong is not None
    assert "pinned is" in wrong
    assert not path.exists()
    assert store.holds_or_drops(path, INTEGRITY, size=len(DATA)) is None


@given(st.binary(max_size=64), st.sampled_from(["sha256", "sha384", "sha512"]))
def test_both_notations_are_read(data: bytes, algorithm: str) -> None:
    digest = hashlib.new(algorithm, data)
    sri = f"{algorithm}-{base64.b64encode(digest.digest()).decode()}"
    for text in (sri, f"{algorithm}:{digest.hexdigest()}", f"sha1-AAAA {sri}?opt"):
        assert Integrity.parse(text).hexdigest == digest.hexdigest()


def test_the_strongest_of_several_hashes_counts() -> None:
    weak, strong = hashlib.sha256(b"x"), hashlib.sha512(b"x")
    text = f"sha256:{weak.hexdigest()} sha512:{strong.hexdigest()}"
    assert Integrity.parse(text).algorithm == "sha512"


@pytest.mark.parametrize("text", ["", "md5-AAAA", "sha512-!!", "sha256:12", "sha512-AAAA"], ids=str)
def test_what_is_no_strong_hash_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a sha256"):
        Integrity.parse(text)
