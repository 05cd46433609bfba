"""Live progress on standard error: bars on a terminal, one plain line a step elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars


class Step(Protocol):
    """One piece of long work under way."""

    def total(self, amount: float) -> None:
        """Say how much there is to do (bytes, files, cells)."""

    def advance(self, amount: float) -> None:
        """Say how much more is done, in the unit of ``total``."""

    def note(self, text: str) -> None:
        """Say how it goes, in place of what was said before."""


class Progress(Protocol):
    """Where long work reports to; results never go here."""

    def say(self, line: str) -> None:
        """Print one line for people."""

    def step(self, label: str) -> AbstractContextManager[Step]:
        """Show ``label`` as under way until the context ends."""


NOTE_EVERY_S = 30.0
"""Seconds between notes on plain output."""


class _PlainStep:
    def __init__(self, say: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._say = say
        self._clock = clock
        self._last = clock()

    def total(self, amount: float) -> None:
        """Ignore it: plain output has no bar."""

    def advance(self, amount: float) -> None:
        """Ignore it: plain output has no bar."""

    def note(self, text: str) -> None:
        now = self._clock()
        if now - self._last >= NOTE_EVERY_S:
            self._last = now
            self._say(f"  {text}")


class PlainProgress:
    """One line when a step starts to take long or says something; for CI and pipes."""

    def __init__(self, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet = quiet
        self._clock = clock
        self._lock = threading.Lock()

    def say(self, line: str) -> None:
        """Print one line to standard error."""
        if not self._quiet:
            with self._lock:
                print(line, file=sys.stderr, flush=True)

    @contextmanager
    def step(self, label: str) -> Iterator[Step]:
        """Print ``label`` once, then now and then how it goes."""
        self.say(f"{label} ...")
        yield _PlainStep(self.say, self._clock)


class _BarStep:
    def __init__(self, bars: Bars, task: TaskID) -> None:
        self._bars = bars
        self._task = task

    def total(self, amount: float) -> None:
        self._bars.update(self._task, total=amount)

    def advance(self, amount: float) -> None:
        self._bars.advance(self._task, amount)

    def note(self, text: str) -> None:
        self._bars.update(self._task, note=text)


class LiveProgress:
    """Bars on a terminal; a context manager, since it owns the terminal's last lines."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=self._console,
            transient=True,
        )

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._bars.stop()

    def say(self, line: str) -> None:
        """Print one line above the bars."""
        self._console.print(line, markup=False, highlight=False)

    @contextmanager
    def step(self, label: str) -> Iterator[Step]:
        """Show a bar for ``label`` (pulsing until a total is known)."""
        task = self._bars.add_task(label, total=None, note="")
        try:
            yield _BarStep(self._bars, task)
        finally:
            self._bars.remove_task(task)


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Progress]:
    """Give live bars when standard error is a terminal, plain lines otherwise."""
    if quiet or not sys.stderr.isatty():
        yield PlainProgress(quiet=quiet)
        return
    with LiveProgress() as live:
        yield live
