"""Wheels through the real pip, from an index on loopback."""

from __future__ import annotations

import hashlib
import io
import os
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import CacheUnusable, FetchError, IntegrityError, PrerequisiteMissing
from sandbox.progress import PlainProgress
from sandbox.runtimes.artifacts import PipPin
from sandbox.runtimes.fetch import Fetcher
from sandbox.runtimes.lock import LockedArtifact
from sandbox.runtimes.pip import Pip
from sandbox.runtimes.sources import PipSource
from sandbox.runtimes.store import Store

FILE = "some_tool-1.0-py3-none-musllinux_1_2_x86_64.whl"


def wheel() -> bytes:
    out = io.BytesIO()
    info = "some_tool-1.0.dist-info"
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("some_tool/data", "x" * 5000)
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: some-tool\nVersion: 1.0\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return out.getvalue()


WHEEL = wheel()
SHA256 = hashlib.sha256(WHEEL).hexdigest()
PIN = PipPin(client="pip", name="some-tool", version="1.0", tag="musllinux_1_2_x86_64", licence="M")
LOCKED = LockedArtifact(
    client="pip", name="some-tool", version="1.0", tag="musllinux_1_2_x86_64", file=FILE,
    size=len(WHEEL), integrity=f"sha256:{SHA256}",
)  # fmt: skip


@dataclass
class Index:
    folder: Path
    address: str = ""
    statuses: list[int] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def serve(self, data: bytes, *, name: str = FILE) -> None:
        page = self.folder / "simple/some-tool"
        page.mkdir(parents=True, exist_ok=True)
        (page / "index.html").write_text(f'<!DOCTYPE html><a href="{name}">{name}</a>')
        (page / name).write_bytes(data)


class Handler(SimpleHTTPRequestHandler):
    def __init__(self, *args: Any, index: Index, **kwargs: Any) -> None:
        self.index = index
        super().__init__(*args, directory=str(index.folder), **kwargs)

    def do_GET(self) -> None:
        self.index.asked.append(self.path)
        if self.index.statuses and (status := self.index.statuses.pop(0)) != 200:
            self.send_error(status)
        else:
            super().do_GET()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    found = Index(tmp_path / "index")
    found.serve(WHEEL)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, index=found)) as server:
        found.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield found
        server.shutdown()
        thread.join()


def pip_at(address: str, **extra: str) -> Pip:
    env = {
        "PATH": os.defpath,
        "HOME": "/nonexistent",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": f"{address}/simple",
        "PIP_RETRIES": "0",
    }
    return Pip(argv=(sys.executable, "-m", "pip"), env=env | extra)


def fetcher(tmp_path: Path, pip: Pip) -> Fetcher:
    source = PipSource(pip, sleep=lambda _: None)
    return Fetcher(Store(tmp_path / "store"), {"pip": lambda: source})


QUIET = PlainProgress(quiet=True)


def kept(tmp_path: Path) -> list[str]:
    found = (tmp_path / "store/artifacts").rglob("*")
    return sorted(path.name for path in found if not path.name.endswith(".lock"))


def test_a_wheel_for_another_platform_is_fetched_once(tmp_path: Path, index: Index) -> None:
    one = fetcher(tmp_path, pip_at(index.address))
    assert one.ensure(LOCKED, QUIET).read_bytes() == WHEEL
    asked = len(index.asked)
    assert one.ensure(LOCKED, QUIET).read_bytes() == WHEEL
    assert len(index.asked) == asked
    assert len(kept(tmp_path)) == 2


def test_resolving_gives_the_lock_entry(tmp_path: Path, index: Index) -> None:
    assert fetcher(tmp_path, pip_at(index.address)).resolve(PIN, QUIET) == LOCKED


@pytest.mark.parametrize("how", ["one-byte", "truncated", "longer"])
def test_other_bytes_are_an_integrity_error(tmp_path: Path, index: Index, how: str) -> None:
    changed = {"one-byte": b"Q" + WHEEL[1:], "truncated": WHEEL[:-1], "longer": WHEEL + b"x"}
    index.serve(changed[how])
    with pytest.raises(IntegrityError, match="another hash than the pinned"):
        fetcher(tmp_path, pip_at(index.address)).ensure(LOCKED, QUIET)
    assert kept(tmp_path) == []


