"""A real registry on loopback: Debian's docker-registry, the host's or out of its package."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

import pytest

from sandbox.cache import cache_root, locked, published

USER, PASSWORD = "somebody", "not-a-secret"
BCRYPT = "$2b$05$EJvV9v3Lxc3CLJtQpA8mGeWRPSZ8Hgqyk8aIPK3hIjdW69Lto17vi"


def program() -> str:
    """Find docker-registry, or unpack Debian's package of it into the cache."""
    found = shutil.which("docker-registry")
    if found is not None:
        return found
    home = cache_root() / "tools" / "docker-registry"
    with locked(home):
        if not home.is_dir():
            if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
                if os.environ.get("CI") or os.environ.get("SANDBOX_REQUIRE_ENGINE"):
                    raise RuntimeError("there is neither docker-registry nor apt to get it with")
                pytest.skip("there is neither docker-registry nor apt to get it with")
            with published(home) as fresh:
                fresh.mkdir()
                _run("apt-get", "-q", "download", "docker-registry", cwd=fresh)
                (package,) = fresh.glob("*.deb")
                _run("dpkg-deb", "-x", package.name, ".", cwd=fresh)
                package.unlink()
    return str(home / "usr" / "bin" / "docker-registry")


def _run(*argv: str, cwd: Path) -> None:
    subprocess.run(argv, cwd=cwd, check=True, capture_output=True)


class LoopbackRegistry:
    """A registry process with a folder of its own; a context manager."""

    def __init__(self, folder: Path, *, password: bool = False) -> None:
        self._folder = folder
        self._password = password
        self.port = _free_port()
        self.host = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self._folder / "config.yml"
        config.write_text(self._config())
        (self._folder / "htpasswd").write_text(f"{USER}:{BCRYPT}\n")
        log = (self._folder / "log").open("wb")
        with log:
            self._process = subprocess.Popen(
                [program(), "serve", str(config)], stdout=log, stderr=log
            )
        until = time.monotonic() + 30
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert time.monotonic() < until, (self._folder / "log").read_text()
            time.sleep(0.05)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            self._process = None

    def blob(self, digest: str) -> Path:
        """Say which file holds the bytes of ``digest``."""
        hexes = digest.removeprefix("sha256:")
        return self._folder / f"data/docker/registry/v2/blobs/sha256/{hexes[:2]}/{hexes}/data"

    def _config(self) -> str:
        auth = f"auth: {{htpasswd: {{realm: r, path: {self._folder}/htpasswd}}}}\n"
        return (
            "version: 0.1\nlog: {level: error}\n"
            f"storage: {{filesystem: {{rootdirectory: {self._folder}/data}}}}\n"
            f"http: {{addr: '{self.host}'}}\n{auth if self._password else ''}"
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
