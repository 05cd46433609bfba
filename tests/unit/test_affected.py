"""What a change touches: only what it must, and everything when nobody can tell."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import sandbox
from sandbox.cli import main
from sandbox.commands.matrix import since
from sandbox.conformance.affected import affected, changed_pins, module_users

ROOT = Path(sandbox.__file__).parents[1]
IMAGES = {"alpine-3.23": (), "debian-12": (), "debian-12-nonroot": ("debian-12",)}
USERS = {
    "sandbox/harnesses/pi.py": {"pi"},
    "sandbox/harnesses/opencode_launch.py": {"opencode", "kilocode"},
    "sandbox/harnesses/base.py": {"pi", "opencode", "kilocode"},
}


@pytest.mark.parametrize(
    ("paths", "harnesses", "images", "everything"),
    [
        ([], set(), set(), ()),
        (["README.md", "docs/x/y.md", "tests/unit/test_x.py", "LICENSE"], set(), set(), ()),
        (["sandbox/report/html.py", "sandbox/commands/show.py"], set(), set(), ()),
        (["sandbox/harnesses/pi.py"], {"pi"}, set(), ()),
        (["sandbox/harnesses/opencode_launch.py"], {"opencode", "kilocode"}, set(), ()),
        (["images/debian-12/image.toml"], set(), {"debian-12", "debian-12-nonroot"}, ()),
        (["images/alpine-3.23/Dockerfile", "sandbox/harnesses/pi.py"], {"pi"}, {"alpine-3.23"}, ()),
        (["installers/pi/package.json"], {"pi"}, set(), ()),
        (["installers/pins.lock"], {"kilocode"}, set(), ()),
        (["images/gone/image.toml"], set(), set(), ("images/gone/image.toml",)),
        (["sandbox/harnesses/new.py"], set(), set(), ("sandbox/harnesses/new.py",)),
        (["sandbox/engine/sandbox.py"], set(), set(), ("sandbox/engine/sandbox.py",)),
        (["installers/install.sh"], set(), set(), ("installers/install.sh",)),
        (["pyproject.toml", "README.md"], set(), set(), ("pyproject.toml",)),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, list) else "",
)
def test_the_mapping(
    paths: list[str], harnesses: set[str], images: set[str], everything: tuple[str, ...]
) -> None:
    found = affected(paths, images=IMAGES, users=USERS, pinned={"kilocode"})
    assert (found.harnesses, found.images) == (frozenset(harnesses), frozenset(images))
    assert found.everything == everything
    assert found.touches("pi", "debian-12") == bool(
        everything or "pi" in harnesses or "debian-12" in images
    )


def test_a_pin_touches_its_harness_only() -> None:
    lock = (ROOT / "installers/pins.lock").read_text()
    pins = (ROOT / "installers/pins.toml").read_text()
    changed = json.loads(lock)
    changed["pins_sha256"] = "0" * 64
    next(iter(changed["bundles"]["pi"].values()))["sha256"] = "0" * 64
    assert changed_pins(lock, json.dumps(changed)) == {"pi"}
    assert changed_pins(lock, lock) == frozenset()
    assert changed_pins(pins, pins) == frozenset()
    assert changed_pins(pins, pins + '\n[harness.new]\nversion = "1"\n') == {"new"}
    assert changed_pins(pins, pins + "\n[other]\nx = 1\n") is None
    assert changed_pins(lock, "{") is None


def test_the_modules_of_the_harnesses_and_who_uses_them() -> None:
    modules = {name: f"sandbox.harnesses.{name}" for name in ("opencode", "kilocode", "pi")}
    users = module_users(ROOT, modules)
    assert users["sandbox/harnesses/opencode_launch.py"] == {"opencode", "kilocode"}
    assert users["sandbox/harnesses/pi_session.py"] == {"pi"}
    assert users["sandbox/harnesses/base.py"] == frozenset(modules)


def git(root: Path, *words: str) -> str:
    name = ("-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false")
    argv = ["git", "-C", str(root), *name, *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def test_a_change_is_read_from_git(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    for path in ("images/debian-12/image.toml", "installers/pins.lock", "README.md"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text('{"bundles": {"pi": 1, "codex": 1}}')
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    base = git(tmp_path, "rev-parse", "HEAD")
    (tmp_path / "installers/pins.lock").write_text('{"bundles": {"pi": 2, "codex": 1}}')
    (tmp_path / "README.md").write_text("x")
    git(tmp_path, "commit", "-qam", "two")
    found = since(base, tmp_path)
    assert (found.harnesses, found.images, found.everything) == ({"pi"}, frozenset(), ())
    git(tmp_path, "rm", "-q", "images/debian-12/image.toml")
    git(tmp_path, "commit", "-qm", "three")
    assert since(base, tmp_path).images == {"debian-12", "debian-12-nonroot"}
    assert since("0" * 40, tmp_path).touches("any", "image")


def test_shards_for_github(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ("--profile", "full", "--harness", "codex", "--image", "debian-12")

    def shards(*more: str) -> list[dict[str, str]]:
        assert main(["matrix", *words, *more]) == 0
        found: list[dict[str, str]] = json.loads(capsys.readouterr().out)["include"]
        return found

    assert shards("--shards", "8") == [{"shard": "1/1", "cells": ""}]
    costs = '{"cells": {"codex/debian-12/tool_success": {"seconds": 9000}}}'
    timings = tmp_path / "timings.json"
    timings.write_text(costs)
    found = shards("--shards", "4", "--timings", str(timings))
    assert [one["shard"] for one in found] == ["1/4", "2/4", "3/4", "4/4"]
    assert shards("--shards", "4", "--base", "HEAD") == []


def test_the_matrix_for_github(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--harness", "pi", "--harness", "codex", "--image", "debian-12")
    assert main(["matrix", "--github", *words]) == 0
    matrix, anything = capsys.readouterr().out.splitlines()
    name, _, text = matrix.partition("=")
    assert (name, anything) == ("matrix", "any=true")
    assert json.loads(text)["include"] == [
        {"harness": "codex", "image": "debian-12"},
        {"harness": "pi", "image": "debian-12"},
    ]
    assert main(["matrix", "--github", "--base", "HEAD", *words]) == 0
    assert capsys.readouterr().out == 'matrix={"include":[]}\nany=false\n'
