"""INT and TERM: the first asks for an end, the second ends the process at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible(end: Callable[[], None]) -> Iterator[None]:
    """Call ``end`` at the first INT or TERM while inside; outside of the main thread do nothing.

    ``end`` runs in the main thread, between two of its steps: it may raise.
    """

    def ask(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        end()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
