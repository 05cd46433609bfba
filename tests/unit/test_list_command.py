"""`sandbox list`: what the JSON says of each cell."""

from __future__ import annotations

import json

import pytest

from sandbox.cli import main
from sandbox.conformance.plan import LEGACY_HARNESSES
from sandbox.conformance.profiles import QUICK_HARNESSES
from sandbox.errors import ExitCode
from sandbox.harnesses.registry import registered


def test_a_cell_is_listed_with_what_its_harness_can_do_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["list", "--json", "kilocode/*/tool_success"]) == ExitCode.OK
    listed = {one["image"]: one for one in json.loads(capsys.readouterr().out)}
    assert listed["alpine-3.23"]["platform"].endswith("-musl")
    assert listed["debian-12"]["platform"].endswith("-gnu")
    can = {image: one["capabilities"]["session_header"] for image, one in listed.items()}
    assert set(can.values()) == {"x-session-id"}
    if listed["debian-12"]["platform"] == "linux-x64-gnu":
        assert listed["debian-12"]["capabilities"]["request_deadline"]
        assert not listed["alpine-3.23"]["capabilities"]["request_deadline"]


def test_the_quick_profile_holds_its_harnesses_and_the_full_one_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["list", "--json"]) == ExitCode.OK
    quick = {one["harness"] for one in json.loads(capsys.readouterr().out)}
    assert main(["list", "--json", "--profile", "full"]) == ExitCode.OK
    full = {one["harness"] for one in json.loads(capsys.readouterr().out)}
    assert quick == set(QUICK_HARNESSES)
    assert full == {*registered().names, *LEGACY_HARNESSES}
    assert len(quick) == 7


def test_run_is_not_asked_what_only_sessions_can_show(capsys: pytest.CaptureFixture[str]) -> None:
    found: dict[str, set[str]] = {}
    for harness in ("codex", "codex+legacy"):
        assert main(["list", "--json", "--profile", "full", f"{harness}/debian-12/*"]) == 0
        found[harness] = {one["scenario"] for one in json.loads(capsys.readouterr().out)}
    assert found["codex+legacy"] < found["codex"]
    assert found["codex"] - found["codex+legacy"] == {
        "cancel_during_model",
        "cancel_during_tool",
        "disk_full",
        "resume_after_close",
        "tool_oom",
        "two_sessions",
        "verifier_error",
    }


def test_the_slow_profile_says_how_long_it_can_take(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--profile", "slow", "codex/debian-12/*"]) == ExitCode.OK
    out, told = capsys.readouterr()
    assert len(out.splitlines()) == 9
    assert told == "9 cell(s); 90 min if each took its deadline\n"
