"""A harness's own time limits, from the episode's: nothing waits for ever.

The supervisor's deadline ends the run whatever the harness does. The limits here end a single
request or stream earlier, so that a harness that is left alone by its model gets to say so.
"""

from __future__ import annotations

from sandbox.evidence.records import Record

_LONGEST_IDLE_S = 120.0
_LONGEST_SILENCE_S = 300.0
_RETRY_BUDGET_S = 60.0  # the default retries of Codex need 25 s, those of OpenCode 70 s


class Deadlines(Record):
    """Limits in milliseconds.

    ``request_ms`` bounds a whole request, ``headers_ms`` the wait for the first byte, ``idle_ms``
    the silence within a stream. ``patient``: there is time for the harness's usual retries.
    """

    request_ms: int
    headers_ms: int
    idle_ms: int
    patient: bool


def deadlines_for(deadline_s: float) -> Deadlines:
    """Divide the episode's deadline, so that one stalled try leaves time for another."""
    return Deadlines(
        request_ms=_ms(deadline_s),
        headers_ms=_ms(min(_LONGEST_SILENCE_S, deadline_s / 2)),
        idle_ms=_ms(min(_LONGEST_IDLE_S, deadline_s / 3)),
        patient=deadline_s >= _RETRY_BUDGET_S,
    )


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
