"""The log of what a sandbox tried to reach, filled by whoever watches; bounded."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sandbox.evidence.records import EgressEvent

MAX_EVENTS = 20_000


class EgressLog:
    """Events in the order in which they happened; the last one says when some are left out.

    Args:
        clock: wall time in seconds since the epoch.
        limit: how many events are kept.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time, limit: int = MAX_EVENTS) -> None:
        self._clock = clock
        self._limit = limit
        self._lock = threading.Lock()
        self._events: list[EgressEvent] = []
        self._left_out = 0

    def now(self) -> float:
        """The time by the log's clock."""
        return self._clock()

    def add(self, event: EgressEvent) -> None:
        """Keep an event while there is room."""
        with self._lock:
            if len(self._events) < self._limit:
                self._events.append(event)
            else:
                self._left_out += event.count

    def miss(self, count: int) -> None:
        """Note that ``count`` events came faster than they could be taken."""
        with self._lock:
            self._left_out += count

    def events(self) -> tuple[EgressEvent, ...]:
        """Return the events so far."""
        with self._lock:
            events = sorted(self._events, key=lambda event: event.at)
            if self._left_out:
                more = f"{self._left_out} more events were not kept"
                at = events[-1].at if events else self._clock()
                left = EgressEvent(at=at, kind="left_out", name=more, count=self._left_out)
                events.append(left)
            return tuple(events)
