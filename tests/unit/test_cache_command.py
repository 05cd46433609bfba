"""`sandbox cache`: what it prints, and that only a prune without --dry-run removes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.cli import main
from sandbox.errors import ExitCode


@pytest.fixture
def loose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle and an image in an own cache that nothing of today names."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    bundle = tmp_path / "sandbox/runtimes/bundles" / f"{'0' * 64}.tar"
    bundle.parent.mkdir(parents=True)
    bundle.write_bytes(bytes(2_000_000))
    (tmp_path / "sandbox/images/debian-12-x64-000000000000").mkdir(parents=True)
    return bundle


def test_what_is_loose_is_listed_and_only_a_prune_removes_it(
    loose: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cache", "list", "--json"]) == ExitCode.OK
    listed = json.loads(capsys.readouterr().out)
    assert {(one["kind"], one["state"]) for one in listed} == {
        ("bundle", "unneeded"),
        ("image", "unneeded"),
    }
    assert main(["cache", "prune", "--dry-run"]) == ExitCode.OK
    assert "would remove 2 entries, 2 MB" in capsys.readouterr().out
    assert loose.exists()
    assert main(["cache", "prune"]) == ExitCode.OK
    assert "removed 2 entries, 2 MB" in capsys.readouterr().out
    assert not loose.exists()
    assert main(["cache", "list"]) == ExitCode.OK
    assert "0 entries" in capsys.readouterr().out


def test_a_lock_that_cannot_be_read_ends_a_prune(loose: Path, tmp_path: Path) -> None:
    assert main(["cache", "prune", "--pins", str(tmp_path / "none.toml")]) != ExitCode.OK
    assert loose.exists()
