"""npm artifacts from a registry that tampers, stumbles, redirects and wants to know who asks."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import pytest

from sandbox.errors import FetchError, IntegrityError
from sandbox.progress import PlainProgress
from sandbox.runtimes.artifacts import NpmPin
from sandbox.runtimes.download import Access, Http
from sandbox.runtimes.fetch import Fetcher
from sandbox.runtimes.integrity import Integrity
from sandbox.runtimes.lock import LockedArtifact
from sandbox.runtimes.npm import NpmRegistry
from sandbox.runtimes.npmrc import NpmSettings
from sandbox.runtimes.sources import NpmSource
from sandbox.runtimes.store import Store

DATA = bytes(range(256)) * 4000
TARBALL = "/@scope/tool/-/tool-1.0.0.tgz"
SRI = "sha512-" + base64.b64encode(hashlib.sha512(DATA).digest()).decode()

PIN = NpmPin(client="npm", name="@scope/tool", version="1.0.0", licence="MIT")
LOCKED = LockedArtifact(
    client="npm", name=PIN.name, version="1.0.0", file="tool-1.0.0.tgz", size=len(DATA),
    integrity=SRI,
)  # fmt: skip


@dataclass
class FakeRegistry:
    """A registry on loopback; what it serves and how it misbehaves may be changed at any time."""

    address: str = ""
    body: bytes = DATA
    integrity: str = SRI
    tarball: str | None = None  # the address it names, its own when None
    statuses: list[int] = field(default_factory=list)  # answers to give first, one a request
    cut: list[int] = field(default_factory=list)  # bytes after which to hang up, one a download
    ranges: bool = True
    redirect: str | None = None
    token: str | None = None
    hold: threading.Event | None = None  # waits for it in the middle of a download
    seen: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def downloads(self) -> list[dict[str, str]]:
        return [headers for path, headers in self.seen if path.endswith(".tgz")]

    def metadata(self) -> bytes:
        dist = {"tarball": self.tarball or self.address + TARBALL, "integrity": self.integrity}
        return json.dumps({"versions": {"1.0.0": {"dist": dist}}}).encode()


class Handler(BaseHTTPRequestHandler):
    """Answers as the server's fake registry says."""

    protocol_version = "HTTP/1.1"
    server: FakeServer

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        registry = self.server.registry
        path = unquote(urlsplit(self.path).path)
        registry.seen.append((path, {k.lower(): v for k, v in self.headers.items()}))
        status = registry.statuses.pop(0) if registry.statuses else 200
        if registry.token and self.headers.get("Authorization") != registry.token:
            status = 401
        if status != 200:
            self.answer(status, b"no")
        elif not path.endswith(".tgz"):
            self.answer(200, registry.metadata())
        elif registry.redirect and path != urlsplit(registry.redirect).path:
            self.answer(302, b"", {"Location": registry.redirect})
        else:
            self.tarball(registry)

    def tarball(self, registry: FakeRegistry) -> None:
        wanted, start, headers = self.headers.get("Range"), 0, {}
        if wanted and registry.ranges:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            headers["Content-Range"] = f"bytes {start}-{len(registry.body) - 1}/*"
        cut = registry.cut.pop(0) if registry.cut else None
        self.answer(206 if headers else 200, registry.body[start:], headers, cut)

    def answer(
        self,
        status: int,
        body: bytes,
        headers: dict[str, str] | None = None,
        cut: int | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if (hold := self.server.registry.hold) and len(body) > 1000:
            self.wfile.write(body[: len(body) // 2])
            hold.wait(30)
        else:
            self.wfile.write(body[:cut])
        self.close_connection = cut is not None


class FakeServer(ThreadingHTTPServer):
    """Serves a fake registry; a context manager that stops serving at its end."""

    def __init__(self, registry: FakeRegistry, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.registry = registry
        if context:
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """Say nothing: clients that hang up are part of these tests."""


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    fake = FakeRegistry()
    with FakeServer(fake) as server:
        fake.address = f"http://127.0.0.1:{server.server_port}"
        yield fake


@dataclass
class Desk:
    """A fetcher on a fresh store, with its clock."""

    fetcher: Fetcher
    store: Store
    slept: list[float]

    def ensure(self, locked: LockedArtifact = LOCKED) -> bytes:
        return self.fetcher.ensure(locked, PlainProgress(quiet=True)).read_bytes()

    def left(self) -> list[str]:
        """Return the names in the store that are no locks."""
        found = (self.store.root / "artifacts").rglob("*")
        return sorted(path.name for path in found if not path.name.endswith(".lock"))


@pytest.fixture
def desk(tmp_path: Path, registry: FakeRegistry) -> Iterator[Callable[..., Desk]]:
    opened: list[Http] = []

    def make(**settings: Any) -> Desk:
        slept: list[float] = []
        defaults: dict[str, Any] = {
            "registry": registry.address + "/", "scopes": {}, "credentials": {}, "access": Access(),
        }  # fmt: skip
        chosen = NpmSettings(**(defaults | settings))
        http = Http(chosen.access, sleep=slept.append, attempts=4)
        opened.append(http)
        store = Store(tmp_path / "store")
        source = NpmSource(NpmRegistry(chosen, http))
        return Desk(Fetcher(store, {"npm": lambda: source}), store, slept)

    yield make
    for http in opened:
        http.close()


def test_an_artifact_is_fetched_once(desk: Callable[..., Desk], registry: FakeRegistry) -> None:
    one = desk()
    assert one.ensure() == DATA
    asked = len(registry.seen)
    assert one.ensure() == DATA
    assert desk().ensure() == DATA
    assert len(registry.seen) == asked
    assert len(one.left()) == 2  # the artifact and its proof


def test_resolving_gives_the_lock_entry(desk: Callable[..., Desk]) -> None:
    one = desk()
    assert one.fetcher.resolve(PIN, PlainProgress(quiet=True)) == LOCKED
    assert len(one.left()) == 2


@pytest.mark.parametrize("position", [0, 12345, len(DATA) - 1])
def test_one_byte_of_the_artifact_changed(
    desk: Callable[..., Desk], registry: FakeRegistry, position: int
) -> None:
    body = bytearray(DATA)
    body[position] ^= 1
    registry.body = bytes(body)
    one = desk()
    with pytest.raises(IntegrityError, match="pinned is"):
        one.ensure()
    assert one.left() == []


@pytest.mark.parametrize("body", [DATA[:-1], DATA[:100], DATA + b"x"], ids=["-1", "100", "+1"])
def test_another_size_is_refused(
    desk: Callable[..., Desk], registry: FakeRegistry, body: bytes
) -> None:
    registry.body = body
    one = desk()
    with pytest.raises(IntegrityError, match=f"pinned are {len(DATA)}"):
        one.ensure()
    assert one.slept == []


def test_one_digit_of_the_lock_changed(desk: Callable[..., Desk], registry: FakeRegistry) -> None:
    digest = bytearray(hashlib.sha512(DATA).digest())
    digest[0] ^= 1
    text = "sha512-" + base64.b64encode(digest).decode()
    one = desk()
    with pytest.raises(IntegrityError, match="the registry names"):
        one.ensure(LOCKED.model_copy(update={"integrity": text}))
    assert registry.downloads() == []


def test_a_registry_that_lies_twice_is_caught_by_the_lock(
    desk: Callable[..., Desk], registry: FakeRegistry
) -> None:
    registry.body = DATA[::-1]
    registry.integrity = "sha512-" + base64.b64encode(hashlib.sha512(DATA[::-1]).digest()).decode()
    with pytest.raises(IntegrityError, match="the registry names"):
        desk().ensure()


def test_a_download_that_is_cut_goes_on_where_it_was(
    desk: Callable[..., Desk], registry: FakeRegistry
) -> None:
    registry.cut = [300_000, 200_000]
    one = desk()
    assert one.ensure() == DATA
    ranges = [headers.get("range") for headers in registry.downloads()]
    assert ranges[0] is None
    assert all(r is not None and r.startswith("bytes=") for r in ranges[1:])
    assert len(one.slept) == 2


def test_a_download_that_is_always_cut_is_kept_for_the_next_process(
    desk: Callable[..., Desk], registry: FakeRegistry
) -> None:
    registry.cut = [100_000] * 4
    with pytest.raises(FetchError) as caught:
        desk().ensure()
    assert caught.value.retryable
    assert not desk().store.artifact(Integrity.parse(SRI)).exists()
    registry.seen.clear()
    assert desk().ensure() == DATA
    assert registry.downloads()[0]["range"] != "bytes=0-"


def test_a_partial_file_with_other_bytes_is_never_taken_for_whole(
    desk: Callable[..., Desk], registry: FakeRegistry
) -> None:
    one = desk()
    part = one.store.artifact(Integrity.parse(SRI))
    folder = part.with_name(part.name + ".part")
    folder.mkdir(parents=True)
    for size in (1000, len(DATA), len(DATA) + 5):
        (folder / "tarball").write_bytes(bytes(size))
        assert one.ensure() == DATA
        part.unlink()
        folder.mkdir()


KILLED = """
import sys
from pathlib import Path
from tests.installers.test_fetch import LOCKED
from sandbox.progress import PlainProgress
from sandbox.runtimes.download import Access, Http
from sandbox.runtimes.fetch import Fetcher
from sandbox.runtimes.npm import NpmRegistry
from sandbox.runtimes.npmrc import NpmSettings
from sandbox.runtimes.sources import NpmSource
from sandbox.runtimes.store import Store
settings = NpmSettings(registry=sys.argv[1] + "/", scopes={}, credentials={}, access=Access())
source = NpmSource(NpmRegistry(settings, Http()))
Fetcher(Store(Path(sys.argv[2])), {"npm": lambda: source}).ensure(LOCKED, PlainProgress())
"""


def test_kill_9_in_the_middle_and_once_more(
    desk: Callable[..., Desk], registry: FakeRegistry, tmp_path: Path
) -> None:
    registry.hold = threading.Event()
    one = desk()
    argv = [sys.executable, "-c", KILLED, registry.address, str(one.store.root)]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(argv, env=env, stderr=subprocess.DEVNULL) as process:
        part = one.store.artifact(Integrity.parse(SRI))
        tarball = part.with_name(part.name + ".part") / "tarball"
        deadline = time.monotonic() + 20
        while not tarball.exists() or tarball.stat().st_size < len(DATA) // 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.kill()
    registry.hold.set()
    registry.hold = None
    assert one.ensure() == DATA
    assert registry.downloads()[-1]["range"] == f"bytes={len(DATA) // 2}-"


def test_a_server_without_ranges_starts_again(
    desk: Callable[..., Desk], registry: FakeRegistry
) -> None:
    registry.cut, registry.ranges = [300_000], False
    assert desk().ensure() == DATA


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_a_passing_failure_is_asked_again(
    desk: Callable[..., Desk], registry: FakeRegistry, status: int
) -> None:
    registry.statuses = [status, 200, status]
    one = desk()
    assert one.ensure() == DATA
    assert len(one.slept) == 2


def test_a_lasting_failure_ends(desk: Callable[..., Desk], registry: FakeRegistry) -> None:
    registry.statuses = [503] * 99
    one = desk()
    with pytest.raises(FetchError, match="503") as caught:
        one.ensure()
    assert caught.value.cure is not None
    assert len(registry.seen) == 4
    assert one.left() == []


@pytest.mark.parametrize(("status", "cure"), [(404, "does not hold"), (401, "log in"), (400, "")])
def test_a_final_answer_is_not_asked_again(
    desk: Callable[..., Desk], registry: FakeRegistry, status: int, cure: str
) -> None:
    registry.statuses = [status] * 99
    one = desk()
    with pytest.raises(FetchError, match=f"(?s){status}.*{cure}"):
        one.ensure()
    assert one.slept == []


def test_nobody_listening_is_a_fetch_error(desk: Callable[..., Desk]) -> None:
    one = desk(registry="http://127.0.0.1:1/")
    with pytest.raises(FetchError, match="ConnectError"):
        one.ensure()
    assert len(one.slept) == 3


def test_a_version_that_is_not_there_is_a_fetch_error(desk: Callable[..., Desk]) -> None:
    with pytest.raises(FetchError, match=r"no @scope/tool 2\.0\.0"):
        desk().ensure(LOCKED.model_copy(update={"version": "2.0.0"}))


def test_metadata_that_is_not_json_is_a_fetch_error(
    desk: Callable[..., Desk], registry: FakeRegistry
) -> None:
    registry.metadata = lambda: b"<html>"  # type: ignore[method-assign]
    with pytest.raises(FetchError, match="JSON"):
        desk().ensure()


def test_a_redirect_is_followed_and_keeps_the_login_at_home(
    desk: Callable[..., Desk], registry: FakeRegistry
) -> None:
    elsewhere = registry.address.replace("127.0.0.1", "localhost")
    registry.redirect = f"{elsewhere}/elsewhere.tgz"
    place = registry.address.removeprefix("http:") + "/"
    assert desk(credentials={place: "Bearer secret"}).ensure() == DATA
    first, second = registry.downloads()
    assert first["authorization"] == "Bearer secret"
    assert "authorization" not in second


def test_a_login_is_sent_to_its_registry(desk: Callable[..., Desk], registry: FakeRegistry) -> None:
    registry.token = "Bearer secret"
    place = registry.address.removeprefix("http:") + "/"
    with pytest.raises(FetchError, match="401"):
        desk().ensure()
    assert desk(credentials={place: "Bearer secret"}).ensure() == DATA


def test_a_mirror_that_names_what_it_mirrors_is_asked_itself(
    desk: Callable[..., Desk], registry: FakeRegistry
) -> None:
    registry.tarball = f"http://127.0.0.1:1{TARBALL}"
    assert desk(registry=f"{registry.address}/npm/").ensure() == DATA
    assert registry.seen[-1][0] == f"/npm{TARBALL}"


def test_a_scope_has_its_own_registry(desk: Callable[..., Desk], registry: FakeRegistry) -> None:
    elsewhere = {"@scope": registry.address + "/"}
    assert desk(registry="http://127.0.0.1:1/", scopes=elsewhere).ensure() == DATA


def test_a_proxy_is_used(desk: Callable[..., Desk], registry: FakeRegistry) -> None:
    registry.tarball = f"http://registry.invalid{TARBALL}"
    access = Access(proxies={"http://": registry.address})
    assert desk(registry="http://registry.invalid/", access=access).ensure() == DATA
    assert registry.seen[-1][1]["host"] == "registry.invalid"


def test_a_corrupt_cached_file_is_said_and_replaced(
    desk: Callable[..., Desk], registry: FakeRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    one = desk()
    path = one.fetcher.ensure(LOCKED, PlainProgress(quiet=True))
    with path.open("r+b") as stream:
        stream.write(b"\xff")
    assert one.fetcher.ensure(LOCKED, PlainProgress()).read_bytes() == DATA
    assert "fetching it again" in capsys.readouterr().err
    assert len(registry.downloads()) == 2


def test_two_who_want_the_same_share_one_fetch(
    desk: Callable[..., Desk], registry: FakeRegistry
) -> None:
    one = desk()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: one.ensure(), range(4)))
    assert found == [DATA] * 4
    assert len(registry.downloads()) == 1


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl to make a certificate")
def test_a_certificate_is_trusted_only_when_the_configuration_names_it(
    desk: Callable[..., Desk], registry: FakeRegistry, tmp_path: Path
) -> None:
    key, pem = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-keyout", key, "-out", pem, "-subj", "/CN=localhost", "-days", "2",
         "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    with FakeServer(registry, context) as server:
        registry.address = f"https://localhost:{server.server_port}"
        one = desk()
        with pytest.raises(FetchError, match="not trusted"):
            one.ensure()
        assert one.slept == []
        assert desk(access=Access(ca_files=(str(pem),))).ensure() == DATA


def test_a_ca_file_that_is_not_there_is_named(desk: Callable[..., Desk]) -> None:
    with pytest.raises(FetchError, match=r"no-such\.pem"):
        desk(access=Access(ca_files=("/no-such.pem",)))
