"""Serves an application of the agents room on a TCP socket, from a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from types import TracebackType
from typing import Self

import uvicorn
from starlette.types import ASGIApp

from sandbox.errors import CouldNotFindOut, UsageError

START_DEADLINE_S = 10.0
DRAIN_S = 5
"""How long answers that are under way may take once a stop was asked for; then they are cut."""


class LocalServer:
    """An application at ``url``, as a context manager; ``port`` is the one it listens on.

    Args:
        app: what is served.
        host: the address to listen on.
        port: the port; 0: one that is free.

    Raises:
        UsageError: nobody can listen there.
    """

    def __init__(self, app: ASGIApp, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._host = host
        self._listener = _listener(host, port)
        self.port: int = self._listener.getsockname()[1]
        self._server = uvicorn.Server(_config(app))
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="agent-server", daemon=True)

    @property
    def url(self) -> str:
        """Where clients of this machine find it."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        until = time.monotonic() + START_DEADLINE_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > until:
                self.stop()
                raise CouldNotFindOut(
                    f"the server on port {self.port} did not start: {self._failure}"
                )
            time.sleep(0.002)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop; answers under way get ``DRAIN_S``. A second stop does nothing."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(4 * DRAIN_S)
        self._listener.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._server.serve(sockets=[self._listener]))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - told by the starting thread
            self._failure = error


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # or every answer waits for a delayed acknowledgement
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise UsageError(
            f"cannot listen on {host} port {port}: {error.strerror}", cure="choose another port"
        ) from error
    return listener


def _config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=DRAIN_S,
    )
