"""The lifecycle of agent sessions around any adapter: what may happen when, and what is kept.

::

    (unknown) --seed--> ready --activate--> running --> done
        |                 \\________________|____________/
        |                                   v
        +--close (fence)----------------> closing --> closed (answer kept for the retry window)

A setup that fails halfway leaves a session that can only be closed. A close that fails leaves the
session closing, with its state, for another try. Whoever serves may close sessions that nobody has
asked anything of for too long. Everything not drawn is a ``ConflictError``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, cast

from sandbox.agents.contract import (
    ActivateRequest,
    Agent,
    CloseRequest,
    CloseResponse,
    ConflictError,
    EpisodeId,
    SeedRequest,
    SeedResponse,
    SetupFailed,
)
from sandbox.agents.response import AgentResponse
from sandbox.agents.sessionrecord import SessionRecord, StateT
from sandbox.errors import CouldNotFindOut

RETRY_WINDOW_S = 300.0
STOP_WAIT_S = 60.0


class AgentSessions(Generic[StateT]):
    """Sessions of one adapter, safe for threads.

    Args:
        agent: the adapter whose hooks do the work.
        retry_window_s: how long a close's answer is kept, in seconds.
        stop_wait_s: how long a close waits for a cancelled activation, in seconds.
        clock: gives seconds, monotonic.
    """

    def __init__(
        self,
        agent: Agent[StateT],
        *,
        retry_window_s: float = RETRY_WINDOW_S,
        stop_wait_s: float = STOP_WAIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._agent = agent
        self._retry_window_s = retry_window_s
        self._stop_wait_s = stop_wait_s
        self._clock = clock
        self._lock = threading.Lock()
        self._records: dict[str, SessionRecord[StateT]] = {}

    def seed(self, request: SeedRequest) -> SeedResponse:
        """Set a session up; the same request again gives the same answer.

        Raises:
            ConflictError: the id has another request, or is closing or closed.
            SandboxError: what the adapter's setup raised.
        """
        name = request.agent_session_id
        self._refuse_closing(name)
        with self._held(name) as record:
            record.refuse_closed(name)
            if record.seeded is not None:
                return self._seeded_before(record, request)
            record.seeded = request
            error = self._set_up(record, request)
            if error is not None:
                raise error
            return SeedResponse(agent_session_id=name)

    def activate(self, request: ActivateRequest) -> AgentResponse:
        """Run the session's one agent turn.

        Raises:
            ConflictError: unknown, closing, closed, not set up, or activated before.
            SandboxError: what the adapter raised.
        """
        name = request.agent_session_id
        self._refuse_closing(name)
        with self._held(name) as record:
            state = self._activatable(name, record)
            record.activated = True
            record.idle.clear()
        try:
            return self._agent.activate_state(state, request, record.cancel)
        finally:
            record.asked_at = self._clock()
            record.idle.set()

    def close(self, request: CloseRequest) -> CloseResponse:
        """End a session, whatever it is doing; the first answer is given again.

        Closing an id that was never seeded keeps a late seed out.

        Raises:
            ConflictError: the session belongs to another episode.
            CouldNotFindOut: a cancelled activation did not end; try again.
            SandboxError: what the adapter raised; try again.
        """
        name = request.agent_session_id
        self._announce_close(request)
        with self._held(name) as record:
            record.refuse_foreign(request)
            if record.answer is None:
                record.answer = self._release(name, record)
                record.state = None
                record.closed_for = request.episode_id
                record.expires_at = self._clock() + self._retry_window_s
            return record.answer

    def cancel(self, agent_session_id: str) -> None:
        """Stop what the session is doing, without closing it; nothing for an unknown id."""
        record = self._peek(agent_session_id)
        if record is not None:
            record.cancel.set()

    def episode_of(self, agent_session_id: str) -> EpisodeId | None:
        """Return whose the session is; None for an unknown id."""
        record = self._peek(agent_session_id)
        if record is None:
            return None
        return record.closed_for if record.seeded is None else record.seeded.episode_id

    def close_all(self) -> tuple[str, ...]:
        """Close every session that is open, for a server that ends; say what could not be."""
        return self._close_each(self._open())

    def close_lapsed(self, lease_s: float) -> tuple[str, ...]:
        """Close every session that nobody has asked anything of for ``lease_s``; say what failed.

        A setup or an activation that is under way counts as being asked: it has its own deadline.
        """
        until = self._clock() - lease_s
        lapsed = {name: record for name, record in self._open().items() if record.has_lapsed(until)}
        for record in lapsed.values():
            record.lapsed = True
        return self._close_each(lapsed)

    def _open(self) -> dict[str, SessionRecord[StateT]]:
        with self._lock:
            return {name: one for name, one in self._records.items() if one.is_open}

    def _close_each(self, records: Mapping[str, SessionRecord[StateT]]) -> tuple[str, ...]:
        for record in records.values():
            record.cancel.set()
        errors = []
        for name, record in records.items():
            if record.seeded is None:
                continue  # its setup failed meanwhile, and left nothing
            request = CloseRequest(agent_session_id=name, episode_id=record.seeded.episode_id)
            try:
                self.close(request)
            except Exception as error:  # noqa: BLE001 - the others are closed all the same
                errors.append(f"agent session {name}: {error}")
        return tuple(errors)

    def _set_up(self, record: SessionRecord[StateT], request: SeedRequest) -> BaseException | None:
        """Run the hook; what failed halfway is kept, and its error is returned."""
        try:
            record.state = self._agent.seed_state(request, record.cancel)
        except SetupFailed as failure:
            record.state = cast("StateT", failure.state)
            record.setup_failed = True
            return failure.error
        except BaseException:
            record.seeded = None
            raise
        if record.cancel.is_set():  # the hook was too far to notice
            record.setup_failed = True
            return ConflictError(
                f"agent session {request.agent_session_id} was closed during its setup"
            )
        return None

    def _seeded_before(self, record: SessionRecord[StateT], request: SeedRequest) -> SeedResponse:
        name = request.agent_session_id
        if record.seeded != request:
            raise ConflictError(f"agent session {name} was seeded with another request")
        if record.setup_failed:
            raise ConflictError(f"the setup of agent session {name} failed", cure="close it")
        return SeedResponse(agent_session_id=name)

    def _activatable(self, name: str, record: SessionRecord[StateT]) -> StateT:
        record.refuse_closed(name)
        if record.state is None or record.setup_failed:
            raise ConflictError(f"agent session {name} is not set up", cure="seed it first")
        if record.activated:
            raise ConflictError(f"agent session {name} was activated before")
        return record.state

    def _refuse_closing(self, name: str) -> None:
        """Answer at once while a close has the session's lock."""
        record = self._peek(name)
        if record is not None:
            record.refuse_closed(name)

    def _announce_close(self, request: CloseRequest) -> None:
        """Stop what runs before waiting for its lock; a setup that is under way ends early."""
        record = self._peek(request.agent_session_id)
        if record is not None and record.answer is None:
            record.refuse_foreign(request)
            if record.seeded is not None:
                record.closing = True
                record.cancel.set()

    def _release(self, name: str, record: SessionRecord[StateT]) -> CloseResponse:
        if record.state is None:
            return CloseResponse(agent_session_id=name)
        record.closing = True
        record.cancel.set()
        if not record.idle.wait(self._stop_wait_s):
            raise CouldNotFindOut(
                f"the activation of agent session {name} did not end within "
                f"{self._stop_wait_s:g} s after it was cancelled",
                cure="close again, or remove the sandbox",
            )
        return self._agent.close_state(record.state)

    def _peek(self, name: str) -> SessionRecord[StateT] | None:
        with self._lock:
            self._forget_expired()
            return self._records.get(name)

    @contextmanager
    def _held(self, name: str) -> Iterator[SessionRecord[StateT]]:
        """Hold the session's lock; a record that keeps nothing is dropped afterwards."""
        while True:
            with self._lock:
                self._forget_expired()
                record = self._records.setdefault(name, SessionRecord())
            with record.lock:
                if self._records.get(name) is not record:
                    continue  # it was dropped while we waited
                try:
                    yield record
                finally:
                    record.asked_at = self._clock()
                    if record.seeded is None and record.answer is None:
                        with self._lock:
                            del self._records[name]
                return

    def _forget_expired(self) -> None:
        now = self._clock()
        for name in [n for n, record in self._records.items() if record.expires_at <= now]:
            del self._records[name]
            self._agent.forget_session(name)
