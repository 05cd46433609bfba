"""Debian packages through apt; a script stands in for apt-get."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.errors import FetchError, IntegrityError, PrerequisiteMissing
from sandbox.progress import PlainProgress
from sandbox.runtimes.apt import Apt
from sandbox.runtimes.artifacts import AptPin
from sandbox.runtimes.fetch import Fetcher
from sandbox.runtimes.lock import LockedArtifact
from sandbox.runtimes.sources import AptSource
from sandbox.runtimes.store import Store

DATA = b"!<arch>\na package"
FILE = "tool_1.0-1+b2_arm64.deb"
PIN = AptPin(client="apt", name="tool", version="1.0-1+b2", tag="arm64", licence="MIT")
LOCKED = LockedArtifact(
    client="apt", name="tool", version="1.0-1+b2", tag="arm64", file=FILE, size=len(DATA),
    integrity="sha256:" + hashlib.sha256(DATA).hexdigest(),
)  # fmt: skip
QUIET = PlainProgress(quiet=True)

# Says its arguments into a log; knows the package in its own lists, in fresh ones, or not.
SCRIPT = """#!/bin/sh
printf '%s\\n' "$*" >>"{log}"
case "{knows} $*" in
always\\ *download*) ;;
updated\\ *Dir::State::Lists=*download*) ;;
silent\\ *) echo "E: Failed to fetch: Temporary failure" >&2; exit 100 ;;
*\\ *update) exit 0 ;;
*) echo "E: Unable to locate package tool:arm64" >&2; exit 100 ;;
esac
printf '{data}' >{file}
"""


@pytest.fixture
def fetcher(tmp_path: Path) -> Callable[..., Fetcher]:
    def make(knows: str, data: str = "!<arch>\\na package") -> Fetcher:
        program = tmp_path / "apt-get"
        log = tmp_path / "log"
        program.write_text(SCRIPT.format(knows=knows, data=data, file=FILE, log=log))
        program.chmod(0o755)
        apt = Apt(str(program), env={"PATH": os.defpath})
        source = AptSource(apt, sleep=lambda _: None)
        return Fetcher(Store(tmp_path / "store"), {"apt": lambda: source})

    return make


def calls(tmp_path: Path) -> list[str]:
    return [line.split()[-1] for line in (tmp_path / "log").read_text().splitlines()]


def test_the_hosts_own_lists_serve_first(fetcher: Callable[..., Fetcher], tmp_path: Path) -> None:
    one = fetcher("always")
    assert one.resolve(PIN, QUIET) == LOCKED
    assert one.ensure(LOCKED, QUIET).read_bytes() == DATA
    assert calls(tmp_path) == ["tool:arm64=1.0-1+b2"]


def test_fresh_lists_are_read_into_a_private_folder(
    fetcher: Callable[..., Fetcher], tmp_path: Path
) -> None:
    one = fetcher("updated")
    assert one.ensure(LOCKED, QUIET).read_bytes() == DATA
    wanted = "tool:arm64=1.0-1+b2"
    assert calls(tmp_path) == [wanted, "update", wanted]
    _, update, download = (tmp_path / "log").read_text().splitlines()
    assert "APT::Architecture=arm64" in update
    assert update.partition(" update")[0] == download.partition(" download")[0]
    assert [path.name for path in (tmp_path / "store/artifacts").glob("*.part*")] == []


def test_a_version_that_no_archive_has(fetcher: Callable[..., Fetcher], tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"(?s)offers tool 1\.0-1\+b2 \(arm64\).*pin a version"):
        fetcher("never").ensure(LOCKED, QUIET)
    assert len(calls(tmp_path)) == 3


def test_an_archive_that_does_not_answer_is_asked_again(
    fetcher: Callable[..., Fetcher], tmp_path: Path
) -> None:
    with pytest.raises(FetchError, match="Temporary failure") as caught:
        fetcher("silent").ensure(LOCKED, QUIET)
    assert caught.value.retryable
    assert len(calls(tmp_path)) == 6


def test_other_bytes_are_refused(fetcher: Callable[..., Fetcher], tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="pinned"):
        fetcher("always", data="!<arch>\\na pacKage").ensure(LOCKED, QUIET)
    store = Store(tmp_path / "store").root / "artifacts"
    assert [path.name for path in store.iterdir() if path.suffix != ".lock"] == []


def test_a_host_without_apt(tmp_path: Path) -> None:
    source = AptSource(Apt(str(tmp_path / "apt-get"), env={}), sleep=lambda _: None)
    fetcher = Fetcher(Store(tmp_path / "store"), {"apt": lambda: source})
    with pytest.raises(PrerequisiteMissing, match="(?s)apt-get.*Debian"):
        fetcher.ensure(LOCKED, QUIET)
