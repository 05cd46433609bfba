"""Whether the registries answer: asked through fake clients and real sockets."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sandbox.runtimes.doctor import registry_findings
from sandbox.runtimes.library import RuntimeLibrary
from sandbox.runtimes.store import Store

NOWHERE = "http://127.0.0.1:1"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        project = self.path.strip("/").rpartition("/")[2].replace("-", "_")
        name = f"{project}-1.0-py3-none-any.whl"
        page = f'<!DOCTYPE html><a href="{name}">{name}</a>'.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def library(tmp_path: Path, *, npm: str | None, pip: str) -> RuntimeLibrary:
    (tmp_path / "bin").mkdir()
    if npm:
        script = tmp_path / "bin/npm"
        script.write_text(f'#!/bin/sh\necho \'{{"registry": "{npm}"}}\'\n')
        script.chmod(0o755)
    (tmp_path / "bin/apt-get").symlink_to("/bin/true")
    env = {"PATH": str(tmp_path / "bin"), "PIP_CONFIG_FILE": os.devnull, "HOME": str(tmp_path)}
    return RuntimeLibrary(
        store=Store(tmp_path / "store"), env=env | {"PIP_INDEX_URL": f"{pip}/simple"}
    )


def test_registries_that_answer(tmp_path: Path, registry: str) -> None:
    with library(tmp_path, npm=registry, pip=registry) as opened:
        found = registry_findings(opened)
    said = {finding.client: finding.ok for finding in found}
    assert said == {"pip": True, "npm": True, "apt": True}


def test_no_network_is_said_with_the_cure_and_soon(tmp_path: Path) -> None:
    with library(tmp_path, npm=NOWHERE, pip=NOWHERE) as opened:
        pip, npm, _ = registry_findings(opened, timeout_s=5)
    assert (pip.ok, npm.ok) == (False, False)
    assert "pip config list" in str(pip.cure)
    assert "npm" in str(npm.cure)


def test_without_npm_nothing_is_fetched_to_ask(tmp_path: Path, registry: str) -> None:
    with library(tmp_path, npm=None, pip=registry) as opened:
        _, npm, _ = registry_findings(opened)
    assert npm.ok
    assert "not asked" in npm.detail
    assert not (tmp_path / "store").exists()
