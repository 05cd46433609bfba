"""An agent for ``sandbox serve`` whose hooks are done in the process that started it.

``Plug`` is the near side, with the fake adapter; ``Plugged`` is what the served process makes of an
entry point. Each hook is one connection: the call goes over, then perhaps a cancel, and what comes
back ends it.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Self

from sandbox.agents.contract import (
    ActivateRequest,
    Agent,
    CloseResponse,
    SeedRequest,
    SetupFailed,
)
from sandbox.agents.response import AgentResponse
from tests.unit.session_fakes import FakeAgent, Held

ADDRESS, KEY = "TEST_PLUG_ADDRESS", "TEST_PLUG_KEY"
NAME = "plugged"
ROOT = Path(__file__).parents[2]


class Plug:
    """Does the hooks with ``agent``, whichever that is just now; a context manager."""

    def __init__(self) -> None:
        self.agent = FakeAgent()
        self._key = os.urandom(16)
        self._listener = Listener(family="AF_UNIX", authkey=self._key)
        self._states: dict[int, tuple[FakeAgent, Held]] = {}
        self._numbers = itertools.count()
        self._thread = threading.Thread(target=self._accept)
        self._ending = False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending = True
        Client(self._listener.address, authkey=self._key).close()
        self._thread.join()
        self._listener.close()

    def env(self, folder: Path) -> Mapping[str, str]:
        """Register the far side as a package below ``folder``; what its process must see."""
        info = folder / f"{NAME}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n")
        entry = f"[sandbox.agents]\n{NAME} = tests.agents.plug:Plugged\n"
        (info / "entry_points.txt").write_text(entry)
        return {
            "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}",
            ADDRESS: str(self._listener.address),
            KEY: self._key.hex(),
        }

    def _accept(self) -> None:
        threads = []
        while not self._ending:
            connection = self._listener.accept()
            threads.append(threading.Thread(target=self._serve, args=(connection,)))
            threads[-1].start()
        for thread in threads:
            thread.join()

    def _serve(self, connection: Connection) -> None:
        with connection, suppress(EOFError):
            hook, arguments = connection.recv()
            cancel = threading.Event()
            working = threading.Thread(
                target=lambda: connection.send(self._done(hook, arguments, cancel))
            )
            working.start()
            connection.recv()  # the far side cancels, or has its answer and leaves
            cancel.set()
            working.join()

    def _done(
        self, hook: str, arguments: tuple[object, ...], cancel: threading.Event
    ) -> tuple[object, BaseException | None]:
        """Return what a hook gave (of a setup: the state's number), and what it raised."""
        try:
            if hook == "seed":
                return self._kept(self.agent.seed_state(*arguments, cancel)), None  # type: ignore[arg-type]
            agent, held = self._states[arguments[0]]  # type: ignore[index]
            if hook == "close":
                return agent.close_state(held), None
            return agent.activate_state(held, *arguments[1:], cancel), None  # type: ignore[arg-type]
        except SetupFailed as error:
            return self._kept(error.state), error.error
        except Exception as error:
            return None, error

    def _kept(self, held: object) -> int:
        assert isinstance(held, Held)
        number = next(self._numbers)
        self._states[number] = self.agent, held
        return number


class Plugged(Agent[int]):
    """The far side: every hook is asked for over the connection that the environment names."""

    name = NAME

    def seed_state(self, request: SeedRequest, cancel: threading.Event) -> int:
        state, error = _ask(cancel, "seed", request)
        if error is not None and state is not None:
            raise SetupFailed(state, error)
        if error is not None:
            raise error
        assert isinstance(state, int)
        return state

    def activate_state(
        self, state: int, request: ActivateRequest, cancel: threading.Event
    ) -> AgentResponse:
        answer, error = _ask(cancel, "activate", state, request)
        if error is not None:
            raise error
        assert isinstance(answer, AgentResponse)
        return answer

    def close_state(self, state: int) -> CloseResponse:
        answer, error = _ask(threading.Event(), "close", state)
        if error is not None:
            raise error
        assert isinstance(answer, CloseResponse)
        return answer


def _ask(
    cancel: threading.Event, hook: str, *arguments: object
) -> tuple[object, BaseException | None]:
    done = threading.Event()
    with Client(os.environ[ADDRESS], authkey=bytes.fromhex(os.environ[KEY])) as connection:

        def tell() -> None:
            while not done.is_set():
                if cancel.wait(0.005):
                    connection.send("cancel")
                    return

        telling = threading.Thread(target=tell)
        connection.send((hook, arguments))
        telling.start()
        try:
            answer: tuple[object, BaseException | None] = connection.recv()
        finally:
            done.set()
            telling.join()
    return answer
