"""What the lifecycle keeps of one agent session, and what it refuses because of it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sandbox.agents.contract import (
    CloseRequest,
    CloseResponse,
    ConflictError,
    EpisodeId,
    SeedRequest,
)

StateT = TypeVar("StateT")


@dataclass
class SessionRecord(Generic[StateT]):
    """One session; ``lock`` is held by seed and close, and by activate only to begin and end.

    ``asked_at`` is when the last request for it ended, ``expires_at`` when its close's answer is
    forgotten, both in seconds of the lifecycle's clock. ``lapsed``: its lease ran out.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    cancel: threading.Event = field(default_factory=threading.Event)
    idle: threading.Event = field(default_factory=threading.Event)
    seeded: SeedRequest | None = None
    state: StateT | None = None
    setup_failed: bool = False
    activated: bool = False
    closing: bool = False
    closed_for: EpisodeId | None = None
    answer: CloseResponse | None = None
    expires_at: float = float("inf")
    asked_at: float = 0.0
    lapsed: bool = False

    def __post_init__(self) -> None:
        self.idle.set()

    @property
    def is_open(self) -> bool:
        """Whether there is something that a close has to release."""
        return self.seeded is not None and self.answer is None

    def has_lapsed(self, until: float) -> bool:
        """Whether nobody works on it, and nobody has asked anything of it since then."""
        busy = self.lock.locked() or not self.idle.is_set()
        return not busy and (self.lapsed or self.asked_at <= until)

    def refuse_closed(self, name: str) -> None:
        """Raise ConflictError when a close has begun or ended."""
        if self.answer is not None:
            why = ": nobody asked anything of it for its whole lease" if self.lapsed else ""
            raise ConflictError(f"agent session {name} is closed{why}")
        if self.closing:
            raise ConflictError(f"agent session {name} is closing")

    def refuse_foreign(self, request: CloseRequest) -> None:
        """Raise ConflictError when a close is of another episode than the session."""
        seeded = None if self.seeded is None else self.seeded.episode_id
        episode = seeded or self.closed_for
        if episode is not None and episode != request.episode_id:
            raise ConflictError(
                f"agent session {request.agent_session_id} belongs to another episode"
            )
