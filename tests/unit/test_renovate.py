"""The update bot's custom managers, applied to the pins as the bot applies them.

Renovate's "regex" manager: each match of each ``matchStrings`` expression in a file whose path one
of ``managerFilePatterns`` matches is a dependency; ``depName``, ``currentValue`` and ``datasource``
are named groups or ``...Template`` fields. Python spells named groups ``(?P<name>``; the rest of
these expressions means the same in both.
"""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from sandbox.runtimes.pins import default_pins_path, load_pins
from sandbox.runtimes.treesource import asked_versions

ROOT = Path(__file__).parents[2]
CONFIG = json.loads((ROOT / "renovate.json").read_text())
DATASOURCES = {"npm": "npm", "pip": "pypi", "apt": "repology"}
PINS = load_pins()


def python_pattern(text: str) -> re.Pattern[str]:
    return re.compile(text.replace("(?<", "(?P<"))


def found_in(path: str, text: str) -> list[dict[str, str]]:
    found = []
    for manager in CONFIG["customManagers"]:
        patterns = [python_pattern(one.strip("/")) for one in manager["managerFilePatterns"]]
        if not any(pattern.search(path) for pattern in patterns):
            continue
        templates = {
            key.removesuffix("Template"): value
            for key, value in manager.items()
            if key.endswith("Template")
        }
        for expression in manager["matchStrings"]:
            matches = python_pattern(expression).finditer(text)
            found += [templates | match.groupdict() for match in matches]
    return found


def pinned() -> list[tuple[str, str, str]]:
    return sorted(
        (DATASOURCES[pin.client], pin.name, pin.version) for pin in PINS.artifact.values()
    )


def test_every_artifact_is_found_exactly_once() -> None:
    found = found_in("installers/pins.toml", default_pins_path().read_text())
    said = sorted((one["datasource"], one["depName"], one["currentValue"]) for one in found)
    assert said == pinned()


def test_an_artifact_that_is_laid_out_in_another_way_would_be_missed_and_seen() -> None:
    text = default_pins_path().read_text().replace('name = "opencode-linux-arm64"', "name = 'x'")
    assert len(found_in("installers/pins.toml", text)) == len(pinned()) - 1


@pytest.mark.parametrize("tree", sorted(PINS.tree))
def test_what_a_tree_is_made_for_is_found_once(tree: str) -> None:
    source = ROOT / "installers" / PINS.tree[tree].source
    asked = source.with_name("package.json")
    asked = asked if asked.is_file() else source.with_suffix(".in")
    found = found_in(asked.relative_to(ROOT).as_posix(), asked.read_text())
    said = {one["depName"]: one["currentValue"] for one in found}
    expected = asked_versions(PINS.tree[tree], default_pins_path())
    assert said == {name: version for name, version in expected.items() if version}
    assert len(found) == len(said)


def versioning(found: dict[str, str]) -> re.Pattern[str] | None:
    _, regex, expression = found.get("versioning", "").partition("regex:")
    return python_pattern(expression) if regex else None


def test_the_versions_are_versions_to_the_bot_and_a_platform_stays_a_platform() -> None:
    seen: dict[str, Any] = {}
    for one in found_in("installers/pins.toml", default_pins_path().read_text()):
        pattern = versioning(one)
        if pattern:
            match = pattern.fullmatch(one["currentValue"])
            assert match, one
            seen[one["currentValue"]] = match["compatibility"]
    codex = PINS.harness["codex"].version
    assert seen[f"{codex}-linux-x64"] == "linux-x64"
    assert seen[f"{codex}-linux-arm64"] == "linux-arm64"
    assert seen[PINS.harness["pi"].version] is None


def test_the_packages_of_one_version_are_updated_together() -> None:
    for harness, pin in PINS.harness.items():
        for version in {runtime.version or pin.version for runtime in pin.runtime}:
            names = {
                artifact.name
                for runtime in pin.runtime
                for content in runtime.content
                if (artifact := PINS.artifact[content.artifact]).version.startswith(version)
            }
            rules = {
                rule["groupName"]
                for rule in CONFIG["packageRules"]
                for name in names
                if any(fnmatchcase(name, glob) for glob in rule["matchPackageNames"])
            }
            assert len(rules) == 1 or len(names) <= 1, (harness, names, rules)


def test_the_cooldown_is_that_of_pins_outdated() -> None:
    assert CONFIG["minimumReleaseAge"] == "7 days"
