"""Locking one harness alone: only its entries change, and nothing stale is passed off as locked."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import UsageError
from sandbox.runtimes.pins import Runtime
from tests.unit.test_bundle_library import PINS, Room, package

OTHER = PINS.partition("[artifact.tool]")[2].replace("tool", "other").replace("r/other", "r/tool")
TWO = PINS + "\n[artifact.other]" + OTHER
DATE = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)


@pytest.fixture
def room(tmp_path: Path) -> Room:
    found = Room(tmp_path)
    found.memory.packages["other"] = package("#!/bin/sh\necho other\n")
    found.pins.write_text(TWO)
    return found


def data_of(room: Room) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(room.lock.read_text())
    return found


def test_only_the_named_harness_changes(room: Room) -> None:
    room.library().update_lock()
    before = data_of(room)
    room.pins.write_text(TWO.replace('"tool 1.2.3"', '"tool v1.2.3"'))
    room.memory.asked = 0
    assert room.library().update_lock(["tool"]).changed
    after = data_of(room)
    assert after["bundles"]["other"] == before["bundles"]["other"]
    assert after["bundles"]["tool"] != before["bundles"]["tool"]
    assert room.library().lock()
    again = room.lock.read_text()
    assert not room.library().update_lock().changed
    assert room.lock.read_text() == again


def test_a_harness_that_changed_too_is_not_kept(room: Room) -> None:
    room.library().update_lock()
    before = room.lock.read_text()
    room.pins.write_text(TWO.replace('"other 1.2.3"', '"other v1.2.3"'))
    with pytest.raises(UsageError, match=r"(?s)entries of other .*sandbox pins lock"):
        room.library().update_lock(["tool"])
    assert room.lock.read_text() == before


def test_an_unknown_harness_is_a_usage_error(room: Room) -> None:
    room.library().update_lock()
    with pytest.raises(UsageError, match="nonesuch"):
        room.library().update_lock(["nonesuch"])


def test_a_date_is_asked_for_once_and_stays(room: Room) -> None:
    asked: list[str] = []

    def released(_: Runtime, version: str) -> datetime:
        asked.append(version)
        return DATE

    room.library().update_lock(released=released)
    assert asked == ["1.2.3", "1.2.3"]
    assert data_of(room)["bundles"]["tool"]["linux-x64-gnu"]["released"] == "2026-01-02T03:04:05Z"
    before = room.lock.read_text()
    assert not room.library().update_lock(released=released).changed
    assert not room.library().update_lock().changed  # nor does it need a registry that tells
    assert (asked, room.lock.read_text()) == (["1.2.3", "1.2.3"], before)


def test_a_key_that_says_its_default_makes_no_lock_stale(room: Room) -> None:
    room.library().update_lock()
    text = TWO.replace('licence = "MIT"\n', 'licence = "MIT"\nredistributable = true\n', 1)
    assert text != TWO
    room.pins.write_text(text)
    assert room.library().lock()
    room.pins.write_text(text.replace("true", "false"))
    with pytest.raises(UsageError, match="stale"):
        room.library().lock()