def test_one_digit_of_the_lock_changed(tmp_path: Path, index: Index) -> None:
    other = ("0" if SHA256[0] != "0" else "1") + SHA256[1:]
    with pytest.raises(IntegrityError):
        fetcher(tmp_path, pip_at(index.address)).ensure(
            LOCKED.model_copy(update={"integrity": f"sha256:{other}"}), QUIET
        )


def test_a_constraint_of_the_user_does_not_stop_a_pin(tmp_path: Path, index: Index) -> None:
    constraint = tmp_path / "constraints.txt"
    constraint.write_text("some-tool==9\n")
    config = tmp_path / "pip.conf"
    config.write_text(f"[global]\nconstraint = {constraint}\n")
    pip = pip_at(index.address, PIP_CONFIG_FILE=str(config))
    assert fetcher(tmp_path, pip).ensure(LOCKED, QUIET).read_bytes() == WHEEL


def test_find_links_of_the_user_are_used(tmp_path: Path, index: Index) -> None:
    links = tmp_path / "links"
    links.mkdir()
    (links / FILE).write_bytes(WHEEL)
    pip = pip_at(index.address, PIP_FIND_LINKS=str(links), PIP_NO_INDEX="1")
    assert fetcher(tmp_path, pip).ensure(LOCKED, QUIET).read_bytes() == WHEEL
    assert index.asked == []


def test_a_version_that_is_not_there_is_final(tmp_path: Path, index: Index) -> None:
    with pytest.raises(FetchError, match="some-tool 3") as caught:
        fetcher(tmp_path, pip_at(index.address)).ensure(
            LOCKED.model_copy(update={"version": "3"}), QUIET
        )
    assert not caught.value.retryable


def test_a_passing_failure_is_asked_again(tmp_path: Path, index: Index) -> None:
    index.statuses = [200, 503]
    one = fetcher(tmp_path, pip_at(index.address))
    assert one.ensure(LOCKED, QUIET).read_bytes() == WHEEL


def test_no_index_there_is_retryable(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="Connection refused") as caught:
        fetcher(tmp_path, pip_at("http://127.0.0.1:1", PIP_RETRIES="1")).ensure(LOCKED, QUIET)
    assert caught.value.retryable
    assert "pip config list" in str(caught.value)


def shell(script: str) -> Pip:
    return Pip(argv=("sh", "-c", script, "pip"), env={"PATH": os.defpath})


@pytest.mark.parametrize(
    ("script", "error", "said"),
    [
        ("echo '/x: No module named pip' >&2; exit 1", PrerequisiteMissing, "ensurepip"),
        ("echo 'OSError: [Errno 28] No space left on device' >&2; exit 1", CacheUnusable, "space"),
        ("exit 0", FetchError, "cannot fetch"),
        ("kill -9 $$", FetchError, "cannot fetch"),
    ],
)
def test_what_pip_dies_of_is_told_apart(
    tmp_path: Path, script: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        fetcher(tmp_path, shell(script)).ensure(LOCKED, QUIET)


def test_a_pip_that_hangs_is_stopped(tmp_path: Path) -> None:
    with PlainProgress(quiet=True).step("x") as step, pytest.raises(FetchError, match="within 0 s"):
        shell("exec sleep 60").download(
            "some-tool", "1.0", "any", tmp_path, integrity=None, step=step, deadline_s=0.3
        )


def test_bytes_are_told_while_pip_fetches(tmp_path: Path) -> None:
    class Step:
        seen = 0.0

        def total(self, amount: float) -> None: ...

        def note(self, text: str) -> None: ...

        def advance(self, amount: float) -> None:
            self.seen += amount

    step = Step()
    script = 'head -c 70000 /dev/zero >"$TMPDIR/part"; sleep 0.4; exit 1'
    with pytest.raises(FetchError):
        shell(script).download("x", "1", "any", tmp_path, integrity=None, step=step)
    assert step.seen >= 70000
