"""What reacts beside work: once, in time, and without holding the work's end up."""

from __future__ import annotations

import threading

from sandbox.agents.watching import watching


class Asked(threading.Event):
    """Notes how long somebody wanted to wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        return super().wait(timeout)


def test_the_end_of_the_work_waits_for_no_look() -> None:
    event = Asked()
    with watching(event, lambda: True, name="x"):
        pass
    assert set(event.waits) == {0.0}, "a wait for the event would delay the work's end"


def test_a_reaction_that_has_begun_is_waited_for_and_done_once() -> None:
    event, begun, reactions = threading.Event(), threading.Event(), []
    event.set()

    def react() -> bool:
        begun.set()
        reactions.append("reacted")
        return True

    with watching(event, react, name="x"):
        assert begun.wait(60)
    assert reactions == ["reacted"]
