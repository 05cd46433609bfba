"""The model server: serves one script on a listening socket, from a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from email.utils import formatdate
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

import uvicorn
from starlette.types import Scope

from sandbox.errors import CouldNotFindOut
from sandbox.evidence.exchanges import Exchange, ScriptReport
from sandbox.model.app import ModelApp
from sandbox.model.capture import Capture
from sandbox.model.director import Director
from sandbox.model.script import Script
from sandbox.model.tally import Tally

if TYPE_CHECKING:
    from uvicorn.server import Protocols

START_DEADLINE_S = 30.0
STOP_DEADLINE_S = 30.0
LAST_LOOK_S = 0.02
"""How long a stop waits before it closes connections: a client that left just before is seen."""
LAST_TURNS = 5
"""Turns of the loop after which what came before a stop is a connection, or was one."""
LAST_ANSWER_S = 0.1
DATE_S = 1.0


class ModelServer:
    """A scripted model as a context manager.

    Serves ``/rollout/<rollout id>/v1`` on ``listener``, which it owns from then on and closes.
    What it saw can be read from any thread, while it runs and after it stopped. Bytes that are no
    HTTP request are answered 400 and do not count as an exchange.

    Args:
        script: what is said, and what goes wrong.
        rollout_id: the only one that is answered; any other path is a 404.
        listener: a listening TCP socket.
        marker: text of a file in the sandbox, None when it does not exist. Blocks; called in
            threads, possibly several at once.
        clock: wall time in seconds since the epoch.
        ahead_s: how far the clock that clients are told of is ahead of it: the ``Date`` of answers
            and the times in replies. What is recorded goes by ``clock``.
        models: ids that ``GET models`` names.
        verifier_listener: another listening socket, on an address of its own, for the verifier
            alone; owned and closed like ``listener``.
    """

    def __init__(
        self,
        script: Script,
        *,
        rollout_id: str,
        listener: socket.socket,
        marker: Callable[[str], str | None],
        clock: Callable[[], float] = time.time,
        ahead_s: int = 0,
        models: Sequence[str] = ("scripted-model",),
        verifier_listener: socket.socket | None = None,
    ) -> None:
        self._script = script
        self._rollout_id = rollout_id
        self._listener = listener
        self._verifier_listener = verifier_listener
        self._clock = clock
        self._ahead_s = ahead_s
        self._models = models
        self._capture = Capture()
        self._director = Director(script, lambda path: _in_thread(marker, path))
        self._tally: Tally | None = None
        self._thread: threading.Thread | None = None
        self._stop: Callable[[], None] = lambda: None
        self._started = threading.Event()
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def base_path(self) -> str:
        """Path that the harness's base URL ends with: ``/rollout/<rollout id>/v1``."""
        return f"/rollout/{quote(self._rollout_id, safe='')}/v1"

    def exchanges(self) -> tuple[Exchange, ...]:
        """Exchanges that have ended, in the order in which they began."""
        return self._capture.exchanges()

    def report(self) -> ScriptReport:
        """How far the script came, and the first refusal."""
        return self._director.report()

    def tool_requests(self) -> dict[str, str]:
        """Tool call ids that replies asked for, with the advertised tool's name.

        Replies that a fault cut short count too: some harnesses run a call that reached them.
        """
        return self._capture.tools_asked()

    def tally(self) -> tuple[str, ...]:
        """Digests of all ended exchanges, counted apart from the capture; sorted."""
        return () if self._tally is None else self._tally.entries()

    def start(self) -> None:
        """Serve; returns once requests are accepted, or refused if the script says so.

        Raises:
            CouldNotFindOut: the server did not start within START_DEADLINE_S.
        """
        if not self._script.reachable:
            self._close_listeners()
            return
        # asyncio does this only for sockets that name TCP as their protocol; without it every
        # streamed reply waits 40 ms for a delayed acknowledgement. Accepted sockets inherit it.
        with contextlib.suppress(OSError):
            self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._thread = threading.Thread(target=self._run, name="model-server", daemon=True)
        self._thread.start()
        if not self._started.wait(START_DEADLINE_S) or self._failure is not None:
            self.stop()
            raise CouldNotFindOut(
                f"model server for rollout {self._rollout_id} did not start within "
                f"{START_DEADLINE_S:.0f} s: {self._failure or 'no answer'}"
            ) from self._failure

    def stop(self) -> None:
        """Stop at once: held and stalled connections are closed. A second stop does nothing."""
        thread, self._thread = self._thread, None
        if thread is None:
            self._close_listeners()
            return
        self._stop()
        thread.join(STOP_DEADLINE_S)
        if thread.is_alive():
            raise CouldNotFindOut(
                f"model server for rollout {self._rollout_id} did not stop within "
                f"{STOP_DEADLINE_S:.0f} s"
            )

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - handed to the starting thread
            self._failure = error
        finally:
            self._started.set()
            self._close_listeners()

    def _close_listeners(self) -> None:
        for listener in self._sockets():
            listener.close()

    def _sockets(self) -> list[socket.socket]:
        return [s for s in (self._listener, self._verifier_listener) if s is not None]

    def _verifier_host(self) -> str | None:
        listener = self._verifier_listener
        return None if listener is None else str(listener.getsockname()[0])

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        app = ModelApp(
            self._script,
            rollout_id=self._rollout_id,
            director=self._director,
            capture=self._capture,
            clock=self._clock,
            ahead_s=self._ahead_s,
            stopping=stopping,
            hang_up=lambda scope: _hang_up(server, scope),
            models=self._models,
            verifier_host=self._verifier_host(),
        )
        self._tally = Tally(app)
        server = _Server(_config(self._tally), stopping, ahead_s=self._ahead_s)
        ending: list[asyncio.Future[None]] = []  # the loop alone would let go of it
        self._stop = lambda: _call_in(
            loop, lambda: ending.append(asyncio.ensure_future(_end(server, stopping)))
        )
        serving = asyncio.ensure_future(server.serve(sockets=self._sockets()))
        while not server.started and not serving.done():
            await asyncio.sleep(0.001)
        if server.started:
            self._started.set()
        await serving


