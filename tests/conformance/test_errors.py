"""What a user meets when something is missing or wrong: a clear message and the right exit code."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.cli import sandbox

NOWHERE = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("conformance", "--harness", "codx"), 2, "did you mean 'codex'"),
        (("conformance", "--image", "alpine"), 2, "there is no image 'alpine'"),
        (("list", "--scenario", "tool_succes"), 2, "did you mean 'tool_success'"),
        (("list", "--harness", "zzz*"), 3, "no cell is left"),
        (("conformance", "--jobs", "0"), 2, "at least one"),
        (("judge", "no-such-folder"), 2, "is no folder"),
        (("runtimes", "fetch", "--harness", "zzz"), 3, "no runtime matches"),
        (("images", "inspect", "zzz"), 2, "there is no image 'zzz'"),
        (("bench", "--harness", "codx"), 2, "did you mean 'codex'"),
        (("bench", "--harness", "zzz*"), 3, "no harness matches"),
        (("bench", "--compare", "/nope"), 2, "cannot read /nope"),
        (("bench", "--compare", "pyproject.toml"), 2, "no record of a bench"),
        (("bench", "--peer-image", "docker=x"), 2, "names are: testcontainers"),
        (("no-such-command",), 2, "invalid choice"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_wrong_words_are_told_apart(words: tuple[str, ...], code: int, says: str) -> None:
    ended = sandbox(*words, env=NOWHERE)
    assert ended.code == code, ended.err
    assert says in ended.err
    assert "Traceback" not in ended.err


def test_no_engine_is_a_missing_prerequisite_with_the_cure() -> None:
    ended = sandbox("conformance", "codex/alpine-3.23/tool_success", env=NOWHERE)
    assert ended.code == 5
    assert "unix:///nowhere/docker.sock" in ended.err
    assert "what to do:" in ended.err


def test_a_run_that_could_not_begin_leaves_no_results_folder(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    assert sandbox("conformance", "--output", str(folder), env=NOWHERE).code == 5
    assert not folder.exists()


def test_an_existing_results_folder_is_refused(tmp_path: Path) -> None:
    ended = sandbox("conformance", "--output", str(tmp_path), env=NOWHERE)
    assert ended.code == 2
    assert "exists already" in ended.err


def test_doctor_says_that_the_engine_is_missing() -> None:
    ended = sandbox("doctor", "--offline", env=NOWHERE)
    assert ended.code == 5
    assert "MISSING" in ended.out
    assert "what to do:" in ended.out


def test_doctor_says_that_the_registries_do_not_answer() -> None:
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed")
    probe = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("network namespaces need root")
    ended = sandbox("doctor", prefix=("unshare", "--net"))
    assert ended.code == 5, ended.out
    line = next(line for line in ended.out.splitlines() if "pip registry" in line)
    assert line.startswith("MISSING")


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system without space."""
    target = tmp_path / "full"
    target.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(target)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        yield target
    finally:
        subprocess.run(["umount", str(target)], check=True)


def test_doctor_and_fetch_say_that_the_cache_has_no_space(full_disk: Path) -> None:
    env = {"XDG_CACHE_HOME": str(full_disk)}
    looked = sandbox("doctor", "--offline", env=env)
    assert looked.code == 5, looked.out
    assert str(full_disk) in looked.out
    fetched = sandbox("runtimes", "fetch", "--harness", "codex", env=env)
    assert fetched.code == 5, fetched.err
    assert "XDG_CACHE_HOME" in fetched.err


def test_a_corrupt_cached_bundle_is_found_by_doctor_and_verify(tmp_path: Path) -> None:
    listed = sandbox("pins", "list", "--json")
    assert listed.code == 0, listed.err
    digest = listed.out.partition('"sha256": "')[2].partition('"')[0]
    bundles = tmp_path / "sandbox" / "runtimes" / "bundles"
    probe = sandbox("pins", "verify", env={"XDG_CACHE_HOME": str(tmp_path)})
    assert probe.code == 0, probe.err
    bundles.mkdir(parents=True, exist_ok=True)
    (bundles / f"{digest}.tar").write_bytes(b"not the bundle")
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    verified = sandbox("pins", "verify", env=env)
    assert verified.code == 1
    assert "corrupt" in verified.out
    looked = sandbox("doctor", "--offline", env=env)
    assert looked.code == 4, looked.out
    assert "sandbox runtimes fetch" in looked.out
