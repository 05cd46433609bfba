"""What `pins verify` finds in a lock that was edited by hand, and in what registries serve."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sandbox.commands.pins_list import libc_floor
from sandbox.commands.pins_verify import exit_code
from sandbox.errors import FetchError, NotServed
from sandbox.runtimes.completeness import lock_faults
from sandbox.runtimes.library import VerifyEntry
from sandbox.runtimes.lock import Lock, LockedArtifact, check_current, load_lock, lock_path_for
from sandbox.runtimes.needs import Needs
from sandbox.runtimes.online import files_of, served
from sandbox.runtimes.pins import load_pins

LOCK, PINS = load_lock(), load_pins()


def edited(change: Callable[[dict[str, Any]], None]) -> Lock:
    data = json.loads(LOCK.text())
    change(data)
    return Lock.model_validate(data)


def test_our_own_lock_is_whole() -> None:
    assert lock_faults(PINS, LOCK) == ()
    assert LOCK.harness_sha256.keys() == PINS.harness.keys()


def _version(data: dict[str, Any]) -> None:
    data["artifacts"]["pi"]["version"] = "1.5.0"


def _tag(data: dict[str, Any]) -> None:
    data["artifacts"]["bash-linux-x64"]["tag"] = "arm64"


def _more_artifacts(data: dict[str, Any]) -> None:
    data["artifacts"]["pi2"] = data["artifacts"]["pi"]


def _bundle_version(data: dict[str, Any]) -> None:
    data["bundles"]["pi"]["linux-x64-gnu"]["version"] = "1.5.0"


def _ingredients(data: dict[str, Any]) -> None:
    data["bundles"]["claude-code"]["linux-x64-gnu"]["artifacts"].pop()


def _twins(data: dict[str, Any]) -> None:
    data["bundles"]["codex"]["linux-x64-musl"]["size"] += 1


def _more_bundles(data: dict[str, Any]) -> None:
    data["bundles"]["kilocode"]["linux-arm64-gnu"] = data["bundles"]["pi"]["linux-arm64-gnu"]


def _digest(data: dict[str, Any]) -> None:
    data["harness_sha256"]["pi"] = "0" * 64


def _package_gone(data: dict[str, Any]) -> None:
    packages = data["trees"]["hermes"]["packages"]
    for package in packages:
        package["platforms"] = [p for p in package["platforms"] if p != "linux-x64-musl"]
    data["trees"]["hermes"]["packages"] = [p for p in packages if p["platforms"]]


def _package_twice(data: dict[str, Any]) -> None:
    data["trees"]["openclaw"]["packages"].append(data["trees"]["openclaw"]["packages"][0])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_version, "artifacts.pi: it is @earendil-works/pi-coding-agent 1.5.0, the pin says"),
        (_tag, "artifacts.bash-linux-x64"),
        (_more_artifacts, "artifacts.pi2: nothing pins it"),
        (_bundle_version, "bundles.pi.linux-x64-gnu: version or ingredients"),
        (_ingredients, "bundles.claude-code.linux-x64-gnu: version or ingredients"),
        (_twins, "bundles.codex.linux-x64-gnu+linux-x64-musl: one bundle"),
        (_more_bundles, "bundles.kilocode.linux-arm64-gnu: nothing pins it"),
        (_digest, "harness_sha256.pi"),
        (_package_gone, "trees.hermes: it serves linux-arm64-gnu, linux-arm64-musl, linux-x64-gnu"),
        (_package_twice, "is there 2 times"),
    ],
)
def test_an_edit_by_hand_is_named(change: Callable[[dict[str, Any]], None], said: str) -> None:
    lock = edited(change)
    check_current(PINS, lock, lock_path_for())  # the digests alone do not see it
    (fault,) = lock_faults(PINS, lock)
    assert said in fault
    entry = VerifyEntry(kind="lock", name="pins.lock", status="corrupt", detail=fault)
    assert exit_code([entry]) == 1


def test_every_file_is_asked_for_once() -> None:
    files = files_of(LOCK)
    names = [(one.client, one.name, one.version, one.file) for one in files]
    assert names == sorted(set(names))
    assert {one.client for one in files} == {"npm", "pip", "apt"}


@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [
        pytest.param("{same}", "ok", 0, id="same"),
        pytest.param("sha512-AAAA md5:00 {same}", "ok", 0, id="among-others"),
        pytest.param("sha256:" + "0" * 64, "changed", 1, id="another"),
        pytest.param("md5:00", "unknown", 4, id="another-kind"),
        pytest.param("", "unknown", 4, id="none"),
        pytest.param(NotServed("no such version"), "gone", 1, id="gone"),
        pytest.param(FetchError("no route"), "unknown", 4, id="unreachable"),
    ],
)
def test_what_registries_serve(answer: str | Exception, status: str, code: int) -> None:
    bash = LOCK.artifacts["bash-linux-x64"]
    lock = LOCK.model_copy(update={"artifacts": {"bash": bash}, "trees": {}})

    def ask(one: LockedArtifact) -> str:
        if isinstance(answer, Exception):
            raise answer
        return answer.format(same=one.integrity)

    (found,) = served(lock, ask)
    assert (found.status, exit_code([found])) == (status, code), found.detail


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        (Needs(), "any"),
        (Needs(interpreter="/lib64/ld-linux-x86-64.so.2", glibc="2.28"), "glibc 2.28"),
        (Needs(interpreter="/lib/ld-musl-x86_64.so.1"), "musl"),
    ],
)
def test_the_libc_floor(needs: Needs, said: str) -> None:
    assert libc_floor(needs) == said


def test_a_date_of_the_lock_is_whole_seconds_of_utc(tmp_path: Path) -> None:
    dates = {one.released for all_ in LOCK.bundles.values() for one in all_.values()}
    assert all(date and date.utcoffset() == datetime.now(UTC).utcoffset() for date in dates)
    assert all(date and date.microsecond == 0 for date in dates)
