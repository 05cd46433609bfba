"""Reacts to an event beside work that is under way, and costs the work nothing at its end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOOK_S = 0.05
_AGAIN_S = 0.5


@contextmanager
def watching(event: threading.Event, react: Callable[[], bool], *, name: str) -> Iterator[None]:
    """While the block runs, call ``react`` in a thread within 0.05 s of the event.

    The block's end does not wait for the next look, only for a reaction that has begun.

    Args:
        event: what is waited for; its ``wait`` is asked, since that may look for itself.
        react: returns False to be called again half a second later.
        name: the thread's.
    """
    ended = threading.Event()

    def watch() -> None:
        pause = _LOOK_S
        while True:
            if event.wait(0.0):
                if react():
                    return
                pause = _AGAIN_S
            if ended.wait(pause):
                return

    thread = threading.Thread(target=watch, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
