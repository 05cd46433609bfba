"""A model server on loopback with a folder that stands for the sandbox."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from sandbox.model.script import Script
from sandbox.model.server import ModelServer


@dataclass
class Served:
    """A running server, a client for it, and the folder where its markers are looked for."""

    server: ModelServer
    client: httpx.Client
    port: int
    workdir: Path


Serve = Callable[..., contextlib.AbstractContextManager[Served]]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """Serve a script: ``with serve(script) as served``."""

    @contextlib.contextmanager
    def serving(script: Script, rollout_id: str = "r1", ahead_s: int = 0) -> Iterator[Served]:
        def marker(path: str) -> str | None:
            file = tmp_path / path
            return file.read_text() if file.exists() else None

        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        server = ModelServer(
            script, rollout_id=rollout_id, listener=listener, marker=marker, ahead_s=ahead_s
        )
        base = f"http://127.0.0.1:{port}{server.base_path}/"
        with server, httpx.Client(base_url=base, timeout=10, trust_env=False) as client:
            yield Served(server=server, client=client, port=port, workdir=tmp_path)

    return serving
