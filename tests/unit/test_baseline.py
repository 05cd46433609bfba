"""The baseline file: strict, without contradictions, and never a way to hide an unknown."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

import sandbox.conformance
from sandbox.errors import ExitCode, UsageError
from sandbox.evidence.baseline import Baseline, KnownFailure, load_baseline, parse_baseline
from sandbox.evidence.checks import CHECKS

ENTRY = """
[[known]]
cell = "codex/*/tool_failure"
check = "tool_status"
reason = "a reason that says enough"
"""


def parse(text: str) -> Baseline:
    return parse_baseline(text, checks=CHECKS)


def test_the_baseline_of_the_project_is_read() -> None:
    path = Path(sandbox.conformance.__file__).with_name("baseline.toml")
    for entry in load_baseline(path, checks=CHECKS).known:
        assert len(entry.reason) > 20


def test_all_fields() -> None:
    found = parse(ENTRY + 'link = "https://example.org/1"\nexpires = 2027-06-30\n').known[0]
    assert found.expires == dt.date(2027, 6, 30)
    assert found.link == "https://example.org/1"
    assert str(found) == "codex/*/tool_failure tool_status"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[known", "not TOML"),
        ("[[knwon]]\ncell = 'a'\n", "knwon"),
        (ENTRY + "because = 'x'\n", "because"),
        (ENTRY.replace("a reason that says enough", "meh"), "at least 10 characters"),
        (ENTRY.replace("tool_status", "tool_statsu"), "did you mean 'tool_status'"),
        (ENTRY.replace("tool_status", "zzz"), "sandbox list"),
        (ENTRY + ENTRY, "2 entries for tool_status of codex/\\*/tool_failure"),
        (ENTRY + "expires = 'soon'\n", "expires"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        parse(text)
    assert caught.value.exit_code is ExitCode.USAGE


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_baseline(tmp_path / "none.toml", checks=CHECKS)


def test_entries_that_overlap_contradict_each_other() -> None:
    baseline = parse(ENTRY + ENTRY.replace("codex/*", "*/debian-12"))
    assert baseline.entry_for("codex/alpine-3.23/tool_failure", "tool_status") is not None
    with pytest.raises(UsageError, match="two baseline entries cover tool_status of codex/debian"):
        baseline.entry_for("codex/debian-12/tool_failure", "tool_status")


def test_globs_match_case_and_the_whole_id() -> None:
    entry = KnownFailure(cell="codex/*/tool", check="c", reason="x" * 10)
    assert entry.covers("codex/debian-12/tool", "c")
    assert not entry.covers("Codex/debian-12/tool", "c")
    assert not entry.covers("codex/debian-12/tool_failure", "c")
    assert not entry.covers("codex/debian-12/tool", "d")


def test_an_entry_lasts_through_its_last_day() -> None:
    entry = KnownFailure(cell="a", check="c", reason="x" * 10, expires=dt.date(2027, 6, 30))
    assert not entry.is_expired(dt.date(2027, 6, 30))
    assert entry.is_expired(dt.date(2027, 7, 1))
