"""Moments of an episode at which a scenario does something to it from outside."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sandbox.agents.contract import (
    ActivateRequest,
    CloseRequest,
    CloseResponse,
    SeedRequest,
    SeedResponse,
)
from sandbox.agents.episode import AgentClient
from sandbox.agents.response import AgentResponse

_LOOK_EVERY_S = 0.2


class CancelAt(threading.Event):
    """A cancel that comes with another one, or by itself when its moment has come.

    Args:
        other: the run's own cancel.
        has_come: looks whether the moment has come; asked again and again until it has.
        clock: gives seconds, monotonic.
    """

    def __init__(
        self,
        other: threading.Event,
        has_come: Callable[[], bool],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._other = other
        self._has_come = has_come
        self._clock = clock
        self._look_at = clock()

    def is_set(self) -> bool:
        """Whether it is to end."""
        return super().is_set() or self._other.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Look whether the moment has come, every 0.2 s at most, and wait at most ``timeout``."""
        if not self.is_set() and self._clock() >= self._look_at:
            self._look_at = self._clock() + _LOOK_EVERY_S
            if self._has_come():
                self.set()
        return self.is_set() or super().wait(timeout) or self.is_set()


class ActivatesAgain:
    """An agent client that activates each session once more after its close.

    ``answer`` is how that was answered: the name of the error, or ``accepted``.
    """

    def __init__(self, agent: AgentClient) -> None:
        self._agent = agent
        self._request: ActivateRequest | None = None
        self.answer: str | None = None

    def seed(self, request: SeedRequest) -> SeedResponse:
        """Set a session up."""
        return self._agent.seed(request)

    def activate(self, request: ActivateRequest) -> AgentResponse:
        """Run its one turn."""
        self._request = request
        return self._agent.activate(request)

    def close(self, request: CloseRequest) -> CloseResponse:
        """End it, and try to go on."""
        closed = self._agent.close(request)
        if self._request is not None and self.answer is None:
            try:
                self._agent.activate(self._request)
            except Exception as error:  # noqa: BLE001 - the error is the answer
                self.answer = type(error).__name__
            else:
                self.answer = "accepted"
        return closed