class _Server(uvicorn.Server):
    """uvicorn's server without its ticks and pauses: it stops when it is told to, and at once.

    The original looks ten times a second whether it should, and then waits another 0.1 s for its
    connections, which are closed by then: 0.15 s of every cell.
    """

    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event, *, ahead_s: int) -> None:
        super().__init__(config)
        self._stopping = stopping
        self._ahead_s = ahead_s

    async def main_loop(self) -> None:
        """Keep the date header until the stop."""
        while not await self.on_tick(0):
            if self._ahead_s:
                date = formatdate(time.time() + self._ahead_s, usegmt=True).encode()
                self.server_state.default_headers = [(b"date", date)]
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), DATE_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close what listens, and give what still answers a moment to see its client gone."""
        for server in self.servers:
            server.close()
        for one in sockets or ():
            one.close()
        await asyncio.sleep(0)  # the connections' losses are told in this turn of the loop
        if answering := set(self.server_state.tasks):
            _, late = await asyncio.wait(answering, timeout=LAST_ANSWER_S)
            for task in late:
                task.cancel()


def _config(app: Tally) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="h11",
        ws="none",
        loop="asyncio",
        interface="asgi3",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        timeout_keep_alive=600,
        timeout_graceful_shutdown=0,
    )


async def _end(server: uvicorn.Server, stopping: asyncio.Event) -> None:
    """End every pause and close every connection, so that the shutdown has nothing to wait for."""
    for _ in range(LAST_TURNS):
        await asyncio.sleep(0)
    if server.server_state.connections or server.server_state.tasks:
        await asyncio.sleep(LAST_LOOK_S)
    stopping.set()
    server.should_exit = True
    for connection in list(server.server_state.connections):
        _abort(connection)


def _abort(connection: Protocols) -> None:
    if connection.transport is not None:
        connection.transport.abort()


def _hang_up(server: uvicorn.Server, scope: Scope) -> None:
    """Close the connection that a scope came on, without a reply."""
    for connection in list(server.server_state.connections):
        # uvicorn keeps the peer's address on the protocol; two connections never share one
        if getattr(connection, "client", None) == scope["client"]:
            _abort(connection)


def _call_in(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    """Run a call in a loop's thread; nothing when the loop has ended."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call)


async def _in_thread(read: Callable[[str], str | None], path: str) -> str | None:
    """Run a blocking read in a daemon thread, so that a slow one never holds up the stop."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[str | None] = loop.create_future()

    def finish(text: str | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(text)

    def run() -> None:
        text, error = None, None
        try:
            text = read(path)
        except Exception as caught:  # noqa: BLE001 - carried over to the loop
            error = caught
        _call_in(loop, lambda: finish(text, error))

    threading.Thread(target=run, name="model-marker", daemon=True).start()
    return await future
