"""The lock file: stable text, and refusals that name the cure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import PrerequisiteMissing, UsageError
from sandbox.runtimes.lock import (
    Lock,
    check_current,
    load_lock,
    lock_path_for,
    write_lock,
)
from sandbox.runtimes.pins import load_pins

CURE = "sandbox pins lock"


def edited(tmp_path: Path, **changes: Any) -> Path:
    data = json.loads(lock_path_for().read_text()) | changes
    path = tmp_path / "pins.lock"
    path.write_text(json.dumps(data))
    return path


def test_our_lock_is_current_and_names_no_address() -> None:
    check_current(load_pins(), load_lock(), lock_path_for())
    assert "://" not in lock_path_for().read_text()


def test_writing_a_lock_again_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "pins.lock"
    assert write_lock(path, load_lock())
    assert path.read_text() == lock_path_for().read_text()
    assert not write_lock(path, load_lock(path))
    assert list(tmp_path.iterdir()) == [path]


def test_a_stale_lock_is_refused_with_the_cure(tmp_path: Path) -> None:
    lock = load_lock(edited(tmp_path, pins_sha256="0" * 64))
    with pytest.raises(UsageError, match=f"(?s)stale.*{CURE}"):
        check_current(load_pins(), lock, tmp_path / "pins.lock")


@pytest.mark.parametrize("table", ["artifacts", "bundles"])
def test_a_lock_that_lacks_an_entry_is_refused(tmp_path: Path, table: str) -> None:
    lock = load_lock(edited(tmp_path, **{table: {}}))
    with pytest.raises(UsageError, match=f"(?s)lacks.*{CURE}"):
        check_current(load_pins(), lock, tmp_path / "pins.lock")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("integrity", "sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk=", id="weak-hash"),
        pytest.param("integrity", "sha512-AAAA", id="short-hash"),
        pytest.param("integrity", "sha256:zz", id="not-hex"),
        pytest.param("size", 0, id="no-size"),
        pytest.param("size", "big", id="size-type"),
        pytest.param("file", "../x.tgz", id="climbing-file"),
        pytest.param("client", "curl", id="client"),
        pytest.param("url", "somewhere", id="unknown-key"),
    ],
)
def test_a_bad_entry_names_file_and_key(tmp_path: Path, key: str, value: object) -> None:
    artifacts = json.loads(lock_path_for().read_text())["artifacts"]
    name = min(artifacts)
    artifacts[name][key] = value
    path = edited(tmp_path, artifacts=artifacts)
    with pytest.raises(UsageError) as caught:
        load_lock(path)
    assert str(path) in str(caught.value)
    assert f"artifacts.{name}.{key}" in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 1}'], ids=str)
def test_what_is_not_a_lock_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pins.lock"
    path.write_text(text)
    with pytest.raises(UsageError, match=CURE):
        load_lock(path)


def test_no_lock_is_a_missing_prerequisite(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteMissing, match=CURE):
        load_lock(tmp_path / "pins.lock")


def test_a_lock_survives_its_own_text() -> None:
    lock = load_lock()
    assert Lock.model_validate_json(lock.text()) == lock
